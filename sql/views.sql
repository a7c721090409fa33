-- run_fates --
-- What became of the records that a run read.
SELECT query, count(*) AS batches, sum(records_in)::bigint AS "in", sum(kept)::bigint AS kept, sum(late)::bigint AS late,
       sum(duplicate)::bigint AS duplicate, sum(invalid)::bigint AS invalid, sum(remnant)::bigint AS remnant,
       sum(unknown_fields)::bigint AS unknown_fields, sum(written_again)::bigint AS written_again
FROM onlyonce.batches WHERE run_id = :run_id AND state = 'committed'
GROUP BY query ORDER BY query = 'receive' DESC, query

-- run_commits --
-- The units that a run committed, by sink.
SELECT sink, kind, count(*) AS units, sum(rows)::bigint AS rows, max(epoch) AS epoch, max(committed_at) AS last
FROM onlyonce.commits WHERE run_id = :run_id GROUP BY sink, kind ORDER BY min(committed_at)

-- status --
-- One row for each pipeline and bounded run.
WITH receive AS (
    SELECT DISTINCT ON (instance) instance, lineage, state, epoch FROM onlyonce.lineages
    WHERE query = 'receive' ORDER BY instance, life DESC),
totals AS (
    SELECT instance, max(committed_at) AS last_commit, max(max_event_time_after) AS max_event_time,
           count(*) FILTER (WHERE query = 'receive' AND state = 'committed') AS batches,
           count(*) FILTER (WHERE state = 'begun') AS begun,
           sum(records_in)::bigint AS "in", sum(kept)::bigint AS kept, coalesce(sum(late), 0)::bigint AS late
    FROM onlyonce.batches GROUP BY instance),
last AS (
    SELECT lineage, max(batch) FILTER (WHERE state = 'committed') AS batch FROM onlyonce.batches GROUP BY lineage),
kept AS (
    SELECT c.instance, bool_and(coalesce(c.conserved, false)) AS conserved FROM onlyonce.conservation c
    JOIN onlyonce.batches b ON (b.lineage, b.batch) = (c.lineage, c.batch)
    WHERE b.state = 'committed' GROUP BY c.instance)
SELECT receive.instance AS pipeline,
       CASE WHEN receive.state = 'live' THEN coalesce(long.state, 'live') ELSE receive.state END AS state, receive.epoch, last.batch AS last_batch, totals.batches, totals.begun,
       totals."in", totals.kept, totals.late, totals.max_event_time, kept.conserved, totals.last_commit
FROM receive LEFT JOIN totals USING (instance) LEFT JOIN last USING (lineage) LEFT JOIN kept USING (instance)
LEFT JOIN onlyonce.long_runs long ON long.instance = receive.instance AND long.state IN ('running', 'stopping', 'lost')
ORDER BY receive.instance

-- commits_of --
-- The last lines of the commit log of a pipeline or bounded run.
SELECT committed_at, unique_id, kind, rows, epoch, left(content_hash, 8) AS content, batch_state, run_id
FROM onlyonce.commits WHERE instance = :instance ORDER BY committed_at DESC, unique_id DESC LIMIT :n

-- batches_of --
-- The last batches of a pipeline or bounded run.
SELECT lineage, batch, state, epoch, records_in AS "in", kept, duplicate, invalid, remnant, in_time, late, committed_at
FROM onlyonce.batches WHERE instance = :instance ORDER BY begun_at DESC, lineage DESC, batch DESC LIMIT :n

-- files_of --
-- The last files of a pipeline or bounded run, those of the newest window first.
SELECT output, window_start, generation, pane, shard, shards, state, rows, bytes, place, name, finalized_at
FROM onlyonce.output_files WHERE instance = :instance
ORDER BY window_start DESC NULLS FIRST, output, pane DESC NULLS FIRST, shard LIMIT :n

-- files_by_state --
-- How many files of an output are final, and how many are not.
SELECT state, count(*) AS files, sum(rows)::bigint AS rows FROM onlyonce.output_files
WHERE instance = :instance AND output = :output GROUP BY state ORDER BY state

-- largest_files --
-- The final files of an output with the most rows.
SELECT name, rows, bytes, left(checksum, 12) AS sha256, finalized_at FROM onlyonce.output_files
WHERE instance = :instance AND output = :output AND state = 'final' ORDER BY rows DESC, name LIMIT :n

-- files_waiting --
-- Files of committed batches without their final names, by output, and for how long.
SELECT instance, output, count(*) AS files, min(recorded_at) AS since,
       extract(epoch FROM clock_timestamp() - min(recorded_at))::float AS seconds
FROM onlyonce.output_files WHERE state = 'waiting' GROUP BY instance, output ORDER BY instance, output

-- lineages --
-- Each life of each query.
SELECT lineage, state, epoch, batches, last_batch, last_committed_at, created_at, started_at, checkpoint_id
FROM onlyonce.lineages ORDER BY instance, query = 'receive' DESC, query, life

