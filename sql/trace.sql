-- batch_of --
-- The batch that judged a record, and the unit that it is in, as far as the log has them.
SELECT b.state, b.run_id, b.committed_at, b.delta_version, b.mode, b.units_removed, u.unique_id,
       u.committed_at AS unit_committed_at
FROM onlyonce_private.batches b LEFT JOIN onlyonce_private.units u ON u.unique_id = :unique_id
WHERE b.lineage = :lineage AND b.batch_id = :batch_id

-- read_by --
-- The first life of an output that has read a version of `events`, with what it began with, and the first of its batches in the log that has. Offsets
-- never move back in a life, so its index tells it.
SELECT first.lineage, first.batch_id, first.run_id, first.committed_at, l.start_from
FROM onlyonce_private.lineages l
CROSS JOIN LATERAL (
    SELECT b.lineage, b.batch_id, b.run_id, b.committed_at FROM onlyonce_private.batches b
    WHERE b.lineage = l.lineage AND b.state = 'committed' AND (b.source_to->>'reservoirVersion')::bigint >= :version
      AND (b.source_to->>'reservoirVersion')::bigint
          - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END >= :version
    ORDER BY (b.source_to->>'reservoirVersion')::bigint, b.batch_id LIMIT 1) first
WHERE l.instance = :instance AND l.query = :query AND l.kind = 'stream'
ORDER BY l.life LIMIT 1

-- windows_at --
-- What readers see of the windows of an output that hold a time: the newest generation, and what a backfill of it has read. None of them
-- begins earlier than the longest window that there is.
WITH longest AS (
    SELECT greatest(
        (SELECT n.window_end - n.window_start FROM onlyonce_private.panes n
         WHERE n.instance = :instance AND n.output = :output ORDER BY n.window_end - n.window_start DESC LIMIT 1),
        (SELECT c.window_end - c.window_start FROM onlyonce_private.window_counts c
         WHERE c.output = :output AND c.window_end - c.window_start IS NOT NULL ORDER BY c.window_end - c.window_start DESC LIMIT 1),
        (SELECT c.window_end - c.window_start FROM onlyonce_private.window_sums c
         WHERE c.output = :output AND c.window_end - c.window_start IS NOT NULL ORDER BY c.window_end - c.window_start DESC LIMIT 1)
    ) AS length)
SELECT w.window_start, w.window_end, w.generation, w.state, w.rows, w.lineage, w.batch, w.committed_at, f.events_version
FROM onlyonce.windows w LEFT JOIN onlyonce.backfills f ON (f.lineage, f.batch) = (w.lineage, w.batch)
WHERE w.instance = :instance AND w.output = :output AND w.state <> 'replaced'
  AND w.window_start <= :time AND w.window_end > :time
  AND w.window_start > CAST(:time AS timestamptz) - (SELECT length FROM longest)
ORDER BY w.window_start, w.window_end

-- chunks --
-- The chunks of the catalog that can hold an id, by its partition.
SELECT bucket, lineage, batch_id, partition, id_count FROM onlyonce_private.chunk_list
WHERE instance = :instance AND id_count > 0
  AND mod(mod(CAST(:high AS bigint), partitions) + partitions, partitions) = partition
ORDER BY bucket, batch_id
