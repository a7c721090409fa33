-- Queries, their batches and what each committed.

CREATE OR REPLACE VIEW onlyonce.incarnations AS
SELECT l.incarnation, p.pipeline, l.instance, l.query, l.ordinal, l.state, e.epoch, l.checkpoint_id, l.created_at, l.started_at,
       coalesce(s.batches, 0) + since.batches AS batches, last.batch_id AS last_batch, last.committed_at AS last_committed_at,
       coalesce(l.start_from ? 'kept_from', false) AS from_kept, coalesce(l.start_from ? 'from_start', false) AS from_start,
       CASE WHEN l.query <> 'receive' AND l.instance = p.pipeline THEN p.log_kept_from END AS log_kept_from, l.start_from,
       onlyonce_private.at_work(l.incarnation_no, NULL) AS at_work
FROM onlyonce_private.incarnations l
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.epochs e USING (incarnation)
LEFT JOIN onlyonce_private.sums s USING (incarnation)
LEFT JOIN LATERAL (
    SELECT x.batch_id, x.committed_at FROM onlyonce_private.batches x
    WHERE x.incarnation = l.incarnation AND x.state = 'committed' ORDER BY x.batch_id DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS batches FROM onlyonce_private.batches x
    WHERE x.incarnation = l.incarnation AND x.batch_id > coalesce(s.upto, -1) AND x.batch_id <= last.batch_id AND x.state = 'committed') since ON true
WHERE l.kind = 'stream';
COMMENT ON VIEW onlyonce.incarnations IS 'Each incarnation of each streaming query, bound to one checkpoint.';
COMMENT ON COLUMN onlyonce.incarnations.incarnation IS 'instance/query/ordinal';
COMMENT ON COLUMN onlyonce.incarnations.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.incarnations.instance IS 'the stream of the pipeline, or one of its bounded runs (pipeline@n)';
COMMENT ON COLUMN onlyonce.incarnations.query IS 'receive, or the output that reads events';
COMMENT ON COLUMN onlyonce.incarnations.ordinal IS 'counts the checkpoints of the query';
COMMENT ON COLUMN onlyonce.incarnations.state IS 'live, closed (a newer incarnation or a finished bounded run), damaged (Spark dropped rows)';
COMMENT ON COLUMN onlyonce.incarnations.epoch IS 'the driver that may commit; counts the starts';
COMMENT ON COLUMN onlyonce.incarnations.checkpoint_id IS 'the id in the metadata file of its checkpoint';
COMMENT ON COLUMN onlyonce.incarnations.created_at IS 'when it was registered';
COMMENT ON COLUMN onlyonce.incarnations.started_at IS 'when a driver last started';
COMMENT ON COLUMN onlyonce.incarnations.batches IS 'how many batches are committed';
COMMENT ON COLUMN onlyonce.incarnations.last_batch IS 'the highest committed batch id';
COMMENT ON COLUMN onlyonce.incarnations.last_committed_at IS 'when that was';
COMMENT ON COLUMN onlyonce.incarnations.from_kept IS 'whether it began with what keep_events had left of events';
COMMENT ON COLUMN onlyonce.incarnations.from_start IS 'whether it began from the start, with its rows in place of the rows of earlier incarnations';
COMMENT ON COLUMN onlyonce.incarnations.log_kept_from IS 'batches that were committed before this moment may be cut from the log (keep_log); none: all are there. Sums have all of them';
COMMENT ON COLUMN onlyonce.incarnations.start_from IS 'where it began, and what incarnations before it had closed and counted; NULL: at the beginning';
COMMENT ON COLUMN onlyonce.incarnations.at_work IS 'whether a driver of it has a session in the database now';

