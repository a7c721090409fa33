-- waits --
-- Whether an output has rows to send.
SELECT EXISTS (SELECT 1 FROM onlyonce_private.outbox
               WHERE instance = :instance AND output = :output AND state IN ('waiting', 'sending')) AS waits

-- noted --
-- What the attempts at units that still wait have noted: write streams, and topics of units' names.
SELECT DISTINCT stream FROM onlyonce_private.outbox
WHERE instance = :instance AND output = :output AND state IN ('waiting', 'sending') AND stream IS NOT NULL

-- recover --
-- Attempts of ended deliverers. It is unknown whether they were sent. They are due again.
UPDATE onlyonce_private.outbox
SET state = CASE WHEN attempts < :most THEN 'waiting' ELSE 'dead' END, due_at = NULL,
    answer = 'the deliverer ended before an answer', answered_at = clock_timestamp(), unanswered = unanswered + 1,
    uncertain = uncertain OR coalesce(first_unanswered_at < clock_timestamp() - make_interval(secs => :remembers), false),
    first_unanswered_at = coalesce(first_unanswered_at, begun_at)
WHERE instance = :instance AND output = :output AND state = 'sending'

-- next_rows --
-- The next rows of an output, as many as fit into this number of bytes, and at least one. Rows of a key keep their order:
-- `may` is false after a row that is not due or was passed by. Thousands of rows come into a table whose statistics are
-- old, so no part of this joins the read rows with themselves. The first row of a key is found by an order that only
-- the index by key has.
WITH near AS MATERIALIZED (
    SELECT * FROM (
        SELECT first.*, sum(octet_length(payload)) OVER (ORDER BY row_no) - octet_length(payload) AS before FROM (
            SELECT row_no, unit, seq, checkpoint_id, key, payload, attempts, unanswered, due_at FROM onlyonce_private.outbox
            WHERE instance = :instance AND output = :output AND state = 'waiting' AND row_no > :after
            ORDER BY row_no LIMIT :most) first) s
    WHERE s.before < :bytes),
blocked AS MATERIALIZED (
    SELECT k.key FROM (SELECT DISTINCT key FROM near WHERE :ordered AND key IS NOT NULL) k CROSS JOIN LATERAL (
        SELECT h.row_no, h.due_at FROM onlyonce_private.outbox h
        WHERE h.instance = :instance AND h.output = :output AND h.key >= k.key AND h.key <= k.key
          AND h.state IN ('waiting', 'sending') AND h.key IS NOT NULL
        ORDER BY h.key, h.row_no LIMIT 1) head
    WHERE head.row_no <= :after OR head.due_at > clock_timestamp()),
judged AS (
    SELECT near.*, coalesce(due_at <= clock_timestamp(), true) AND coalesce(key NOT IN (SELECT key FROM blocked), true) AS may
    FROM near)
SELECT row_no, unit, seq, CAST(checkpoint_id AS text) AS checkpoint_id, key, CASE WHEN may THEN payload ELSE '' END AS payload,
       CAST(CAST(md5(unit || '/' || seq || '@' || checkpoint_id) AS uuid) AS text) AS insert_id, attempts, unanswered, may
FROM judged ORDER BY row_no

-- begin --
-- An attempt, noted before it is made. A repetition after a lost COMMIT finds what it did. The condition on the state
-- can use no index of open rows: each row is found by its number, however many are open.
UPDATE onlyonce_private.outbox o SET state = 'sending', attempts = a.attempts + 1, begun_at = clock_timestamp()
FROM unnest(CAST(:row_nos AS bigint[]), CAST(:attempts AS int[])) AS a (row_no, attempts)
WHERE o.row_no = a.row_no
  AND a.attempts = CASE o.state WHEN 'waiting' THEN o.attempts WHEN 'sending' THEN o.attempts - 1 END
RETURNING o.row_no

