-- frontier --
-- The frontier after the committed batches and watermark markers of an instance's receive incarnations. The values never move back, so
-- the last rows of each incarnation suffice, however long the log is.
SELECT max(greatest(batch.max_event_time_after, marker.max_event_time)) AS max_event_time, max(marker.ended) AS ended, max(marker.silent_max_event_time) AS silent_max_event_time,
       max(marker.silent_clock) AS silent_clock
FROM onlyonce_private.incarnations l
LEFT JOIN LATERAL (
    SELECT b.max_event_time_after FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.delta_version IS NOT NULL
    ORDER BY b.delta_version DESC LIMIT 1) batch ON true
LEFT JOIN LATERAL (
    SELECT c.max_event_time, c.ended, c.silent_max_event_time, c.silent_clock FROM onlyonce_private.watermark_markers c
    WHERE c.incarnation = l.incarnation AND c.state = 'committed' ORDER BY c.marker_no DESC LIMIT 1) marker ON true
WHERE l.instance = :instance AND l.query = 'receive'

-- find --
-- The batch row that an earlier attempt left, if any.
SELECT incarnation, batch_id, epoch, state, run_id, source_from, source_to, offsets_hash, partitions, max_event_time, ended, silent_max_event_time,
       silent_clock, ingestion_time, bucket, gc_floor, settings, mode, declaration_hash, facts, lookups, max_event_time_after, delta_version, source_progress
FROM onlyonce_private.batches WHERE incarnation = :incarnation AND batch_id = :batch_id

-- begin --
-- Store what a replay must repeat.
INSERT INTO onlyonce_private.batches
    (incarnation, batch_id, epoch, run_id, source_from, source_to, offsets_hash, partitions, max_event_time, ended, silent_max_event_time,
     silent_clock, ingestion_time, bucket, gc_floor, settings, mode, declaration_hash, facts, lookups, source_progress)
VALUES
    (:incarnation, :batch_id, :epoch, :run_id, CAST(:source_from AS jsonb), CAST(:source_to AS jsonb), :offsets_hash,
     :partitions, :max_event_time, :ended, :silent_max_event_time, :silent_clock, :ingestion_time, :bucket, :gc_floor,
     CAST(:settings AS jsonb), :mode, :declaration_hash, CAST(:facts AS jsonb), CAST(:lookups AS jsonb), CAST(:source_progress AS jsonb))

-- forget_begun --
-- A begun batch without committed units may begin again under a changed declaration.
DELETE FROM onlyonce_private.batches WHERE incarnation = :incarnation AND batch_id = :batch_id AND state = 'begun'

-- taken_over --
-- The driver that continues a begun batch.
UPDATE onlyonce_private.batches SET epoch = :epoch, run_id = :run_id
WHERE incarnation = :incarnation AND batch_id = :batch_id AND state = 'begun'

-- end --
-- The outcome of the batch.
UPDATE onlyonce_private.batches
SET state = 'committed', committed_at = clock_timestamp(), read = :read, kept = :kept, invalid = :invalid,
    expired = :expired, duplicate = :duplicate, unknown_fields = :unknown_fields, in_time = :in_time, late = :late,
    max_event_time_after = :max_event_time_after, delta_version = :delta_version, conserved = :conserved, written_again = :written_again, rejected = :rejected,
    source_progress_after = CAST(:source_progress_after AS jsonb)
WHERE incarnation = :incarnation AND batch_id = :batch_id AND state = 'begun'

-- count_windows --
-- (record, window) pairs of each window in an output batch. The rows exist already if the answer to the COMMIT that
-- ended the batch was lost and it is ended again.
INSERT INTO onlyonce_private.window_counts
    (incarnation, batch_id, output, window_start, window_end, in_time, late, late_from, late_to, rejected)
SELECT :incarnation, :batch_id, :output, window_start, window_end, in_time, late, late_from, late_to, coalesce(rejected, 0)
FROM unnest(
    CAST(:window_start AS timestamptz[]), CAST(:window_end AS timestamptz[]), CAST(:in_time AS bigint[]), CAST(:late AS bigint[]),
    CAST(:late_from AS timestamptz[]), CAST(:late_to AS timestamptz[]), CAST(:rejected AS bigint[])
) AS counted (window_start, window_end, in_time, late, late_from, late_to, rejected)
ON CONFLICT ON CONSTRAINT window_counts_once DO NOTHING

