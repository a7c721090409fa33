-- run_fates --
-- What became of the records that a run read.
SELECT query, count(*) AS batches, sum(records_in)::bigint AS "in", sum(kept)::bigint AS kept, sum(late)::bigint AS late, sum(rejected)::bigint AS rejected,
       sum(duplicate)::bigint AS duplicate, sum(invalid)::bigint AS invalid, sum(expired)::bigint AS expired,
       sum(unknown_fields)::bigint AS unknown_fields, sum(written_again)::bigint AS written_again
FROM onlyonce.batches WHERE run_id = :run_id AND state = 'committed'
GROUP BY query ORDER BY query = 'receive' DESC, query

-- run_batches --
-- The batches of receive that a run committed.
SELECT incarnation, batch FROM onlyonce.batches WHERE run_id = :run_id AND state = 'committed' AND query = 'receive'

-- run_commits --
-- The units that a run committed, by sink.
SELECT c.sink, c.kind, count(*) AS units, sum(c.rows)::bigint AS rows, max(c.epoch) AS epoch, max(c.committed_at) AS last
FROM (SELECT incarnation, batch FROM onlyonce.batches WHERE run_id = :run_id
      UNION ALL SELECT incarnation, batch FROM onlyonce.backfills WHERE run_id = :run_id) mine
CROSS JOIN LATERAL (SELECT * FROM onlyonce.commits x WHERE x.incarnation = mine.incarnation AND x.batch = mine.batch OFFSET 0) c
GROUP BY c.sink, c.kind ORDER BY min(c.committed_at)

-- status --
-- One row for each pipeline and bounded run.
WITH receive AS (
    SELECT DISTINCT ON (instance) instance, incarnation, state, epoch, last_batch FROM onlyonce.incarnations
    WHERE query = 'receive' ORDER BY instance, ordinal DESC),
sums AS (
    SELECT instance, max(last_committed_at) AS last_commit, max(max_event_time) AS max_event_time, sum(begun)::bigint AS begun,
           sum(batches) FILTER (WHERE query = 'receive')::bigint AS batches, sum(records_in)::bigint AS "in", sum(kept)::bigint AS kept,
           coalesce(sum(invalid), 0)::bigint AS invalid, coalesce(sum(late), 0)::bigint AS late, sum(rejected)::bigint AS rejected,
           bool_and(conserved) FILTER (WHERE batches > 0) AS conserved
    FROM onlyonce.totals GROUP BY instance)
SELECT receive.instance AS pipeline,
       CASE WHEN receive.state = 'live' THEN coalesce(long.state, 'live') ELSE receive.state END AS state, receive.epoch, receive.last_batch, sums.batches, sums.begun,
       sums."in", sums.kept, sums.invalid, sums.late, sums.rejected, sums.max_event_time, sums.conserved, sums.last_commit
FROM receive LEFT JOIN sums USING (instance)
LEFT JOIN onlyonce.long_runs long ON long.instance = receive.instance AND long.state IN ('running', 'stopping', 'lost')
ORDER BY receive.instance

-- commits_of --
-- The last lines of the commit log of a pipeline or bounded run: of the last lines of each incarnation and backfill, the
-- newest.
SELECT c.committed_at, c.unique_id, c.kind, c.rows, c.epoch, left(c.content_hash, 8) AS content, c.batch_state, c.run_id
FROM (SELECT incarnation FROM onlyonce.incarnations WHERE instance = :instance
      UNION SELECT incarnation FROM onlyonce.backfills WHERE instance = :instance) l
CROSS JOIN LATERAL (
    SELECT * FROM onlyonce.commits x WHERE x.incarnation = l.incarnation ORDER BY x.batch DESC, x.committed_at DESC, x.unique_id DESC LIMIT :n) c
ORDER BY c.committed_at DESC, c.unique_id DESC LIMIT :n

-- batches_of --
-- The last batches of a pipeline or bounded run: the last of each incarnation, and of these the last.
SELECT b.incarnation, b.batch, b.state, b.epoch, b.records_in AS "in", b.kept, b.duplicate, b.invalid, b.expired, b.in_time, b.late,
       b.rejected, b.committed_at