-- record --
-- The answers to attempts, in one statement. A row is uncertain if it may be at the target twice: an answer was lost,
-- and the row was sent again after the target may have forgotten its key. Rows of one request are due again at one
-- moment, so that they can be one request again.
UPDATE onlyonce_private.outbox o
SET state = a.state, answer = a.answer, answered_at = clock_timestamp(),
    attempts = o.attempts - CASE WHEN a.held THEN 1 ELSE 0 END,
    unanswered = o.unanswered + CASE WHEN a.lost THEN 1 ELSE 0 END,
    uncertain = o.uncertain OR (a.may_be_there AND coalesce(
        o.first_unanswered_at < clock_timestamp() - make_interval(secs => :remembers), false)),
    first_unanswered_at = coalesce(o.first_unanswered_at, CASE WHEN a.lost THEN o.begun_at END),
    due_at = CASE WHEN a.state = 'waiting' THEN statement_timestamp() + make_interval(secs => a.pause) END
FROM unnest(CAST(:row_nos AS bigint[]), CAST(:attempts AS int[]), CAST(:states AS text[]), CAST(:answers AS text[]),
            CAST(:held AS boolean[]), CAST(:lost AS boolean[]), CAST(:may_be_there AS boolean[]),
            CAST(:pauses AS float8[])) AS a (row_no, attempts, state, answer, held, lost, may_be_there, pause)
WHERE o.row_no = a.row_no AND a.attempts = CASE o.state WHEN 'sending' THEN o.attempts END

-- next_due --
-- In how many seconds the next attempt of a waiting row is due. In the order of its key, a row waits for the earlier
-- rows: it does not count while one of them is due later.
SELECT extract(epoch FROM min(o.due_at) - clock_timestamp())::float8 AS seconds FROM onlyonce_private.outbox o
WHERE o.instance = :instance AND o.output = :output AND o.state = 'waiting' AND o.attempts > 0
  AND NOT (:ordered AND EXISTS (
      SELECT FROM onlyonce_private.outbox h
      WHERE h.instance = :instance AND h.output = :output AND h.key = o.key AND h.key IS NOT NULL
        AND h.row_no < o.row_no AND h.state IN ('waiting', 'sending') AND h.due_at > clock_timestamp()))

-- retry_dead --
-- Dead letters and rejected rows wait again, in their old places.
UPDATE onlyonce_private.outbox SET state = 'waiting', attempts = 0, due_at = NULL
WHERE instance = :instance AND output = ANY (:outputs) AND state IN ('dead', 'invalid')

-- left_over --
-- What an instance has not delivered, by output and state; also what is held for a backfill.
SELECT output, state, count(*) AS rows, min(committed_at) AS since, min(due_at) AS next_attempt
FROM onlyonce_private.outbox
WHERE instance = :instance AND (state IN ('waiting', 'sending') OR state IN ('dead', 'invalid') OR state = 'held')
GROUP BY output, state ORDER BY output, state

-- given_up --
-- The first dead letters and rejected rows of an instance.
SELECT output, unit, seq, key, state, attempts, unanswered, answer, answered_at FROM onlyonce_private.outbox
WHERE instance = :instance AND state IN ('dead', 'invalid') ORDER BY row_no LIMIT :n

-- uncertain --
-- The units of an instance with rows that their target may have twice.
SELECT output, unit, count(*) AS rows FROM onlyonce_private.outbox
WHERE instance = :instance AND uncertain GROUP BY output, unit ORDER BY output, unit

-- origin --
-- The first columns of an incarnation's rows. The incarnation's id is unique over all platforms. Rows of a backfill are held.
SELECT CAST(checkpoint_id AS text) AS checkpoint_id, CASE kind WHEN 'backfill' THEN 'held' ELSE 'waiting' END AS state
FROM onlyonce_private.incarnations WHERE incarnation = :incarnation

-- let_wait --
-- A backfill ends: its rows may be sent from now on.
UPDATE onlyonce_private.outbox SET state = 'waiting', committed_at = clock_timestamp()
WHERE instance = :instance AND state = 'held' AND starts_with(unit, :incarnation || '/' || :batch_id || '/')

-- throw_away --
-- Rows that ended attempts at a backfill have left behind, for all outputs. None of them was ever sent.
DELETE FROM onlyonce_private.outbox
WHERE instance = :instance AND state = 'held' AND starts_with(unit, :incarnation || '/')