CREATE OR REPLACE VIEW onlyonce.batches AS
SELECT p.pipeline, l.instance, l.query, b.incarnation, b.batch_id AS batch, b.epoch, b.state, b.run_id,
       b.source_from AS start_offset, b.source_to AS end_offset, b.read AS records_in, b.kept, b.invalid, b.expired, b.duplicate,
       coalesce(b.near_horizon, (SELECT sum(u.near_horizon)::bigint FROM onlyonce_private.units u
                                 WHERE (u.incarnation, u.batch_id) = (b.incarnation, b.batch_id))) AS near_horizon,
       coalesce(b.lookups_spared, (SELECT sum(u.lookups_spared)::bigint FROM onlyonce_private.units u
                                   WHERE (u.incarnation, u.batch_id) = (b.incarnation, b.batch_id))) AS lookups_spared,
       coalesce(b.false_positives, (SELECT sum(u.false_positives)::bigint FROM onlyonce_private.units u
                                    WHERE (u.incarnation, u.batch_id) = (b.incarnation, b.batch_id))) AS false_positives,
       b.unknown_fields, b.in_time, b.late, b.rejected, b.written_again, b.units_removed,
       b.max_event_time, b.ended AS ended_event_time, b.silent_max_event_time AS idle_event_time, b.silent_clock AS idle_clock,
       b.max_event_time_after AS max_event_time_after, b.ingestion_time, b.partitions, b.mode,
       b.declaration_hash, b.delta_version, b.facts, b.lookups, b.source_to->>'source' AS source, b.begun_at, b.committed_at
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.batches IS 'Each batch of each query: what it read, the event times that windows were judged by, what became of its records.';
COMMENT ON COLUMN onlyonce.batches.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.batches.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.batches.query IS 'receive, or the output that reads events';
COMMENT ON COLUMN onlyonce.batches.incarnation IS 'instance/query/ordinal';
COMMENT ON COLUMN onlyonce.batches.batch IS 'Spark''s batch id; unique only with its incarnation';
COMMENT ON COLUMN onlyonce.batches.epoch IS 'the driver that began or took over the batch';
COMMENT ON COLUMN onlyonce.batches.state IS 'begun, committed';
COMMENT ON COLUMN onlyonce.batches.run_id IS 'the run (Airflow''s run id, or one of the shell)';
COMMENT ON COLUMN onlyonce.batches.start_offset IS 'where the batch before ended';
COMMENT ON COLUMN onlyonce.batches.end_offset IS 'where this batch ends; for files also their number, first and last name';
COMMENT ON COLUMN onlyonce.batches.records_in IS 'receive: records in the input, counted when the files were accepted';
COMMENT ON COLUMN onlyonce.batches.kept IS 'receive: records that outputs read';
COMMENT ON COLUMN onlyonce.batches.invalid IS 'receive: records with a reason instead of values';
COMMENT ON COLUMN onlyonce.batches.expired IS 'receive: records from before the horizon';
COMMENT ON COLUMN onlyonce.batches.duplicate IS 'receive: records that were kept before';
COMMENT ON COLUMN onlyonce.batches.near_horizon IS 'receive: duplicates whose first delivery was in the oldest tenth of the dedup horizon. If there are any, lengthen dedup_horizon: the next ones may come after it';
COMMENT ON COLUMN onlyonce.batches.lookups_spared IS 'receive: look-ups of an id in a chunk of the catalog that its Bloom filter spared; NULL when no chunk was asked';
COMMENT ON COLUMN onlyonce.batches.false_positives IS 'receive: look-ups that a filter asked for and that found nothing: they cost time, and no record';
COMMENT ON COLUMN onlyonce.batches.units_removed IS 'how many of its units were removed from the log, long after it was committed';
COMMENT ON COLUMN onlyonce.batches.unknown_fields IS 'receive: kept records with fields that the declaration does not know';
COMMENT ON COLUMN onlyonce.batches.in_time IS 'output: (record, window) pairs in time';
COMMENT ON COLUMN onlyonce.batches.late IS 'output: (record, window) pairs that met a closed window';
COMMENT ON COLUMN onlyonce.batches.rejected IS 'output: (record, window) pairs that its function rejected (reject); NULL: it has none';
COMMENT ON COLUMN onlyonce.batches.max_event_time IS 'the largest event time kept before this batch, from which windows are judged';
COMMENT ON COLUMN onlyonce.batches.ended_event_time IS 'the max event time when the input was last declared ended: all windows up to there are closed';
COMMENT ON COLUMN onlyonce.batches.idle_event_time IS 'the max event time when the source was last found idle (idle_after)';
COMMENT ON COLUMN onlyonce.batches.idle_clock IS 'the clock less idle_after at that moment: windows that end up to there are closed';
COMMENT ON COLUMN onlyonce.batches.max_event_time_after IS 'receive: the max event time with this batch';
COMMENT ON COLUMN onlyonce.batches.ingestion_time IS 'when its input was first seen';
COMMENT ON COLUMN onlyonce.batches.partitions IS 'in how many partitions its units are cut';
COMMENT ON COLUMN onlyonce.batches.mode IS 'exactly_once, at_least_once: as the batch began. For receive also by_position: exactly once, each record known by its place in the source';
COMMENT ON COLUMN onlyonce.batches.written_again IS 'output, at_least_once: rows that a replay or a task that was tried again wrote to PostgreSQL again. An append has them twice, an upsert does not';
COMMENT ON COLUMN onlyonce.batches.declaration_hash IS 'declaration and functions that it ran with';
COMMENT ON COLUMN onlyonce.batches.delta_version IS 'receive: the version of events that holds it';
COMMENT ON COLUMN onlyonce.batches.facts IS 'what was true when it began. Receive: the files that could not be read, with the reason. An output: whether it keeps no state';
COMMENT ON COLUMN onlyonce.batches.source IS 'receive: of several sources, whose batch it is';
COMMENT ON COLUMN onlyonce.batches.lookups IS 'output: the version of each lookup that its functions see, stored when it begins; a replay sees the same';
COMMENT ON COLUMN onlyonce.batches.begun_at IS 'when it was first begun';
COMMENT ON COLUMN onlyonce.batches.committed_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.lookups AS
SELECT p.pipeline, l.instance, l.query, b.incarnation, b.batch_id AS batch, seen.key AS lookup, (seen.value->>'version')::bigint AS version,
       seen.value->>'table' AS table_id, b.state, b.run_id, b.begun_at, b.committed_at
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation) JOIN onlyonce_private.pipelines p USING (instance)
CROSS JOIN LATERAL jsonb_each(b.lookups) seen;
COMMENT ON VIEW onlyonce.lookups IS 'Which version of each lookup each batch of an output saw.';
COMMENT ON COLUMN onlyonce.lookups.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.lookups.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.lookups.query IS 'the output that reads events';
COMMENT ON COLUMN onlyonce.lookups.incarnation IS 'instance/query/ordinal';
COMMENT ON COLUMN onlyonce.lookups.batch IS 'the batch';
COMMENT ON COLUMN onlyonce.lookups.lookup IS 'the lookup''s name';
COMMENT ON COLUMN onlyonce.lookups.version IS 'the version of the Delta table; of a PostgreSQL table the number of a copy';
COMMENT ON COLUMN onlyonce.lookups.table_id IS 'the id that the Delta table was made with: a table that is made again at the same path has another; of a PostgreSQL table the hash of what is in the copy';
COMMENT ON COLUMN onlyonce.lookups.state IS 'of the batch: begun, committed';
COMMENT ON COLUMN onlyonce.lookups.run_id IS 'the run (Airflow''s run id, or one of the shell)';
COMMENT ON COLUMN onlyonce.lookups.begun_at IS 'when the batch was first begun';
COMMENT ON COLUMN onlyonce.lookups.committed_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.commits AS
SELECT u.unique_id, p.pipeline, l.instance, coalesce(f.output, l.query) AS query, u.sink, u.incarnation, u.batch_id AS batch, u.partition, u.epoch,
       u.attempt, u.kind, u.rows, u.writes, u.content_hash, u.committed_at, coalesce(b.state, f.state) AS batch_state,
       coalesce(b.run_id, f.run_id) AS run_id, u.authority,
       (SELECT count(*) FROM onlyonce_private.outbox o WHERE o.unit = u.unique_id AND o.uncertain) AS uncertain, u.snapshot_id
