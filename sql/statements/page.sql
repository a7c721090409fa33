-- pipelines --
-- One row for each pipeline and bounded run: the last incarnation of its receive, and the sums of all committed batches.
WITH receive AS (
    SELECT DISTINCT ON (instance) pipeline, instance, incarnation, ordinal, state, epoch, last_batch FROM onlyonce.incarnations
    WHERE query = 'receive' AND (CAST(:instance AS text) IS NULL OR instance = :instance) ORDER BY instance, ordinal DESC),
totals AS (
    SELECT t.instance, sum(t.batches) FILTER (WHERE t.query = 'receive')::bigint AS batches, sum(t.begun)::bigint AS begun,
           max(t.last_committed_at) AS last_committed_at, max(t.max_event_time) AS max_event_time,
           coalesce(sum(t.records_in), 0)::bigint AS "in", coalesce(sum(t.kept), 0)::bigint AS kept,
           coalesce(sum(t.duplicate), 0)::bigint AS duplicate, coalesce(sum(t.invalid), 0)::bigint AS invalid,
           coalesce(sum(t.expired), 0)::bigint AS expired, coalesce(sum(t.late), 0)::bigint AS late, sum(t.rejected)::bigint AS rejected,
           sum((SELECT count(*) FROM onlyonce.batches b
                WHERE b.incarnation = t.incarnation AND b.batch > t.folded_upto AND b.batch <= t.last_batch AND b.state = 'committed' AND t.query = 'receive'
                  AND b.records_in IS DISTINCT FROM b.kept + b.invalid + b.expired + b.duplicate))::bigint AS unbalanced
    FROM onlyonce.totals t WHERE CAST(:instance AS text) IS NULL OR t.instance = :instance GROUP BY t.instance)
SELECT receive.instance, receive.pipeline, receive.incarnation, receive.ordinal, receive.epoch, receive.last_batch,
       CASE WHEN receive.state = 'live' THEN coalesce(long.state, 'live') ELSE receive.state END AS state, coalesce(totals.batches, 0) AS batches, coalesce(totals.begun, 0) AS begun, totals.last_committed_at,
       totals.max_event_time, totals."in", totals.kept, totals.duplicate, totals.invalid, totals.expired, totals.late, totals.rejected, totals.unbalanced
FROM receive LEFT JOIN totals USING (instance)
LEFT JOIN onlyonce.long_runs long ON long.instance = receive.instance AND long.state IN ('running', 'stopping', 'lost')
ORDER BY totals.last_committed_at DESC NULLS LAST, receive.instance

-- recent --
-- The last committed batches of the last incarnation of each query, oldest first. OFFSET 0 keeps the look-up by incarnation.
SELECT l.instance, l.query AS stage, b.* FROM (
    SELECT DISTINCT ON (instance, query) instance, query, incarnation FROM onlyonce.incarnations
    WHERE CAST(:instance AS text) IS NULL OR instance = :instance ORDER BY instance, query, ordinal DESC) l
CROSS JOIN LATERAL (
    SELECT x.incarnation, x.batch, x.records_in AS "in", x.kept, x.duplicate, x.invalid, x.expired, x.in_time, x.late, x.rejected,
           x.lookups_spared, x.false_positives, x.committed_at, extract(epoch FROM x.committed_at - x.begun_at)::float AS took,
           extract(epoch FROM x.committed_at - x.ingestion_time)::float AS lag
    FROM onlyonce.batches x WHERE x.incarnation = l.incarnation AND x.state = 'committed'
    ORDER BY x.batch DESC LIMIT :n OFFSET 0) b
ORDER BY l.instance, l.query = 'receive' DESC, l.query, b.batch

-- broken --
-- The last committed batches of each query that do not add up when they are compared with their units and windows.
SELECT l.instance, c.query AS stage, c.incarnation, c.batch FROM (
    SELECT DISTINCT ON (instance, query) instance, query, incarnation, last_batch FROM onlyonce.incarnations
    WHERE CAST(:instance AS text) IS NULL OR instance = :instance ORDER BY instance, query, ordinal DESC) l
CROSS JOIN LATERAL (
    SELECT * FROM onlyonce.conservation x
    WHERE x.incarnation = l.incarnation AND x.batch > l.last_batch - :n AND x.batch <= l.last_batch OFFSET 0) c
