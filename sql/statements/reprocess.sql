-- lock_instance --
-- Reprocessings of an instance begin one after the other, so that each sees what is reprocessed.
SELECT instance FROM onlyonce_private.pipelines WHERE instance = :instance FOR UPDATE

-- committed --
-- The receive batches whose invalid or expired rows may be reprocessed, with the files that could not be read.
SELECT b.incarnation, b.batch_id, b.facts
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed'

-- reprocessed --
-- The sets of rows that were reprocessed, or are about to be, each with the hash of its reason.
SELECT s.incarnation, s.batch_id, CASE WHEN r.state = 'reprocessed' THEN s.reason ELSE encode(sha256(convert_to(s.reason, 'UTF8')), 'hex') END AS reason, s.file
FROM onlyonce_private.reprocessed_sets s JOIN onlyonce_private.reprocessings r USING (reprocessing_no)
WHERE s.instance = :instance AND s.kind = :kind

-- begun --
-- The reprocessing that began and was not put into the inbox, if any.
SELECT reprocessing_no, kind, run_id, events_version, begun_at FROM onlyonce_private.reprocessings
WHERE instance = :instance AND state = 'begun'

-- begin --
INSERT INTO onlyonce_private.reprocessings (instance, kind, run_id, events_version)
VALUES (:instance, :kind, :run_id, :events_version) RETURNING reprocessing_no

-- add_set --
-- The primary key refuses a set that was reprocessed before.
INSERT INTO onlyonce_private.reprocessed_sets (instance, kind, incarnation, batch_id, reason, file, reprocessing_no, rows)
VALUES (:instance, :kind, :incarnation, :batch_id, :reason, :file, :reprocessing_no, :rows)

-- sets_of --
SELECT incarnation, batch_id, reason, file, rows FROM onlyonce_private.reprocessed_sets
WHERE reprocessing_no = :reprocessing_no ORDER BY incarnation, batch_id, reason, file

-- lock_reprocessing --
-- If two attempts put the same reprocessing into the inbox, one waits here for the other.
SELECT state FROM onlyonce_private.reprocessings WHERE reprocessing_no = :reprocessing_no FOR UPDATE

-- end --
UPDATE onlyonce_private.reprocessings
SET state = 'reprocessed', reprocessed_at = clock_timestamp(), path = :path, lines = :lines, left_out = :left_out,
    still_invalid = :still_invalid
WHERE reprocessing_no = :reprocessing_no AND state = 'begun'

-- hash_reasons --
-- A reason may quote a record, whose rows can be erased. Only a begun reprocessing needs its words.
UPDATE onlyonce_private.reprocessed_sets SET reason = encode(sha256(convert_to(reason, 'UTF8')), 'hex') WHERE reprocessing_no = :reprocessing_no