FROM onlyonce.incarnations l
CROSS JOIN LATERAL (SELECT * FROM onlyonce.batches x WHERE x.incarnation = l.incarnation ORDER BY x.batch DESC LIMIT :n) b
WHERE l.instance = :instance ORDER BY b.begun_at DESC, b.incarnation DESC, b.batch DESC LIMIT :n

-- files_of --
-- The last files of a pipeline or bounded run, from the newest window on.
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
FROM onlyonce.output_files WHERE pane IS NOT NULL AND finalized_at IS NULL AND state = 'waiting' GROUP BY instance, output ORDER BY instance, output

-- incarnations --
-- Each incarnation of each query.
SELECT incarnation, state, epoch, batches, last_batch, last_committed_at, created_at, started_at, checkpoint_id
FROM onlyonce.incarnations ORDER BY instance, query = 'receive' DESC, query, ordinal

-- begun_batches --
-- Batches that began and did not commit, oldest first.
SELECT b.instance, b.incarnation, b.batch, b.epoch, b.run_id, b.begun_at
FROM onlyonce.batches b WHERE b.state = 'begun'
UNION ALL
SELECT f.instance, f.incarnation, f.batch, f.epoch, f.run_id, f.begun_at FROM onlyonce.backfills f WHERE f.state = 'begun'
ORDER BY begun_at

-- fates --
-- What became of the records of the committed batches, by pipeline (or bounded run) and stage.
SELECT instance AS pipeline, query AS stage, sum(batches)::bigint AS batches, sum(records_in)::bigint AS "in", sum(kept)::bigint AS kept,
       sum(duplicate)::bigint AS duplicate, sum(invalid)::bigint AS invalid, sum(expired)::bigint AS expired,
       sum(in_time)::bigint AS in_time, sum(late)::bigint AS late, sum(rejected)::bigint AS rejected, bool_and(conserved) AS conserved
FROM onlyonce.totals WHERE batches > 0
GROUP BY instance, query ORDER BY instance, query = 'receive' DESC, query

-- not_conserved --
-- Committed batches whose records do not add up. Batches that were added to the sums did.
SELECT l.instance, l.query AS stage, c.incarnation, c.batch, c.records_in AS "in", c.kept, c.duplicate, c.invalid, c.expired, c.in_time, c.late, c.rejected,
       (SELECT b.run_id FROM onlyonce.batches b WHERE (b.incarnation, b.batch) = (c.incarnation, c.batch)) AS run_id
FROM onlyonce.totals l
CROSS JOIN LATERAL (
    SELECT * FROM onlyonce.conservation x
    WHERE x.incarnation = l.incarnation AND x.batch > l.folded_upto AND x.batch <= l.last_batch OFFSET 0) c
WHERE c.conserved IS NOT TRUE ORDER BY c.incarnation, c.batch

-- heartbeats --
-- How many seconds ago a pipeline or bounded run last started, began or committed anything; what it received.
SELECT l.instance, l.pipeline,
       extract(epoch FROM clock_timestamp() - max(greatest(l.created_at, l.started_at, begun.begun_at, l.last_committed_at)))::float
           AS quiet_seconds,
       bool_and(l.state = 'closed') AS closed,
       coalesce(sum(l.batches) FILTER (WHERE l.query = 'receive'), 0)::bigint AS received,
       array_agg(DISTINCT l.query) FILTER (WHERE l.query <> 'receive') AS outputs
FROM onlyonce.incarnations l
LEFT JOIN LATERAL (
    SELECT b.begun_at FROM onlyonce.batches b WHERE b.incarnation = l.incarnation ORDER BY b.batch DESC LIMIT 1) begun ON true
GROUP BY l.instance, l.pipeline ORDER BY l.instance