-- begun_batches --
-- Batches that began and did not commit, oldest first.
SELECT b.instance, b.lineage, b.batch, b.epoch, b.run_id, b.begun_at
FROM onlyonce.batches b WHERE b.state = 'begun'
UNION ALL
SELECT f.instance, f.lineage, f.batch, f.epoch, f.run_id, f.begun_at FROM onlyonce.backfills f WHERE f.state = 'begun'
ORDER BY begun_at

-- fates --
-- What became of the records of the committed batches, by pipeline (or bounded run) and stage.
SELECT c.instance AS pipeline, c.query AS stage, count(*) AS batches, sum(c.records_in)::bigint AS "in", sum(c.kept)::bigint AS kept,
       sum(c.duplicate)::bigint AS duplicate, sum(c.invalid)::bigint AS invalid, sum(c.remnant)::bigint AS remnant,
       sum(c.in_time)::bigint AS in_time, sum(c.late)::bigint AS late,
       bool_and(coalesce(c.conserved, false)) AS conserved
FROM onlyonce.conservation c JOIN onlyonce.batches b ON (b.lineage, b.batch) = (c.lineage, c.batch)
WHERE b.state = 'committed'
GROUP BY c.instance, c.query ORDER BY c.instance, c.query = 'receive' DESC, c.query

-- not_conserved --
-- Committed batches whose records do not add up.
SELECT c.instance, c.query AS stage, c.lineage, c.batch, c.records_in AS "in", c.kept, c.duplicate, c.invalid, c.remnant, c.in_time, c.late, b.run_id
FROM onlyonce.conservation c JOIN onlyonce.batches b ON (b.lineage, b.batch) = (c.lineage, c.batch)
WHERE b.state = 'committed' AND c.conserved IS NOT TRUE ORDER BY c.lineage, c.batch

-- signs_of_life --
-- How long ago, in seconds, anything of a pipeline or bounded run started, began or was committed; what it received.
SELECT l.instance, l.pipeline,
       extract(epoch FROM clock_timestamp() - max(greatest(l.created_at, l.started_at, b.begun_at, b.committed_at)))::float
           AS quiet_seconds,
       bool_and(l.state = 'closed') AS closed,
       count(*) FILTER (WHERE l.query = 'receive' AND b.state = 'committed') AS received,
       array_agg(DISTINCT l.query) FILTER (WHERE l.query <> 'receive') AS outputs
FROM onlyonce.lineages l LEFT JOIN onlyonce.batches b USING (lineage) GROUP BY l.instance, l.pipeline ORDER BY l.instance

-- outputs_and_receive --
-- How far each output has read `events` in its last life, against the receive batches that are committed. A Delta
-- offset names the next version with a negative index, or the last file taken of a version.
WITH life AS (
    SELECT DISTINCT ON (instance, query) instance, pipeline, query, lineage, life, state FROM onlyonce.lineages
    WHERE query <> 'receive' ORDER BY instance, query, life DESC),