-- add_panes --
-- Windows that an output has written. An early pane is replaced by the next.
INSERT INTO onlyonce_private.panes AS known
    (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash, lookups)
SELECT :instance, :output, window_start, window_end, 0, :final, rows, :incarnation, :batch_id, :declaration_hash, CAST(:lookups AS jsonb)
FROM unnest(CAST(:window_start AS timestamptz[]), CAST(:window_end AS timestamptz[]), CAST(:rows AS bigint[]))
    AS written (window_start, window_end, rows)
ON CONFLICT ON CONSTRAINT panes_once DO UPDATE
SET final = excluded.final, rows = excluded.rows, incarnation = excluded.incarnation, batch_id = excluded.batch_id,
    declaration_hash = excluded.declaration_hash, lookups = excluded.lookups, committed_at = clock_timestamp()
WHERE NOT known.final

-- add_to_panes --
-- Rows of windows that are written as they come. They add to the rows of earlier batches, under the declaration that
-- wrote the first. The same batch may be ended again, if the answer to its COMMIT was lost.
INSERT INTO onlyonce_private.panes AS known
    (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash, lookups)
SELECT :instance, :output, window_start, window_end, 0, false, rows, :incarnation, :batch_id, :declaration_hash, CAST(:lookups AS jsonb)
FROM unnest(CAST(:window_start AS timestamptz[]), CAST(:window_end AS timestamptz[]), CAST(:rows AS bigint[]))
    AS written (window_start, window_end, rows)
ON CONFLICT ON CONSTRAINT panes_once DO UPDATE
SET rows = known.rows + excluded.rows, incarnation = excluded.incarnation, batch_id = excluded.batch_id,
    lookups = excluded.lookups, committed_at = clock_timestamp()
WHERE (known.incarnation, known.batch_id) <> (excluded.incarnation, excluded.batch_id)

-- close_panes --
-- Windows that were written before they closed are final now.
UPDATE onlyonce_private.panes SET final = true
WHERE instance = :instance AND output = ANY(:outputs) AND NOT final AND window_end <= :closed_until

-- last_closed --
-- The end of the last closed window that the stream has in the log.
SELECT window_end FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND final AND generation = 0 ORDER BY window_end DESC LIMIT 1

-- close_without_rows --
-- Windows that have records in time, that close with a batch, and for which the function returned no row. The limits of their start
-- keep the search short: an incarnation has windows of one length.
INSERT INTO onlyonce_private.panes
    (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash, lookups)
SELECT DISTINCT :instance, w.output, w.window_start, w.window_end, 0, true, 0, :incarnation, CAST(:batch_id AS bigint), :declaration_hash,
       CAST(:lookups AS jsonb)
FROM onlyonce_private.window_counts w
WHERE w.incarnation = :incarnation AND w.output = :output AND w.in_time > 0
  AND w.window_start >= :first_start AND w.window_start <= :last_start AND w.window_end <= :closed_until
  AND NOT EXISTS (SELECT FROM onlyonce_private.panes p
                  WHERE (p.instance, p.output, p.window_start, p.window_end) = (:instance, w.output, w.window_start, w.window_end))

-- received --
-- The receive batches whose rows an output reads in a range of versions of `events`, and whether their files may have
-- been rewritten. Removed rows are not counted.
SELECT b.incarnation, b.batch_id, b.kept - coalesce(gone.rows, 0)::bigint AS kept, b.delta_version,
       b.delta_version <= p.events_compacted AS compacted
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN LATERAL (
    SELECT sum(r.rows) AS rows FROM onlyonce_private.removed_rows r
    WHERE (r.incarnation, r.batch_id, r.fate) = (b.incarnation, b.batch_id, 'kept')) gone ON true
WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed'
  AND b.delta_version > :after AND b.delta_version <= :upto

-- met_first --
-- The first batch of an incarnation of an output that has met records in time of windows that end in (:after, :upto]. A batch
-- of another incarnation, or sums without batches, come first: they show that not all such batches are known.
SELECT met.source_from, met.told
FROM (SELECT b.source_from, w.incarnation = :incarnation AS told, w.batch_id
      FROM onlyonce_private.window_counts w JOIN onlyonce_private.batches b USING (incarnation, batch_id)
      JOIN onlyonce_private.incarnations l USING (incarnation)
      WHERE l.instance = :instance
        AND w.output = :output AND w.window_start >= :first AND w.window_start < :upto
        AND w.window_end > :after AND w.window_end <= :upto AND w.in_time > 0
      UNION ALL
      SELECT NULL, false, -1
      FROM onlyonce_private.window_sums s JOIN onlyonce_private.incarnations l USING (incarnation)
      WHERE l.instance = :instance
        AND s.output = :output AND s.window_start >= :first AND s.window_start < :upto
        AND s.window_end > :after AND s.window_end <= :upto) met
