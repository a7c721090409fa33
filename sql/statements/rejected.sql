-- forget_batch --
-- The same batch may be ended again, when the answer to its COMMIT was lost.
DELETE FROM onlyonce_private.rejected WHERE incarnation = :incarnation AND batch_id = :batch_id

-- forget_windows --
-- A backfill replaces the rejections of its windows.
DELETE FROM onlyonce_private.rejected
WHERE instance = :instance AND output = :output AND window_start >= :window_from AND window_start < :window_to

-- add --
INSERT INTO onlyonce_private.rejected
    (instance, output, window_start, window_end, event_time, oo_high, oo_low, received_as, received_in, reason, rows, incarnation, batch_id)
SELECT :instance, :output, window_start, window_end, event_time, oo_high, oo_low, received_as, received_in, reason, rows, :incarnation, :batch_id
FROM unnest(
    CAST(:window_start AS timestamptz[]), CAST(:window_end AS timestamptz[]), CAST(:event_time AS timestamptz[]), CAST(:oo_high AS bigint[]),
    CAST(:oo_low AS bigint[]), CAST(:received_as AS text[]), CAST(:received_in AS bigint[]), CAST(:reason AS text[]), CAST(:rows AS bigint[])
) AS met (window_start, window_end, event_time, oo_high, oo_low, received_as, received_in, reason, rows)

-- of_record --
SELECT output, window_start, window_end, reason FROM onlyonce.rejected
WHERE instance = :instance AND oo_high = :high AND oo_low = :low

-- forget_ids --
DELETE FROM onlyonce_private.rejected r
USING unnest(CAST(:highs AS bigint[]), CAST(:lows AS bigint[])) AS gone (high, low)
WHERE r.instance = :instance AND r.oo_high = gone.high AND r.oo_low = gone.low

-- forget_before --
-- The records that a removal (keep_events) has removed. An erasure has no such time.
DELETE FROM onlyonce_private.rejected r USING onlyonce_private.removals m
WHERE m.instance = :instance AND m.removal_no = :number AND r.instance = m.instance AND r.event_time < m.before

-- count --
SELECT coalesce(sum(rows), 0)::bigint AS rows FROM onlyonce.rejected
WHERE instance = :instance AND (CAST(:output AS text) IS NULL OR output = :output)

-- rows --
-- What a pipeline's outputs have rejected, newest first.
SELECT output, reason, window_start, window_end, event_time, record_id, received_as, received_in, incarnation, batch, rows
FROM onlyonce.rejected
WHERE instance = :instance AND (CAST(:output AS text) IS NULL OR output = :output)
ORDER BY event_time DESC, output, record_id, window_start LIMIT :n
