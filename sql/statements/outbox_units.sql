-- next_unit --
-- The first unit that waits. Batches follow each other, so the first row decides.
SELECT unit, CAST(checkpoint_id AS text) AS checkpoint_id FROM onlyonce_private.outbox
WHERE instance = :instance AND output = :output AND state = 'waiting' ORDER BY row_no LIMIT 1

-- begin --
-- An attempt at a whole unit, noted before it is made. A repetition after a lost COMMIT finds nothing to do.
-- `units_topic`: Kafka's topic of the units' names. The name of a write stream stays: only BigQuery knows what it has.
UPDATE onlyonce_private.outbox SET state = 'sending', attempts = attempts + 1, begun_at = clock_timestamp(),
    stream = coalesce(stream, CAST(:units_topic AS text))
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
-- Attempts of ended deliverers. The target is asked whether they were written.
UPDATE onlyonce_private.outbox
SET state = 'waiting', answer = 'the deliverer ended before an answer', answered_at = clock_timestamp(),
    unanswered = unanswered + 1, first_unanswered_at = coalesce(first_unanswered_at, begun_at),
    uncertain = uncertain OR :uncertain
WHERE instance = :instance AND output = :output AND state = 'sending'

-- rows --
-- The rows of a unit after a position, in order, as many as fit into this number of bytes, and at least one.
SELECT row_no, unit, seq, CAST(checkpoint_id AS text) AS checkpoint_id, key, payload, CAST(CAST(md5(unit || '/' || seq || '@' || checkpoint_id) AS uuid) AS text) AS insert_id,
       attempts
FROM (SELECT *, sum(octet_length(payload)) OVER (ORDER BY seq) - octet_length(payload) AS before
      FROM (SELECT * FROM onlyonce_private.outbox WHERE unit = :unit AND seq > :after ORDER BY seq LIMIT :most) page) sized
WHERE before < :bytes ORDER BY seq

-- stream --
-- The write stream of a unit, and whether a row of the unit is in another state than the attempt's: then it was sent in
-- another way.
SELECT min(stream) FILTER (WHERE stream LIKE '%/streams/%') AS stream, bool_or(state <> 'sending') AS mixed
FROM onlyonce_private.outbox WHERE unit = :unit

-- note_stream --
-- The stream of a unit, noted before its first row is sent there.
UPDATE onlyonce_private.outbox SET stream = :stream WHERE unit = :unit AND state = 'sending'