ORDER BY met.told, met.batch_id LIMIT 1

-- receive_batch --
-- One receive batch by its number. Each incarnation counts from 0, so take the last incarnation that has it.
SELECT b.incarnation, b.batch_id, b.kept, b.delta_version, b.delta_version <= p.events_compacted AS compacted
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
JOIN onlyonce_private.pipelines p USING (instance)
WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed' AND b.batch_id = :number
ORDER BY l.ordinal DESC LIMIT 1

-- last_taken_in --
-- The manifest's number of the last batch that receive has committed, by the end of each incarnation. A continuous run asks this at
-- each poll, however long the log is.
SELECT last.batch_no
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (
    SELECT (b.source_to->>'batch_no')::bigint AS batch_no FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' ORDER BY b.batch_id DESC LIMIT 1
) last
WHERE l.instance = :instance AND l.query = 'receive'
ORDER BY l.ordinal DESC LIMIT 1

-- ended_versions --
-- The versions of `events` in a range whose receive batch or watermark marker is committed.
SELECT b.delta_version FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed'
  AND b.delta_version > :after AND b.delta_version <= :upto
UNION ALL
SELECT c.delta_version FROM onlyonce_private.watermark_markers c JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE l.instance = :instance AND c.state = 'committed' AND c.delta_version > :after AND c.delta_version <= :upto

-- begin_marker --
-- Store the content of a control row.
INSERT INTO onlyonce_private.watermark_markers
    (incarnation, marker_no, epoch, kind, run_id, max_event_time, ended, silent_max_event_time, silent_clock, source_progress_after)
VALUES (:incarnation, :marker_no, :epoch, :kind, :run_id, :max_event_time, :ended, :silent_max_event_time, :silent_clock, CAST(:source_progress_after AS jsonb))

-- source_progress --
-- How far each of several sources has come, by the last batch or watermark marker, whichever is further in `events`.
SELECT told.source_progress_after
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (
    (SELECT b.source_progress_after, b.delta_version FROM onlyonce_private.batches b
     WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.delta_version IS NOT NULL ORDER BY b.delta_version DESC LIMIT 1)
    UNION ALL
    (SELECT c.source_progress_after, c.delta_version FROM onlyonce_private.watermark_markers c
     WHERE c.incarnation = l.incarnation AND c.state = 'committed' ORDER BY c.marker_no DESC LIMIT 1)) told
WHERE l.instance = :instance AND l.query = 'receive' ORDER BY told.delta_version DESC LIMIT 1

-- open_marker --
-- The watermark marker that began and did not commit, if any.
SELECT incarnation, marker_no, kind, max_event_time, ended, silent_max_event_time, silent_clock FROM onlyonce_private.watermark_markers
WHERE incarnation = :incarnation AND state = 'begun'

-- last_marker --
-- The number of the last watermark marker of an incarnation, 0 before the first.
SELECT coalesce(max(marker_no), 0) AS marker_no FROM onlyonce_private.watermark_markers WHERE incarnation = :incarnation

-- end_marker --
-- The control row is in `events`.
UPDATE onlyonce_private.watermark_markers
SET state = 'committed', committed_at = clock_timestamp(), delta_version = :delta_version
WHERE incarnation = :incarnation AND marker_no = :marker_no AND state = 'begun'

-- last_arrival --
-- When the last committed input of an instance arrived.
SELECT max(seen_at) AS seen_at FROM onlyonce_private.last_arrivals WHERE instance = :instance

-- oldest_begun --
-- For how long the oldest batch or backfill has been under way; null when nothing is.
SELECT extract(epoch FROM clock_timestamp() - min(begun_at))::float8 AS seconds
FROM (SELECT begun_at FROM onlyonce_private.batches WHERE state = 'begun'
      UNION ALL SELECT begun_at FROM onlyonce_private.backfills WHERE state = 'begun') under_way