-- outputs_and_receive --
-- How far each output has read `events` in its last incarnation, against the receive batches that are committed. The records
-- that it has read are the kept records less the records still to read. Few remain to read, and the kept ones are in
-- the sums.
WITH newest AS (
    SELECT DISTINCT ON (instance, query) instance, pipeline, query, incarnation, ordinal, state, from_kept FROM onlyonce.incarnations
    WHERE query <> 'receive' ORDER BY instance, query, ordinal DESC),
received AS (
    SELECT instance, sum(kept)::bigint AS kept FROM onlyonce.totals WHERE query = 'receive' GROUP BY instance)
SELECT newest.instance, newest.pipeline, newest.query AS output, newest.incarnation, newest.ordinal, newest.state, t.read_upto,
       newest.from_kept,
       coalesce(t.in_time + t.late + coalesce(t.rejected, 0), 0) AS pairs, t.declarations, behind.batches AS batches_behind, behind.records AS records_behind,
       CASE WHEN t.read_upto IS NULL THEN 0 ELSE coalesce(received.kept, 0) - behind.records END AS kept_read
FROM newest JOIN onlyonce.totals t USING (incarnation) LEFT JOIN received ON received.instance = newest.instance
CROSS JOIN LATERAL (
    SELECT count(*) AS batches, coalesce(sum(b.kept), 0)::bigint AS records
    FROM onlyonce.incarnations l JOIN onlyonce.batches b USING (incarnation)
    WHERE l.instance = newest.instance AND l.query = 'receive' AND b.state = 'committed' AND b.delta_version > coalesce(t.read_upto, -1)) behind
ORDER BY newest.instance, newest.query

-- erasure --
-- The receipt of an erasure.
SELECT removal_no AS erasure, columns, asked_by, kept, invalid, expired, lines, windows, done_at FROM onlyonce.removals
WHERE instance = :instance AND removal_no = :number

-- run_backfills --
-- What a run has recomputed.
SELECT output, window_from, last_end AS window_to, state, windows, rows, in_time, late, rejected, events_version AS version
FROM onlyonce.backfills WHERE run_id = :run_id ORDER BY begun_at, output

-- progress --
-- What some pipelines have committed so far, by query.
SELECT instance, query, sum(batches)::bigint AS batches, coalesce(sum(records_in), 0)::bigint AS "in"
FROM onlyonce.totals WHERE batches > 0 AND instance = ANY(:instances) GROUP BY 1, 2
ORDER BY 1, query = 'receive' DESC, 2

-- lag --
-- How far each stage is behind, in seconds, the slowest first. The backlog of receive is what its source answers.
SELECT g.instance AS pipeline, g.stage, round(extract(epoch FROM g.system_lag)::numeric, 1) AS system_lag_seconds, g.slowest,
       g.batches_waiting, g.records_waiting, g.batches_begun, g.last_batch, g.last_committed_at, g.max_event_time,
       round(extract(epoch FROM g.freshness)::numeric, 1) AS freshness_seconds, g.idle, g.holds_watermark, g.incarnation,
       (SELECT r.state FROM onlyonce.long_runs r WHERE r.instance = g.instance) AS long_run,
       CAST(NULL AS bigint) AS backlog_bytes, CASE WHEN NOT starts_with(g.stage, 'receive') THEN g.records_waiting END AS backlog_records,
       CASE WHEN NOT starts_with(g.stage, 'receive') AND g.system_lag > interval '0' THEN clock_timestamp() - g.system_lag END AS oldest_unread_at,
       round(extract(epoch FROM g.freshness + d.watermark_delay)::numeric, 1) AS watermark_lag_seconds,
       round(extract(epoch FROM g.catch_up)::numeric, 1) AS catch_up_seconds
FROM onlyonce.lag g
LEFT JOIN LATERAL (
    SELECT (x.parts->'outputs'->g.stage->>'watermark_delay')::interval AS watermark_delay FROM onlyonce.declarations x
    WHERE (x.instance, x.query) = (g.instance, g.stage) ORDER BY x.first_seen_at DESC LIMIT 1) d ON true
ORDER BY g.instance, g.stage = 'receive' DESC, starts_with(g.stage, 'receive/') DESC, g.stage

