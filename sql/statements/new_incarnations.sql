-- begun --
-- The batch of an incarnation that began and did not commit.
SELECT b.batch_id, b.partitions, b.source_to, b.max_event_time, b.delta_version
FROM onlyonce_private.batches b WHERE b.incarnation = :incarnation AND b.state = 'begun'

-- withdraw_units --
-- Units of a batch whose rows never got into `events`. With their chunks they are deleted, or its records would count
-- as duplicates.
DELETE FROM onlyonce_private.units WHERE incarnation = :incarnation AND batch_id = :batch_id

-- withdraw_chunks --
DELETE FROM onlyonce_private.catalog_chunks WHERE instance = :instance AND incarnation = :incarnation AND batch_id = :batch_id

-- withdraw_files --
-- Files without a pane: no reader knows them, and the sweep removes the temporary files.
DELETE FROM onlyonce_private.files WHERE incarnation = :incarnation AND batch_id = :batch_id AND pane IS NULL

-- declared --
-- The declarations of a batch's outputs when it began.
SELECT d.parts FROM onlyonce_private.batches b
JOIN onlyonce_private.declarations d
    ON d.instance = :instance AND d.query = :query AND d.hash = b.declaration_hash
WHERE b.incarnation = :incarnation AND b.batch_id = :batch_id

-- last_offset --
-- Where the last committed batch of an incarnation ended, and where its incarnation began. Also whether the batch that read a row
-- has written it, and whether the incarnation keeps sums without windows.
SELECT b.source_from, b.source_to, l.start_from, coalesce((b.facts->>'stateless')::boolean, false) AS stateless,
       NOT coalesce((b.facts->>'stateless')::boolean, true) AND NOT EXISTS (
           SELECT 1 FROM onlyonce_private.window_counts w WHERE w.incarnation = l.incarnation AND w.window_start IS NOT NULL)
           AND NOT EXISTS (
           SELECT 1 FROM onlyonce_private.window_sums c WHERE c.incarnation = l.incarnation AND c.window_start IS NOT NULL) AS totals
FROM onlyonce_private.incarnations l
LEFT JOIN LATERAL (
    SELECT x.source_from, x.source_to, x.facts FROM onlyonce_private.batches x
    WHERE x.incarnation = l.incarnation AND x.state = 'committed' ORDER BY x.batch_id DESC LIMIT 1) b ON true
WHERE l.incarnation = :incarnation

-- rows_again --
-- How many records `events` has in a range of versions. Removed records are not counted.
SELECT coalesce(sum(b.kept - coalesce(gone.rows, 0)), 0)::bigint AS rows
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
LEFT JOIN LATERAL (
    SELECT sum(r.rows) AS rows FROM onlyonce_private.removed_rows r
    WHERE (r.incarnation, r.batch_id, r.fate) = (b.incarnation, b.batch_id, 'kept')) gone ON true
WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed'
  AND b.delta_version >= :first AND b.delta_version <= :upto

-- oldest_open --
-- Where the first output batch began to read that met rows in time of a window that is not yet final. Batches whose
-- windows are all noted as final by a gc run are skipped: a window stays final, and a committed batch meets no other.
-- OFFSET 0 keeps the look-up of each window separate: the first open one ends the search.
SELECT b.source_from, l.incarnation, first.batch_id, l.start_from
FROM onlyonce_private.incarnations l
LEFT JOIN onlyonce_private.sums s USING (incarnation)
CROSS JOIN LATERAL (
    SELECT w.batch_id FROM onlyonce_private.window_counts w
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT 1 FROM onlyonce_private.panes p
                       WHERE p.instance = :instance AND p.output = :output AND p.final
                         AND (p.window_start, p.window_end) = (w.window_start, w.window_end)) AS final OFFSET 0) closed
    WHERE w.incarnation = l.incarnation AND w.batch_id > coalesce(s.final_upto, -1) AND w.output = :output
      AND w.in_time > 0 AND w.window_start IS NOT NULL AND NOT closed.final
    ORDER BY w.batch_id LIMIT 1) first
JOIN onlyonce_private.batches b ON (b.incarnation, b.batch_id) = (l.incarnation, first.batch_id)
WHERE l.instance = :instance AND l.query = :output AND l.kind = 'stream'
ORDER BY l.ordinal LIMIT 1

-- read_again --
-- The position from which the last committed batch of an incarnation has read: Spark may repeat that batch, and no earlier one.
SELECT b.source_from FROM onlyonce_private.batches b
WHERE b.incarnation = :incarnation AND b.state = 'committed' ORDER BY b.batch_id DESC LIMIT 1

-- final_windows --
-- The windows that are final in the log and end after a time, among the windows that a new incarnation may compute again.
SELECT p.window_start, p.window_end FROM onlyonce_private.panes p
WHERE p.instance = :instance AND p.output = :output AND p.final AND p.incarnation <> :incarnation
  AND (CAST(:after AS timestamptz) IS NULL OR p.window_end > CAST(:after AS timestamptz))

-- all_live --
-- The incarnations that can get a new incarnation.
SELECT instance, query FROM onlyonce_private.incarnations WHERE state <> 'closed' AND kind = 'stream' ORDER BY 1, 2