FROM onlyonce_private.units u JOIN onlyonce_private.incarnations l USING (incarnation)
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.batches b ON (b.incarnation, b.batch_id) = (u.incarnation, u.batch_id)
LEFT JOIN onlyonce_private.backfills f ON (f.incarnation, f.batch_id) = (u.incarnation, u.batch_id);
COMMENT ON VIEW onlyonce.commits IS 'The commit log: one row for each unit. A unique id is stored once, or not.';
COMMENT ON COLUMN onlyonce.commits.unique_id IS 'incarnation/batch/sink/partition';
COMMENT ON COLUMN onlyonce.commits.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.commits.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.commits.query IS 'receive, or the output that reads events';
COMMENT ON COLUMN onlyonce.commits.sink IS 'what it was written to: events, or the output';
COMMENT ON COLUMN onlyonce.commits.incarnation IS 'instance/query/ordinal; of a backfill instance/output@from--to/1';
COMMENT ON COLUMN onlyonce.commits.batch IS 'the batch id';
COMMENT ON COLUMN onlyonce.commits.partition IS 'the pinned partition';
COMMENT ON COLUMN onlyonce.commits.epoch IS 'the driver whose task committed it';
COMMENT ON COLUMN onlyonce.commits.attempt IS 'Spark''s stage and task attempt';
COMMENT ON COLUMN onlyonce.commits.kind IS 'data: its rows were in the transaction. reference: they go to Delta, vouched for when the batch is committed. plain: at_least_once, noted with its rows';
COMMENT ON COLUMN onlyonce.commits.writes IS 'plain: how often rows were written under this id; rows is their sum';
COMMENT ON COLUMN onlyonce.commits.rows IS 'how many rows';
COMMENT ON COLUMN onlyonce.commits.content_hash IS 'order-free hash of its exact columns; a replay must give the same';
COMMENT ON COLUMN onlyonce.commits.committed_at IS 'when the unit committed';
COMMENT ON COLUMN onlyonce.commits.batch_state IS 'begun, committed; of a backfill also replaced (done again from the start)';
COMMENT ON COLUMN onlyonce.commits.run_id IS 'the run of its batch';
COMMENT ON COLUMN onlyonce.commits.authority IS 'platform, or the connection of the database in which it committed';
COMMENT ON COLUMN onlyonce.commits.uncertain IS 'how many of its rows a webhook or BigQuery may have twice: an answer was lost, and the row was sent again when the target may have forgotten it';
COMMENT ON COLUMN onlyonce.commits.snapshot_id IS 'Iceberg: the snapshot that added its rows. Snapshots expire; the table''s property that names the batch stays';