-- instances --
-- The pipelines and bounded runs that have run.
SELECT DISTINCT instance FROM onlyonce.incarnations ORDER BY instance

-- at_work --
-- The pipelines and bounded runs with a running driver.
SELECT DISTINCT instance FROM onlyonce.incarnations WHERE state <> 'closed' AND at_work

-- taken_in --
-- Up to which batch of its manifest each pipeline has committed its input, and how fast its last batches read.
SELECT instance, batch_no, committed_at, records_per_second FROM onlyonce.taken_in WHERE instance = pipeline ORDER BY instance

-- backlog --
-- What sources answered when they were last asked, with the last answers that are too old.
SELECT pipeline, stage, is_current, answered, backlog_bytes, backlog_records,
       extract(epoch FROM oldest_unread_age)::float AS waiting_seconds, why_unknown
FROM onlyonce.backlog ORDER BY pipeline, stage

-- run_outputs --
-- What runs have committed to each output's sink, by the log: the last batch with rows, and all rows. An at-least-once batch
-- has no units for Delta, so its rows are not known. Also what earlier runs of the DAG have committed that have not ended
-- well, since the last one that has: no task has reported it.
WITH reported AS (
    SELECT coalesce(max(ended_at), '-infinity') AS upto FROM onlyonce.driver_runs
    WHERE dag_id = :dag_id AND pipeline = :pipeline AND exit_code = 0 AND run_id <> ALL(CAST(:run_ids AS text[]))),
runs AS (
    SELECT unnest(CAST(:run_ids AS text[])) AS run_id, CAST('-infinity' AS timestamptz) AS since
    UNION ALL
    SELECT d.run_id, r.upto FROM onlyonce.driver_runs d, reported r
    WHERE d.dag_id = :dag_id AND d.pipeline = :pipeline AND d.exit_code IS DISTINCT FROM 0 AND d.run_id <> ALL(CAST(:run_ids AS text[]))),
output_batches AS (
    SELECT b.*
    FROM runs CROSS JOIN LATERAL (
        SELECT pipeline, instance, query, incarnation, batch, state, mode, committed_at
        FROM onlyonce.batches x WHERE x.run_id = runs.run_id OFFSET 0) b
    WHERE b.pipeline = :pipeline AND b.query <> 'receive' AND b.committed_at > runs.since)
SELECT c.instance, c.sink AS output, count(DISTINCT (c.incarnation, c.batch)) AS batches, sum(c.rows)::bigint AS rows,
       (array_agg(c.incarnation || '/' || c.batch ORDER BY c.committed_at DESC))[1] AS batch
FROM (SELECT incarnation, batch FROM output_batches
      UNION ALL
      SELECT f.incarnation, f.batch
      FROM runs CROSS JOIN LATERAL (SELECT * FROM onlyonce.backfills x WHERE x.run_id = runs.run_id OFFSET 0) f
      WHERE f.pipeline = :pipeline AND f.committed_at > runs.since) mine
CROSS JOIN LATERAL (SELECT * FROM onlyonce.commits x WHERE x.incarnation = mine.incarnation AND x.batch = mine.batch OFFSET 0) c
WHERE c.batch_state = 'committed' AND c.rows > 0
GROUP BY 1, 2
UNION ALL
SELECT b.instance, b.query, count(*), NULL, (array_agg(b.incarnation || '/' || b.batch ORDER BY b.committed_at DESC))[1]
FROM output_batches b
WHERE b.state = 'committed' AND b.mode = 'at_least_once'
  AND NOT EXISTS (SELECT 1 FROM onlyonce.commits c WHERE (c.incarnation, c.batch) = (b.incarnation, b.batch) OFFSET 0)
GROUP BY 1, 2 ORDER BY 1, 2

-- received --
-- What the log says that each receive batch has put into `events`.
SELECT incarnation, batch, state, kept, invalid, expired FROM onlyonce.batches
WHERE instance = :instance AND query = 'receive' ORDER BY incarnation, batch