WHERE c.conserved IS NOT TRUE
ORDER BY l.instance, c.incarnation, c.batch

-- lag --
-- How far each stage is behind.
SELECT g.instance, g.stage, g.incarnation, extract(epoch FROM g.system_lag)::float AS system_lag, g.slowest, g.batches_waiting, g.records_waiting,
       g.last_batch, g.last_committed_at, g.max_event_time, g.idle, g.holds_watermark, b.backlog_bytes,
       CASE WHEN starts_with(g.stage, 'receive') THEN b.backlog_records ELSE g.records_waiting END AS backlog_records, b.oldest_unread_at,
       extract(epoch FROM coalesce(g.catch_up, b.catch_up))::float AS catch_up,
       b.is_current AND NOT b.answered AS no_answer, b.asked_at
FROM onlyonce.lag g LEFT JOIN onlyonce.backlog b ON (b.pipeline, b.stage) = (g.instance, g.stage)
WHERE CAST(:instance AS text) IS NULL OR g.instance = :instance
ORDER BY g.instance, g.stage = 'receive' DESC, starts_with(g.stage, 'receive/') DESC, g.stage

-- catalog --
-- What the record catalog holds, by bucket of ingestion time.
SELECT instance, bucket_start, chunks, ids, bytes FROM onlyonce.record_ids
WHERE CAST(:instance AS text) IS NULL OR instance = :instance ORDER BY instance, bucket_start

-- incarnations --
-- Each incarnation of each query of a pipeline.
SELECT incarnation, query, ordinal, state, epoch, last_batch, last_committed_at, started_at, log_kept_from
FROM onlyonce.incarnations WHERE instance = :instance ORDER BY query = 'receive' DESC, query, ordinal DESC

-- outputs --
-- What each output reads, and how far it is behind that.
SELECT output, reads, query, batches_behind, last_window_start, last_window_end, last_written_at FROM onlyonce.outputs
WHERE instance = :instance ORDER BY query, output <> query, output

-- inputs --
-- Up to where each source is received, with how far it has come in event time.
SELECT i.source, i.incarnation, i.batch, i.version, i.newest_version, i.schemas, i.key_schemas, s.max_event_time, s.last_arrival, s.idle, s.holds_watermark, i.committed_at
FROM onlyonce.inputs i LEFT JOIN onlyonce.sources s ON s.instance = i.instance AND s.source = i.source
WHERE i.instance = :instance ORDER BY i.source

-- schemas --
-- Which schemas the messages of the last batches had, by the last batch with each.
SELECT source, part, schema_id::text AS schema_id, max(batch) AS last_batch, count(*) AS batches
FROM (SELECT b.incarnation, b.batch, b.source, b.end_offset->'schemas' AS schemas FROM onlyonce.incarnations l
      CROSS JOIN LATERAL (SELECT * FROM onlyonce.batches x WHERE x.incarnation = l.incarnation ORDER BY x.batch DESC LIMIT :n OFFSET 0) b
      WHERE l.instance = :instance AND l.query = 'receive' AND l.state <> 'closed') last
CROSS JOIN LATERAL jsonb_each(last.schemas) parts (part, ids) CROSS JOIN LATERAL jsonb_array_elements(ids) schema_id
GROUP BY source, part, schema_id ORDER BY source, part DESC, max(batch), schema_id::text::bigint

-- state --
-- The state that outputs keep in Spark.
SELECT query, kind, batch, rows, rows_in, rows_out, timers_set, timers_ended, disk_bytes, memory_bytes, seen_at FROM onlyonce.state
WHERE instance = :instance ORDER BY query, kind

-- held --
-- Open windows with records that no pane has. The windows that have waited the longest come first.
SELECT output, window_start, window_end, rows, held, held_since FROM onlyonce.panes
WHERE instance = :instance AND NOT final AND held IS NOT NULL ORDER BY held_since, output, window_start LIMIT :n

-- reasons --
-- The number of rejected records by reason, over the records with the newest event times.
SELECT output, reason, sum(rows)::bigint AS rejected, max(event_time) AS last_event_time
FROM (SELECT * FROM onlyonce.rejected WHERE instance = :instance ORDER BY event_time DESC LIMIT :most) newest
GROUP BY output, reason ORDER BY output, sum(rows) DESC, reason LIMIT :n

