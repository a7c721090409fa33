-- kept_from --
-- The event time from which `events` has all records; null: from the beginning.
SELECT max(records_before) AS kept_from FROM onlyonce.removals WHERE instance = :instance AND kind = 'retention'

-- held_kept_from --
-- The event time from which `events` has all records. No removal begins until this transaction has ended.
SELECT events_kept_from AS kept_from FROM onlyonce_private.pipelines WHERE instance = :instance FOR SHARE

-- lock_instance --
-- A removal begins alone: no incarnation, backfill or reprocessing begins at the same time.
SELECT events_kept_from AS kept_from FROM onlyonce_private.pipelines WHERE instance = :instance FOR NO KEY UPDATE

-- beyond_horizon --
-- The last version of `events` whose batch is below the gc floor, so that its ids are no longer needed.
SELECT max(last.delta_version) AS version
FROM onlyonce_private.pipelines p JOIN onlyonce_private.incarnations l USING (instance)
CROSS JOIN LATERAL (
    SELECT b.delta_version FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.delta_version IS NOT NULL AND b.bucket < p.gc_floor
    ORDER BY b.delta_version DESC LIMIT 1) last
WHERE p.instance = :instance AND l.query = 'receive'

-- under_way --
-- Backfills, reprocessings and erasures that have begun, and so may read old records. It, or a repetition of the command,
-- must find them.
SELECT 'the backfill ' || incarnation AS what FROM onlyonce_private.backfills WHERE instance = :instance AND state = 'begun'
UNION ALL
SELECT 'reprocessing ' || reprocessing_no FROM onlyonce_private.reprocessings WHERE instance = :instance AND state = 'begun'
UNION ALL
SELECT 'erasure ' || removal_no FROM onlyonce_private.removals WHERE instance = :instance AND state = 'begun' AND kind = 'erasure'
ORDER BY 1

-- erasing --
-- Whether an erasure has begun and not ended.
SELECT EXISTS (SELECT 1 FROM onlyonce_private.removals WHERE instance = :instance AND state = 'begun' AND kind = 'erasure') AS found

-- begun --
-- The removal that an earlier attempt has left behind.
SELECT removal_no AS number, before, upto FROM onlyonce_private.removals
WHERE instance = :instance AND state = 'begun' AND kind = 'retention'

-- raise_kept_from --
UPDATE onlyonce_private.pipelines SET events_kept_from = :before
WHERE instance = :instance AND (events_kept_from IS NULL OR events_kept_from < :before)

-- begin --
INSERT INTO onlyonce_private.removals (instance, removal_no, keep_events, before, upto)
SELECT :instance, coalesce(max(removal_no), 0) + 1, :keep_events, :before, :upto FROM onlyonce_private.removals WHERE instance = :instance

-- forget_counts --
-- An earlier attempt may have counted other files of the same rows.
DELETE FROM onlyonce_private.removed_rows WHERE instance = :instance AND removal_no = :number

-- add_counts --
INSERT INTO onlyonce_private.removed_rows (instance, removal_no, incarnation, batch_id, fate, rows)
SELECT :instance, :number, incarnation, batch_id, fate, rows
FROM unnest(CAST(:incarnation AS text[]), CAST(:batch_id AS bigint[]), CAST(:fate AS text[]), CAST(:rows AS bigint[]))
    AS counted (incarnation, batch_id, fate, rows)

-- note_files --
-- How many files the commit removes. Noted before the commit.
UPDATE onlyonce_private.removals SET files = :files WHERE instance = :instance AND removal_no = :number AND state = 'begun'

-- end --
UPDATE onlyonce_private.removals SET state = 'done', files = coalesce(files, 0), events_version = :version, done_at = clock_timestamp()
WHERE instance = :instance AND removal_no = :number AND state = 'begun'

-- came_between --
-- Whether a removal is under way, or has changed `events` after a version.
SELECT EXISTS (SELECT 1 FROM onlyonce_private.removals
               WHERE instance = :instance AND (state = 'begun' OR events_version > :version)) AS found

-- last_keep --
-- What keep_events was when records were last removed.
SELECT keep_events FROM onlyonce_private.removals WHERE instance = :instance AND kind = 'retention' ORDER BY removal_no DESC LIMIT 1

-- of_batch --
-- How many rows of one batch and fate are removed.
SELECT coalesce(sum(r.rows), 0)::bigint AS rows
FROM onlyonce_private.removed_rows r JOIN onlyonce_private.removals m USING (instance, removal_no)
WHERE r.incarnation = :incarnation AND r.batch_id = :batch_id AND r.fate = :fate AND m.state = 'done'

-- counts --
-- How many rows of each batch and fate are removed, and how many are about to be: the table may still have the latter.
SELECT r.incarnation, r.batch_id AS batch, r.fate, coalesce(sum(r.rows) FILTER (WHERE m.state = 'done'), 0)::bigint AS removed,
       coalesce(sum(r.rows) FILTER (WHERE m.state = 'begun'), 0)::bigint AS about_to_be
FROM onlyonce_private.removed_rows r JOIN onlyonce_private.removals m USING (instance, removal_no)
WHERE r.instance = :instance GROUP BY 1, 2, 3

-- forget --
-- The removals of a dropped pipeline, with their counts.
DELETE FROM onlyonce_private.removals WHERE instance = ANY (:instances)

-- erased --
-- Whether records were erased on request.
SELECT EXISTS (SELECT 1 FROM onlyonce.removals WHERE instance = :instance AND kind = 'erasure') AS found