-- written --
-- The windows of an output that a reader of its table must see, with their rows: the newest generation of each. Panes
-- that are next to each other count together.
SELECT DISTINCT ON (window_start, window_end) window_start, window_end, generation, coalesce(rows_of_all_panes, rows) AS rows
FROM onlyonce.panes
WHERE instance = :instance AND output = :output ORDER BY window_start, window_end, generation DESC

-- written_in_all --
-- The rows that an output without windows has appended since the last incarnation that began from the start. It is exact as
-- long as the log has all of its units.
SELECT coalesce(sum(c.rows), 0)::bigint AS rows FROM onlyonce.commits c JOIN onlyonce.incarnations l USING (incarnation)
WHERE c.instance = :instance AND c.sink = :output AND c.batch_state = 'committed'
  AND l.ordinal >= (SELECT coalesce(max(a.ordinal), 0) FROM onlyonce.incarnations a
                 WHERE a.instance = :instance AND a.query = :query AND a.from_start AND a.batches > 0)
  AND NOT EXISTS (SELECT 1 FROM onlyonce.batches b WHERE b.instance = :instance AND b.query = :query AND b.units_removed IS NOT NULL)

-- comparable --
-- Whether the table of an output can be compared with the log now. No batch of the output is under way, nothing was
-- written twice, and the output's place never changed. Also whether a backfill is under way, and whether its rows are
-- written by the batch that reads them.
SELECT (SELECT coalesce(sum(t.begun), 0)::bigint FROM onlyonce.totals t WHERE (t.instance, t.query) = (:instance, :query)) AS begun,
       EXISTS (SELECT 1 FROM onlyonce.backfills f
               WHERE (f.instance, f.output) = (:instance, :query) AND f.state = 'begun') AS backfill_begun,
       (SELECT coalesce(sum(t.written_again), 0)::bigint FROM onlyonce.totals t
        WHERE (t.instance, t.query) = (:instance, :query)) AS written_again,
       (SELECT count(DISTINCT d.parts->'outputs'->CAST(:output AS text)->>'target') FROM onlyonce.declarations d
        WHERE (d.instance, d.query) = (:instance, :query)) AS targets,
       (SELECT coalesce(bool_or((b.facts->>'stateless')::boolean), false)
        FROM onlyonce.totals t JOIN onlyonce.batches b ON (b.incarnation, b.batch) = (t.incarnation, t.last_batch)
        WHERE (t.instance, t.query) = (:instance, :query)) AS as_they_come

-- sample --
-- The last committed exactly-once batches of receive whose ids are in the catalog.
SELECT b.incarnation, b.batch, b.kept, floor(extract(epoch FROM b.ingestion_time) / 600)::bigint AS bucket
FROM onlyonce.batches b
WHERE b.instance = :instance AND b.query = 'receive' AND b.state = 'committed' AND b.mode = 'exactly_once' AND b.kept > 0
  AND EXISTS (SELECT 1 FROM onlyonce.record_ids c WHERE c.instance = b.instance
              AND c.bucket_start = to_timestamp(floor(extract(epoch FROM b.ingestion_time) / 600) * 600))
ORDER BY b.committed_at DESC LIMIT :n

-- last_ends --
-- How the last run of each pipeline has ended, of a DAG or continuous. A run that was killed has no end.
SELECT DISTINCT ON (pipeline) pipeline, run_id, ended_at, exit_code, error, source
FROM (SELECT pipeline, run_id, ended_at, exit_code, error, 'onlyonce.driver_runs' AS source FROM onlyonce.driver_runs
      UNION ALL
      SELECT pipeline, run_id, ended_at, exit_code, error, 'onlyonce.long_runs' FROM onlyonce.long_runs) ends
WHERE ended_at IS NOT NULL AND exit_code IS NOT NULL ORDER BY pipeline, ended_at DESC

-- columns_there --
-- The columns that the role may read, for the hint at a name that does not exist.
SELECT table_schema || '.' || table_name AS "table", column_name::text AS "column" FROM information_schema.columns
WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, ordinal_position