-- batches --
-- The batches of one lifetime of one query below a batch, newest first.
SELECT incarnation, batch, state, epoch, mode, records_in AS "in", kept, duplicate, invalid, expired, in_time, late, rejected, max_event_time_after,
       run_id, begun_at, committed_at
FROM onlyonce.batches WHERE incarnation = :incarnation AND batch < :before ORDER BY batch DESC LIMIT :n

-- windows --
-- The windows of an output below one, newest first, each with all generations. First the windows, by what was written.
-- Then all that the log has about them, and unwritten windows that belong between them. OFFSET 0 keeps the look-up by
-- window.
WITH chosen AS (
    SELECT window_start, window_end, generation FROM onlyonce.panes
    WHERE instance = :instance AND output = :output
      AND window_start <= :start AND (window_start, window_end, generation) < (:start, :end, :generation)
    ORDER BY window_start DESC, window_end DESC, generation DESC LIMIT :n),
written AS (
    SELECT w.* FROM chosen k CROSS JOIN LATERAL (
        SELECT * FROM onlyonce.windows x
        WHERE x.instance = :instance AND x.output = :output AND x.batch IS NOT NULL AND x.window_start = k.window_start
          AND x.window_end = k.window_end AND x.generation = k.generation OFFSET 0) w),
unwritten AS (
    SELECT * FROM onlyonce.windows
    WHERE instance = :instance AND output = :output AND batch IS NULL
      AND window_start >= (SELECT CASE WHEN count(*) = :n THEN min(window_start) ELSE '-infinity' END FROM chosen)
      AND window_start <= :start AND (window_start, window_end, generation) < (:start, :end, :generation))
SELECT window_start, window_end, generation, state, rows, in_time, late, late_not_included, rejected, incarnation, batch, committed_at
FROM (TABLE written UNION ALL TABLE unwritten) either
ORDER BY window_start DESC, window_end DESC, generation DESC LIMIT :n

-- late_windows --
-- The windows of an output, below one, that records came too late for, newest first.
SELECT pipeline, window_start, window_end, sum(late)::bigint AS late, coalesce(sum(late) FILTER (WHERE NOT included), 0)::bigint AS late_not_included,
       count(*) AS batches
FROM onlyonce.late
WHERE instance = :instance AND output = :output
  AND window_start <= :start AND (window_start, window_end) < (:start, :end)
GROUP BY pipeline, window_start, window_end ORDER BY window_start DESC, window_end DESC LIMIT :n

-- waiting_files --
-- The files of committed batches that have no final name yet, from one on. The files that finalize looks for, by its
-- index.
WITH waiting AS (
    SELECT output, coalesce(window_start, timestamptz '0001-01-01Z') AS since, window_start, window_end, generation, pane, shard, shards,
           rows, bytes, temporary, incarnation, batch, recorded_at
    FROM onlyonce.output_files WHERE instance = :instance AND pane IS NOT NULL AND finalized_at IS NULL)
SELECT * FROM waiting WHERE (output, since, pane, shard) > (:output, :since, :pane, :shard)
ORDER BY output, since, pane, shard LIMIT :n

-- backfills --
-- The backfills of a pipeline that began before one, newest first.
SELECT output, window_from, last_end AS window_to, state, triggered_by, run_id, windows, rows, in_time, late, incarnation, batch, begun_at,
       committed_at
FROM onlyonce.backfills
WHERE instance = :instance AND (begun_at, incarnation, batch) < (:begun_at, :incarnation, :batch)
ORDER BY begun_at DESC, incarnation DESC, batch DESC LIMIT :n

-- batches_of_run --
-- The last batches and backfills that a run committed or has begun, of the given instances.
-- The instances are chosen before the rows are limited: the limit counts no row that the caller may not see.
SELECT incarnation, batch, state, begun_at FROM onlyonce.batches
WHERE run_id = :run_id AND instance = ANY(:instances)
UNION ALL
SELECT incarnation, batch, state, begun_at FROM onlyonce.backfills
WHERE run_id = :run_id AND instance = ANY(:instances)
ORDER BY begun_at DESC, incarnation, batch DESC LIMIT :n

-- pipelines_of_run --
-- The pipelines that a run of a DAG has driven.
SELECT pipeline FROM onlyonce.driver_runs WHERE dag_id = :dag_id AND run_id = :run_id ORDER BY pipeline

