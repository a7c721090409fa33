-- next_unit --
-- The first unit that waits. Batches come one after the other, so the first row tells.
SELECT unit, CAST(life AS text) AS life FROM onlyonce_private.outbox
WHERE instance = :instance AND output = :output AND state = 'waiting' ORDER BY row_no LIMIT 1

-- begin --
-- An attempt at a whole unit, written before it is made. Once more after a lost COMMIT it finds nothing to do.
UPDATE onlyonce_private.outbox SET state = 'sending', attempts = attempts + 1, begun_at = clock_timestamp()
WHERE unit = :unit AND state = 'waiting'

-- record --
-- The target has the unit.
UPDATE onlyonce_private.outbox
SET state = 'delivered', answer = :answer, answered_at = clock_timestamp(), due_at = NULL
WHERE unit = :unit AND state = 'sending'

-- wait --
-- The attempt failed: the unit waits for the next.
UPDATE onlyonce_private.outbox
SET state = 'waiting', answer = :answer, answered_at = clock_timestamp(),
    unanswered = unanswered + CASE WHEN :lost THEN 1 ELSE 0 END,
    first_unanswered_at = coalesce(first_unanswered_at, CASE WHEN :lost THEN begun_at END),
    uncertain = uncertain OR :uncertain
WHERE unit = :unit AND state = 'sending'

-- recover --
-- Attempts of deliverers that ended: written or not, the target is asked.
UPDATE onlyonce_private.outbox
SET state = 'waiting', answer = 'the deliverer ended before an answer', answered_at = clock_timestamp(),
    unanswered = unanswered + 1, first_unanswered_at = coalesce(first_unanswered_at, begun_at),
    uncertain = uncertain OR :uncertain
WHERE instance = :instance AND output = :output AND state = 'sending'

-- rows --
-- The rows of a unit after a place, in order, as many as fit into so many bytes, and one at least.
SELECT row_no, unit, seq, CAST(life AS text) AS life, key, payload, CAST(CAST(md5(unit || '/' || seq || '@' || life) AS uuid) AS text) AS insert_id,
       attempts
FROM (SELECT *, sum(octet_length(payload)) OVER (ORDER BY seq) - octet_length(payload) AS before
      FROM (SELECT * FROM onlyonce_private.outbox WHERE unit = :unit AND seq > :after ORDER BY seq LIMIT :most) page) sized
WHERE before < :bytes ORDER BY seq

-- stream --
-- The write stream that a unit goes to, and whether any of its rows is in another state than the attempt's: another way of sending had them.
SELECT min(stream) AS stream, bool_or(state <> 'sending') AS mixed FROM onlyonce_private.outbox WHERE unit = :unit

-- note_stream --
-- Where a unit goes, written before its first row is sent there.
UPDATE onlyonce_private.outbox SET stream = :stream WHERE unit = :unit AND state = 'sending'