CREATE OR REPLACE VIEW onlyonce.declarations AS
SELECT p.pipeline, d.instance, d.query, d.hash AS declaration_hash, d.parts, d.first_seen_at
FROM onlyonce_private.declarations d JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.declarations IS 'What each query was declared as when it ran: see declaration_hash in batches and windows.';
COMMENT ON COLUMN onlyonce.declarations.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.declarations.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.declarations.query IS 'receive, or the output that reads events; those made from it are in its parts';
COMMENT ON COLUMN onlyonce.declarations.declaration_hash IS 'as in batches and windows';
COMMENT ON COLUMN onlyonce.declarations.parts IS 'the options, and the source of the functions';
COMMENT ON COLUMN onlyonce.declarations.first_seen_at IS 'when a driver first started under it';

CREATE OR REPLACE VIEW onlyonce.driver_runs AS
SELECT dag_id, run_id, pipeline, attempt, begun_at, ended_at, exit_code, why AS error FROM onlyonce_private.driver_runs;
COMMENT ON VIEW onlyonce.driver_runs IS 'Which runs of Airflow''s DAGs have driven which pipeline, and how the last driver of each ended.';
COMMENT ON COLUMN onlyonce.driver_runs.dag_id IS 'the DAG, whatever it is called';
COMMENT ON COLUMN onlyonce.driver_runs.run_id IS 'its run; runs of two DAGs may have one id';
COMMENT ON COLUMN onlyonce.driver_runs.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.driver_runs.attempt IS 'how many drivers the run has had: one for each try of its task';
COMMENT ON COLUMN onlyonce.driver_runs.begun_at IS 'when their work began: the first of them, or the first one after one that had ended well';
COMMENT ON COLUMN onlyonce.driver_runs.ended_at IS 'when it said that it had ended; none: it is running, or was killed';
COMMENT ON COLUMN onlyonce.driver_runs.exit_code IS 'with which exit code; 0: all is committed';
COMMENT ON COLUMN onlyonce.driver_runs.error IS 'by which error';