-- run_sums --
-- What a run committed, by sink.
WITH mine AS (
    SELECT incarnation, batch FROM onlyonce.batches
    WHERE run_id = :run_id AND pipeline = ANY(:pipelines)
    UNION ALL
    SELECT incarnation, batch FROM onlyonce.backfills
    WHERE run_id = :run_id AND pipeline = ANY(:pipelines))
SELECT c.instance, c.query AS output, c.sink, c.kind, count(*) AS units, count(DISTINCT (c.incarnation, c.batch)) AS batches,
       sum(c.rows)::bigint AS rows, min(c.committed_at) AS first, max(c.committed_at) AS last
FROM mine JOIN onlyonce.commits c ON (c.incarnation, c.batch) = (mine.incarnation, mine.batch)
GROUP BY 1, 2, 3, 4 ORDER BY min(c.committed_at), 1, 2, 3, 4

-- commits_of_run --
-- The units that a run committed before one, newest first.
WITH mine AS (
    SELECT incarnation, batch FROM onlyonce.batches
    WHERE run_id = :run_id AND pipeline = ANY(:pipelines)
    UNION ALL
    SELECT incarnation, batch FROM onlyonce.backfills
    WHERE run_id = :run_id AND pipeline = ANY(:pipelines))
SELECT c.unique_id, c.instance, c.incarnation, c.batch, c.kind, c.rows, c.writes, c.epoch, c.content_hash, c.batch_state, c.committed_at, c.snapshot_id
FROM mine JOIN onlyonce.commits c ON (c.incarnation, c.batch) = (mine.incarnation, mine.batch)
WHERE (c.committed_at, c.unique_id) < (:committed_at, :unique_id)
ORDER BY c.committed_at DESC, c.unique_id DESC LIMIT :n

-- batch --
-- One batch, or one backfill.
SELECT pipeline, instance, query AS stage, incarnation, batch, state, epoch, run_id, mode, records_in AS "in", kept, duplicate, invalid,
       expired, in_time, late, rejected, max_event_time_after, begun_at, committed_at,
       (SELECT string_agg(seen.lookup || ' at version ' || seen.version, ', ' ORDER BY seen.lookup) FROM onlyonce.lookups seen
        WHERE seen.incarnation = :incarnation AND seen.batch = :batch) AS lookups
FROM onlyonce.batches WHERE incarnation = :incarnation AND batch = :batch
UNION ALL
SELECT pipeline, instance, output, incarnation, batch, state, epoch, run_id, 'backfill', NULL, NULL, NULL, NULL,
       NULL, in_time, late, rejected, NULL, begun_at, committed_at,
       CASE lookups WHEN 'then' THEN 'as each window had seen them' WHEN 'now' THEN 'the newest' END
FROM onlyonce.backfills WHERE incarnation = :incarnation AND batch = :batch

-- units_of_batch --
-- The units of a batch from a partition on, in order.
SELECT unique_id, instance, incarnation, batch, sink, partition, kind, rows, writes, epoch, content_hash, batch_state, committed_at, snapshot_id
FROM onlyonce.commits
WHERE incarnation = :incarnation AND batch = :batch AND (sink, partition) > (:sink, :partition)
ORDER BY sink, partition LIMIT :n

-- unit --
-- One unit.
SELECT unique_id, instance, incarnation, batch, kind, rows, writes, epoch, content_hash, batch_state, run_id, committed_at, snapshot_id
FROM onlyonce.commits WHERE unique_id = :unique_id

-- findings --
-- The doctor's last findings; one row without a finding if there were none.
SELECT looked_at, extract(epoch FROM clock_timestamp() - looked_at)::float AS ago, finding, subject AS "where", what, data, repair, fix
FROM onlyonce.findings

-- driven_by --
-- The DAGs that have driven each pipeline, by the log. No row: the pipeline was only run at a shell, or its runs are no
-- longer kept.
SELECT l.instance, l.pipeline, (SELECT array_agg(DISTINCT d.dag_id) FROM onlyonce.driver_runs d WHERE d.pipeline = l.pipeline) AS dag_ids
FROM (SELECT DISTINCT instance, pipeline FROM onlyonce.incarnations) l

-- reader --
-- The role of this session, and whether it has permission to change any table of the platform.
SELECT current_user AS role, coalesce(bool_or(has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')), false) AS may_write
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname LIKE 'onlyonce%'