done AS (
    SELECT lineage, sum(in_time + late)::bigint AS pairs, count(DISTINCT declaration_hash) AS declarations,
           max((end_offset->>'reservoirVersion')::bigint
               - CASE WHEN coalesce((end_offset->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END) AS read_upto
    FROM onlyonce.batches WHERE query <> 'receive' AND state = 'committed' GROUP BY lineage)
SELECT life.instance, life.pipeline, life.query AS output, life.lineage, life.life, life.state, done.read_upto,
       (SELECT l.start_from ? 'kept_from' FROM onlyonce_private.lineages l WHERE l.lineage = life.lineage) AS from_kept,
       coalesce(done.pairs, 0) AS pairs, coalesce(done.declarations, 0) AS declarations,
       count(r.batch) FILTER (WHERE r.delta_version > coalesce(done.read_upto, -1)) AS batches_behind,
       coalesce(sum(r.kept) FILTER (WHERE r.delta_version > coalesce(done.read_upto, -1)), 0)::bigint AS records_behind,
       coalesce(sum(r.kept) FILTER (WHERE r.delta_version <= done.read_upto), 0)::bigint AS kept_read
FROM life LEFT JOIN done USING (lineage)
LEFT JOIN onlyonce.batches r ON r.instance = life.instance AND r.query = 'receive' AND r.state = 'committed'
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 ORDER BY life.instance, life.query

-- erasure --
-- The receipt of an erasure.
SELECT removal_no AS erasure, columns, asked_by, kept, invalid, remnant, lines, windows, done_at FROM onlyonce.removals
WHERE instance = :instance AND removal_no = :number

-- run_backfills --
-- What a run has recomputed.
SELECT output, window_from, window_to, state, windows, rows, in_time, late, events_version AS version
FROM onlyonce.backfills WHERE run_id = :run_id ORDER BY begun_at, output

-- progress --
-- What some pipelines have committed so far, by query.
SELECT instance, query, count(*) AS batches, coalesce(sum(records_in), 0)::bigint AS "in"
FROM onlyonce.batches WHERE state = 'committed' AND instance = ANY(:instances) GROUP BY 1, 2
ORDER BY 1, query = 'receive' DESC, 2

-- lag --
-- How far each stage is behind, in seconds, the slowest first.
SELECT instance AS pipeline, stage, round(extract(epoch FROM system_lag)::numeric, 1) AS system_lag_seconds, slowest,
       batches_waiting, records_waiting, batches_begun, last_batch, last_committed_at, max_event_time,
       round(extract(epoch FROM freshness)::numeric, 1) AS freshness_seconds, lineage,
       (SELECT r.state FROM onlyonce.long_runs r WHERE r.instance = lag.instance) AS long_run
FROM onlyonce.lag ORDER BY instance, stage = 'receive' DESC, stage

-- run_outputs --
-- What a run has committed to each output's sink, by the log: its last batch with rows, and all rows. An at-least-once batch
-- has no units for Delta, so its rows are not known.
SELECT instance, sink AS output, count(DISTINCT (lineage, batch)) AS batches, sum(rows)::bigint AS rows,
       (array_agg(lineage || '/' || batch ORDER BY committed_at DESC))[1] AS batch
FROM onlyonce.commits
WHERE run_id = :run_id AND pipeline = :pipeline AND query <> 'receive' AND batch_state = 'committed' AND rows > 0
GROUP BY 1, 2
UNION ALL
SELECT b.instance, b.query, count(*), NULL, (array_agg(b.lineage || '/' || b.batch ORDER BY b.committed_at DESC))[1]
FROM onlyonce.batches b
WHERE b.run_id = :run_id AND b.pipeline = :pipeline AND b.query <> 'receive' AND b.state = 'committed' AND b.mode = 'at_least_once'
  AND NOT EXISTS (SELECT 1 FROM onlyonce.commits c WHERE (c.lineage, c.batch) = (b.lineage, b.batch))
GROUP BY 1, 2 ORDER BY 1, 2

-- received --
-- What the log says that each receive batch has put into `events`.
SELECT lineage, batch, state, kept, invalid, remnant FROM onlyonce.batches
WHERE instance = :instance AND query = 'receive' ORDER BY lineage, batch

-- written --
-- The windows of an output that a reader of its table must see, with their rows.
SELECT window_start, window_end, generation, rows FROM onlyonce.windows
WHERE instance = :instance AND output = :output AND batch IS NOT NULL AND state <> 'replaced'

-- written_in_all --
-- The rows that an output without windows has appended, as long as the log has all of its units.
SELECT coalesce(sum(c.rows), 0)::bigint AS rows FROM onlyonce.commits c
WHERE c.instance = :instance AND c.sink = :output AND c.batch_state = 'committed'
  AND NOT EXISTS (SELECT 1 FROM onlyonce.batches b WHERE b.instance = :instance AND b.query = :query AND b.units_removed IS NOT NULL)

-- comparable --
-- Whether the table of an output can be compared with the log now: no batch and no backfill of it is under way, nothing was
-- written twice, and it has always been written to one place; and whether its rows are written by the batch that reads them.
SELECT (SELECT count(*) FROM onlyonce.batches b WHERE (b.instance, b.query) = (:instance, :query) AND b.state = 'begun')
         + (SELECT count(*) FROM onlyonce.backfills f WHERE (f.instance, f.output) = (:instance, :query) AND f.state = 'begun') AS begun,
       (SELECT coalesce(sum(b.written_again), 0)::bigint FROM onlyonce.batches b
        WHERE (b.instance, b.query) = (:instance, :query)) AS written_again,
       (SELECT count(DISTINCT d.parts->'outputs'->CAST(:output AS text)->>'target') FROM onlyonce.declarations d
        WHERE (d.instance, d.query) = (:instance, :query)) AS targets,
       (SELECT coalesce(bool_or((b.facts->>'stateless')::boolean), false) FROM onlyonce.batches b
        WHERE (b.instance, b.query) = (:instance, :query) AND b.state = 'committed') AS as_they_come

-- sample --
-- The last committed exactly-once batches of receive whose ids are in the catalog.
SELECT b.lineage, b.batch, b.kept, floor(extract(epoch FROM b.system_time) / 600)::bigint AS bucket
FROM onlyonce.batches b
WHERE b.instance = :instance AND b.query = 'receive' AND b.state = 'committed' AND b.mode = 'exactly_once' AND b.kept > 0
  AND EXISTS (SELECT 1 FROM onlyonce.record_ids c WHERE c.instance = b.instance
              AND c.bucket_start = to_timestamp(floor(extract(epoch FROM b.system_time) / 600) * 600))
ORDER BY b.committed_at DESC LIMIT :n
