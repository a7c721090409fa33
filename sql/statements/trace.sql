-- batch_of --
-- The batch that judged a record, and the record's unit, if the log has them.
SELECT b.state, b.run_id, b.committed_at, b.delta_version, b.mode, b.units_removed, u.unique_id,
       u.committed_at AS unit_committed_at
FROM onlyonce.batches b LEFT JOIN onlyonce.commits u ON u.unique_id = :unique_id
WHERE b.incarnation = :incarnation AND b.batch = :batch_id

-- read_by --
-- The first incarnation of an output that has read a version of `events`, its start, and its first batch in the log that read
-- the version. Offsets never move back in an incarnation, so its index finds it.
SELECT first.incarnation, first.batch_id, first.run_id, first.committed_at, l.start_from
FROM onlyonce.incarnations l
CROSS JOIN LATERAL (
    SELECT b.incarnation, b.batch AS batch_id, b.run_id, b.committed_at FROM onlyonce.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND (b.end_offset->>'reservoirVersion')::bigint >= :version
      AND (b.end_offset->>'reservoirVersion')::bigint
          - CASE WHEN coalesce((b.end_offset->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END >= :version
    ORDER BY (b.end_offset->>'reservoirVersion')::bigint, b.batch LIMIT 1) first
WHERE l.instance = :instance AND l.query = :query
ORDER BY l.ordinal LIMIT 1

-- windows_at --
-- What readers see of the windows of an output that contain a time: the newest generation, and the version that its
-- backfill has read. No such window begins earlier than the length of the longest window before the time.
SELECT w.window_start, w.window_end, w.generation, w.state, w.rows, w.incarnation, w.batch, w.committed_at, f.events_version
FROM onlyonce.windows w LEFT JOIN onlyonce.backfills f ON (f.incarnation, f.batch) = (w.incarnation, w.batch)
WHERE w.instance = :instance AND w.output = :output AND w.state <> 'replaced'
  AND w.window_start <= :time AND w.window_end > :time
  AND w.window_start > CAST(:time AS timestamptz) - (SELECT onlyonce.longest_window(:instance, :output))
ORDER BY w.window_start, w.window_end

-- included --
-- Whether a backfill has included each of some late records, in their order. NULL: the log does not have its batch.
SELECT CASE WHEN b.delta_version IS NOT NULL THEN EXISTS (
    SELECT 1 FROM onlyonce.backfills f
    WHERE f.instance = :instance AND f.output = r.output AND f.state = 'committed'
      AND f.window_from <= r.time AND f.window_to > r.time AND f.events_version >= b.delta_version) END AS included
FROM unnest(CAST(:outputs AS text[]), CAST(:times AS timestamptz[]), CAST(:incarnations AS text[]), CAST(:batches AS bigint[]))
    WITH ORDINALITY AS r (output, time, incarnation, batch, at)
LEFT JOIN LATERAL (
    SELECT x.delta_version FROM onlyonce.batches x WHERE (x.incarnation, x.batch) = (r.incarnation, r.batch) OFFSET 0) b ON true
ORDER BY r.at

-- chunks --
-- The chunks of the catalog that can hold an id, by its partition.
SELECT bucket, incarnation, batch, partition, id_count FROM onlyonce.id_chunks
WHERE instance = :instance AND id_count > 0
  AND mod(mod(CAST(:high AS bigint), partitions) + partitions, partitions) = partition
ORDER BY bucket, batch

-- filter --
-- The Bloom filter of one chunk.
SELECT filter FROM onlyonce.id_chunks
WHERE instance = :instance AND bucket = :bucket AND incarnation = :incarnation AND batch = :batch AND partition = :partition

-- ids --
-- The packed ids of one chunk.
SELECT ids FROM onlyonce.id_chunks
WHERE instance = :instance AND bucket = :bucket AND incarnation = :incarnation AND batch = :batch AND partition = :partition
