-- lock_instance --
-- Releases of an instance begin one after the other, so that each sees what is released.
SELECT instance FROM onlyonce_private.pipelines WHERE instance = :instance FOR UPDATE

-- committed --
-- The receive batches whose invalid or remnant rows may be released, with the files that could not be read.
SELECT b.lineage, b.batch_id, b.facts
FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage)
WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed'

-- released --
-- The sets of rows that were released, or are about to be, each with the hash of its reason.
SELECT s.lineage, s.batch_id, CASE WHEN r.state = 'released' THEN s.reason ELSE encode(sha256(convert_to(s.reason, 'UTF8')), 'hex') END AS reason, s.file
FROM onlyonce_private.released_sets s JOIN onlyonce_private.releases r USING (release_no)
WHERE s.instance = :instance AND s.kind = :kind

-- begun --
-- The release that began and was not put into the inbox, if any.
SELECT release_no, kind, run_id, events_version, begun_at FROM onlyonce_private.releases
WHERE instance = :instance AND state = 'begun'

-- begin --
INSERT INTO onlyonce_private.releases (instance, kind, run_id, events_version)
VALUES (:instance, :kind, :run_id, :events_version) RETURNING release_no

-- add_set --
-- The primary key refuses a set that was released before.
INSERT INTO onlyonce_private.released_sets (instance, kind, lineage, batch_id, reason, file, release_no, rows)
VALUES (:instance, :kind, :lineage, :batch_id, :reason, :file, :release_no, :rows)

-- sets_of --
SELECT lineage, batch_id, reason, file, rows FROM onlyonce_private.released_sets
WHERE release_no = :release_no ORDER BY lineage, batch_id, reason, file

-- lock_release --
-- If two attempts put the same release into the inbox, one waits here for the other.
SELECT state FROM onlyonce_private.releases WHERE release_no = :release_no FOR UPDATE

-- end --
UPDATE onlyonce_private.releases
SET state = 'released', released_at = clock_timestamp(), path = :path, lines = :lines, left_out = :left_out,
    still_invalid = :still_invalid
WHERE release_no = :release_no AND state = 'begun'

-- hash_reasons --
-- A reason may quote a record, whose rows can be erased. Only a begun release needs its words.
UPDATE onlyonce_private.released_sets SET reason = encode(sha256(convert_to(reason, 'UTF8')), 'hex') WHERE release_no = :release_no