CREATE OR REPLACE VIEW onlyonce.long_runs AS
SELECT p.pipeline, r.instance, r.attempt,
       CASE WHEN r.exit_code = 0 THEN 'stopped' WHEN r.exit_code > 0 THEN 'failed'
            WHEN r.heartbeat_at + r.lost_after > clock_timestamp()
            THEN CASE WHEN r.stop_asked_at IS NULL THEN 'running' ELSE 'stopping' END
            WHEN r.stop_asked_at IS NULL THEN 'lost' ELSE 'stopped' END AS state,
       r.driver, r.run_id, r.every AS poll_interval, r.rounds, r.round_at, r.started_at, r.heartbeat_at, r.stop_asked_at, r.ended_at,
       r.exit_code, r.why AS error, r.down AS failed_outputs, r.lost_after, r.locked
FROM onlyonce_private.long_runs r JOIN onlyonce_private.pipelines p USING (instance) WHERE r.attempt > 0;
COMMENT ON VIEW onlyonce.long_runs IS 'The last continuous run of each pipeline: its driver, whether it is alive, how it ended.';
COMMENT ON COLUMN onlyonce.long_runs.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.long_runs.instance IS 'the same: a continuous run is of the stream';
COMMENT ON COLUMN onlyonce.long_runs.attempt IS 'counts the drivers, one after the other';
COMMENT ON COLUMN onlyonce.long_runs.state IS 'running, stopping (asked to), stopped (as asked), failed (with its exit code), lost (its heartbeat ended)';
COMMENT ON COLUMN onlyonce.long_runs.driver IS 'machine, process and a random mark';
COMMENT ON COLUMN onlyonce.long_runs.run_id IS 'the run that started it, which its batches carry';
COMMENT ON COLUMN onlyonce.long_runs.poll_interval IS 'how long it waits between two polls for new input';
COMMENT ON COLUMN onlyonce.long_runs.rounds IS 'polls after which each of its queries had ended a batch since the last round, or had nothing to do';
COMMENT ON COLUMN onlyonce.long_runs.round_at IS 'about when its last round was: if it is old and the heartbeat is fresh, a batch takes long or hangs';
COMMENT ON COLUMN onlyonce.long_runs.started_at IS 'when it started';
COMMENT ON COLUMN onlyonce.long_runs.heartbeat_at IS 'its last heartbeat';
COMMENT ON COLUMN onlyonce.long_runs.stop_asked_at IS 'when it was asked to stop between two batches';
COMMENT ON COLUMN onlyonce.long_runs.ended_at IS 'when it said that it ended';
COMMENT ON COLUMN onlyonce.long_runs.exit_code IS 'how; 0: as asked';
COMMENT ON COLUMN onlyonce.long_runs.error IS 'the error that it ended with';
COMMENT ON COLUMN onlyonce.long_runs.failed_outputs IS 'the outputs that stand still, each with its error; the others are up';
COMMENT ON COLUMN onlyonce.long_runs.lost_after IS 'how long after its last heartbeat it counts as lost';
COMMENT ON COLUMN onlyonce.long_runs.locked IS 'whether its driver holds the lock of the pipeline''s continuous run for as long as it lives';
