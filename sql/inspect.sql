-- The views that people query: a versioned interface. The tables behind them are private and may change.
-- A view is replaced in place, so that a team's own views on it and its grants stay. So columns are only added, at the end; a change that
-- PostgreSQL can't make in place is refused while anything depends on the view (`onlyonce.database.migrate`).
CREATE SCHEMA IF NOT EXISTS onlyonce;
COMMENT ON SCHEMA onlyonce IS 'onlyonce: what was read, what became of it, what is committed. Views only.';

CREATE OR REPLACE VIEW onlyonce.lineages AS
SELECT l.lineage, p.pipeline, l.instance, l.query, l.life, l.state, e.epoch, l.checkpoint_id, l.created_at, l.started_at,
       coalesce(s.batches, 0) + since.batches AS batches, last.batch_id AS last_batch, last.committed_at AS last_committed_at,
       coalesce(l.start_from ? 'kept_from', false) AS from_kept, coalesce(l.start_from ? 'anew', false) AS anew,
       CASE WHEN l.query <> 'receive' AND l.instance = p.pipeline THEN p.log_kept_from END AS log_kept_from
FROM onlyonce_private.lineages l
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.epochs e USING (lineage)
LEFT JOIN onlyonce_private.sums s USING (lineage)
LEFT JOIN LATERAL (
    SELECT x.batch_id, x.committed_at FROM onlyonce_private.batches x
    WHERE x.lineage = l.lineage AND x.state = 'committed' ORDER BY x.batch_id DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS batches FROM onlyonce_private.batches x
    WHERE x.lineage = l.lineage AND x.batch_id > coalesce(s.upto, -1) AND x.batch_id <= last.batch_id AND x.state = 'committed') since ON true
WHERE l.kind = 'stream';
COMMENT ON VIEW onlyonce.lineages IS 'Each life of each streaming query, bound to one checkpoint.';
COMMENT ON COLUMN onlyonce.lineages.lineage IS 'instance/query/life';
COMMENT ON COLUMN onlyonce.lineages.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.lineages.instance IS 'the pipeline on its stream, or one bounded run of it (pipeline@n)';
COMMENT ON COLUMN onlyonce.lineages.query IS 'receive, or the output that reads events';
COMMENT ON COLUMN onlyonce.lineages.life IS 'counts the checkpoints of the query';
COMMENT ON COLUMN onlyonce.lineages.state IS 'live, closed (a newer life or a finished bounded run), damaged (Spark dropped rows)';
COMMENT ON COLUMN onlyonce.lineages.epoch IS 'the driver that may commit; counts the starts';
COMMENT ON COLUMN onlyonce.lineages.checkpoint_id IS 'the id in the metadata file of its checkpoint';
COMMENT ON COLUMN onlyonce.lineages.created_at IS 'when it was registered';
COMMENT ON COLUMN onlyonce.lineages.started_at IS 'when a driver last started';
COMMENT ON COLUMN onlyonce.lineages.batches IS 'how many batches are committed';
COMMENT ON COLUMN onlyonce.lineages.last_batch IS 'the highest committed batch id';
COMMENT ON COLUMN onlyonce.lineages.last_committed_at IS 'when that was';
COMMENT ON COLUMN onlyonce.lineages.from_kept IS 'whether it began with what keep_events had left of events';
COMMENT ON COLUMN onlyonce.lineages.anew IS 'whether it began from the start, with its rows in the place of those of earlier lives';
COMMENT ON COLUMN onlyonce.lineages.log_kept_from IS 'batches that were committed before this moment may be cut from the log (keep_log); none: all are there. Sums have all of them';

CREATE OR REPLACE VIEW onlyonce.batches AS
SELECT p.pipeline, l.instance, l.query, b.lineage, b.batch_id AS batch, b.epoch, b.state, b.run_id,
       b.source_from AS start_offset, b.source_to AS end_offset, b.read AS records_in, b.kept, b.invalid, b.remnant, b.duplicate,
       coalesce(b.near_horizon, (SELECT sum(u.near_horizon)::bigint FROM onlyonce_private.units u
                                 WHERE (u.lineage, u.batch_id) = (b.lineage, b.batch_id))) AS near_horizon,
       coalesce(b.lookups_spared, (SELECT sum(u.lookups_spared)::bigint FROM onlyonce_private.units u
                                   WHERE (u.lineage, u.batch_id) = (b.lineage, b.batch_id))) AS lookups_spared,
       coalesce(b.false_positives, (SELECT sum(u.false_positives)::bigint FROM onlyonce_private.units u
                                    WHERE (u.lineage, u.batch_id) = (b.lineage, b.batch_id))) AS false_positives,
       b.unknown_fields, b.in_time, b.late, b.rejected, b.written_again, b.units_removed,
       b.tide AS max_event_time, b.ended AS ended_event_time, b.silent_tide AS idle_event_time, b.silent_clock AS idle_clock,
       b.tide_after AS max_event_time_after, b.system_time, b.partitions, b.mode,
       b.declaration_hash, b.delta_version, b.facts, b.lookups, b.source_to->>'source' AS source, b.begun_at, b.committed_at
FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage)
JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.batches IS 'Each batch of each query: what it read, the event times that windows were judged by, what became of its records.';
COMMENT ON COLUMN onlyonce.batches.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.batches.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.batches.query IS 'receive, or the output that reads events';
COMMENT ON COLUMN onlyonce.batches.lineage IS 'instance/query/life';
COMMENT ON COLUMN onlyonce.batches.batch IS 'Spark''s batch id; unique only with its lineage';
COMMENT ON COLUMN onlyonce.batches.epoch IS 'the driver that began or took over the batch';
COMMENT ON COLUMN onlyonce.batches.state IS 'begun, committed';
COMMENT ON COLUMN onlyonce.batches.run_id IS 'the run (Airflow''s run id, or one of the shell)';
COMMENT ON COLUMN onlyonce.batches.start_offset IS 'where the batch before ended';
COMMENT ON COLUMN onlyonce.batches.end_offset IS 'where this batch ends; for files also their number, first and last name';
COMMENT ON COLUMN onlyonce.batches.records_in IS 'receive: records in the input, counted when the files were accepted';
COMMENT ON COLUMN onlyonce.batches.kept IS 'receive: records that outputs read';
COMMENT ON COLUMN onlyonce.batches.invalid IS 'receive: records with a reason instead of values';
COMMENT ON COLUMN onlyonce.batches.remnant IS 'receive: records from before the horizon';
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
COMMENT ON COLUMN onlyonce.batches.system_time IS 'when its input was first seen';
COMMENT ON COLUMN onlyonce.batches.partitions IS 'in how many partitions its units are cut';
COMMENT ON COLUMN onlyonce.batches.mode IS 'exactly_once, at_least_once: as the batch began. Of receive also by_position: exactly once, each record known by its place in the source';
COMMENT ON COLUMN onlyonce.batches.written_again IS 'output, at_least_once: rows that a replay or a task that was tried again wrote to PostgreSQL once more. An append has them twice, an upsert does not';
COMMENT ON COLUMN onlyonce.batches.declaration_hash IS 'declaration and functions that it ran with';
COMMENT ON COLUMN onlyonce.batches.delta_version IS 'receive: the version of events that holds it';
COMMENT ON COLUMN onlyonce.batches.facts IS 'what was true when it began. Receive: the files that could not be read, with the reason. An output: whether it keeps no state';
COMMENT ON COLUMN onlyonce.batches.source IS 'receive: of several sources, whose batch it is';
COMMENT ON COLUMN onlyonce.batches.lookups IS 'output: the version of each lookup that its functions see, fixed when it begins; a replay sees the same';
COMMENT ON COLUMN onlyonce.batches.begun_at IS 'when it was first begun';
COMMENT ON COLUMN onlyonce.batches.committed_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.lookups AS
SELECT p.pipeline, l.instance, l.query, b.lineage, b.batch_id AS batch, seen.key AS lookup, (seen.value->>'version')::bigint AS version,
       seen.value->>'table' AS table_id, b.state, b.run_id, b.begun_at, b.committed_at
FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage) JOIN onlyonce_private.pipelines p USING (instance)
CROSS JOIN LATERAL jsonb_each(b.lookups) seen;
COMMENT ON VIEW onlyonce.lookups IS 'Which version of each lookup each batch of an output saw.';
COMMENT ON COLUMN onlyonce.lookups.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.lookups.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.lookups.query IS 'the output that reads events';
COMMENT ON COLUMN onlyonce.lookups.lineage IS 'instance/query/life';
COMMENT ON COLUMN onlyonce.lookups.batch IS 'the batch';
COMMENT ON COLUMN onlyonce.lookups.lookup IS 'the lookup''s name';
COMMENT ON COLUMN onlyonce.lookups.version IS 'the version of the Delta table; of a PostgreSQL table the number of a copy';
COMMENT ON COLUMN onlyonce.lookups.table_id IS 'the id that the Delta table was made with: a table that is made anew at the same path has another; of a PostgreSQL table the hash of what is in the copy';
COMMENT ON COLUMN onlyonce.lookups.state IS 'of the batch: begun, committed';
COMMENT ON COLUMN onlyonce.lookups.run_id IS 'the run (Airflow''s run id, or one of the shell)';
COMMENT ON COLUMN onlyonce.lookups.begun_at IS 'when the batch was first begun';
COMMENT ON COLUMN onlyonce.lookups.committed_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.commits AS
SELECT u.unique_id, p.pipeline, l.instance, coalesce(f.output, l.query) AS query, u.sink, u.lineage, u.batch_id AS batch, u.partition, u.epoch,
       u.attempt, u.kind, u.rows, u.writes, u.content_hash, u.committed_at, coalesce(b.state, f.state) AS batch_state,
       coalesce(b.run_id, f.run_id) AS run_id, u.authority,
       (SELECT count(*) FROM onlyonce_private.outbox o WHERE o.unit = u.unique_id AND o.uncertain) AS uncertain, u.snapshot_id
FROM onlyonce_private.units u JOIN onlyonce_private.lineages l USING (lineage)
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.batches b ON (b.lineage, b.batch_id) = (u.lineage, u.batch_id)
LEFT JOIN onlyonce_private.backfills f ON (f.lineage, f.batch_id) = (u.lineage, u.batch_id);
COMMENT ON VIEW onlyonce.commits IS 'The commit log: one row for each unit. A unique id is there once, or not.';
COMMENT ON COLUMN onlyonce.commits.unique_id IS 'lineage/batch/sink/partition';
COMMENT ON COLUMN onlyonce.commits.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.commits.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.commits.query IS 'receive, or the output that reads events';
COMMENT ON COLUMN onlyonce.commits.sink IS 'what it was written to: events, or the output';
COMMENT ON COLUMN onlyonce.commits.lineage IS 'instance/query/life; of a backfill instance/output@from--to/1';
COMMENT ON COLUMN onlyonce.commits.batch IS 'the batch id';
COMMENT ON COLUMN onlyonce.commits.partition IS 'the pinned partition';
COMMENT ON COLUMN onlyonce.commits.epoch IS 'the driver whose task committed it';
COMMENT ON COLUMN onlyonce.commits.attempt IS 'Spark''s stage and task attempt';
COMMENT ON COLUMN onlyonce.commits.kind IS 'data: its rows were in the transaction. witness: they go to Delta, vouched for when the batch is committed. plain: at_least_once, noted with its rows';
COMMENT ON COLUMN onlyonce.commits.writes IS 'plain: how often rows were written under this id; rows is their sum';
COMMENT ON COLUMN onlyonce.commits.rows IS 'how many rows';
COMMENT ON COLUMN onlyonce.commits.content_hash IS 'order-free hash of its exact columns; a replay must give the same';
COMMENT ON COLUMN onlyonce.commits.committed_at IS 'when the unit committed';
COMMENT ON COLUMN onlyonce.commits.batch_state IS 'begun, committed; of a backfill also replaced (done again from the start)';
COMMENT ON COLUMN onlyonce.commits.run_id IS 'the run of its batch';
COMMENT ON COLUMN onlyonce.commits.authority IS 'platform, or the connection of the database in which it committed';
COMMENT ON COLUMN onlyonce.commits.uncertain IS 'how many of its rows a webhook or BigQuery may have twice: an answer was lost, and the row was sent again when the target may have forgotten it';
COMMENT ON COLUMN onlyonce.commits.snapshot_id IS 'Iceberg: the snapshot that added its rows. Snapshots expire; the table''s property that names the batch stays';

CREATE OR REPLACE VIEW onlyonce.conservation AS
SELECT p.pipeline, l.instance, l.query, b.lineage, b.batch_id AS batch,
       b.read AS records_in, b.kept, b.invalid, b.remnant, b.duplicate, NULL::bigint AS in_time, NULL::bigint AS late,
       NULL::bigint AS rejected,
       b.state = 'committed' AND b.read = b.kept + b.invalid + b.remnant + b.duplicate
           AND (b.units_removed IS NOT NULL OR b.mode <> 'exactly_once' OR b.batch_id <= coalesce(s.upto, -1)
                OR (b.kept, b.invalid, b.remnant, b.duplicate) = (u.kept, u.invalid, u.remnant, u.duplicate)) AS conserved
FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage)
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.sums s USING (lineage)
LEFT JOIN LATERAL (
    SELECT coalesce(sum(x.kept), 0)::bigint AS kept, coalesce(sum(x.invalid), 0)::bigint AS invalid,
           coalesce(sum(x.remnant), 0)::bigint AS remnant, coalesce(sum(x.duplicate), 0)::bigint AS duplicate
    FROM onlyonce_private.units x
    WHERE (x.lineage, x.batch_id) = (b.lineage, b.batch_id) AND b.batch_id > coalesce(s.upto, -1)) u ON true
WHERE l.query = 'receive'
UNION ALL
SELECT p.pipeline, l.instance, l.query, b.lineage, b.batch_id, NULL, NULL, NULL, NULL, NULL, b.in_time, b.late, b.rejected,
       b.state = 'committed' AND (b.batch_id <= coalesce(s.upto, -1)
                                  OR (b.in_time, b.late, coalesce(b.rejected, 0)) = (w.in_time, w.late, w.rejected))
FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage)
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.sums s USING (lineage)
LEFT JOIN LATERAL (
    SELECT coalesce(sum(x.in_time), 0)::bigint AS in_time, coalesce(sum(x.late), 0)::bigint AS late,
           coalesce(sum(x.rejected), 0)::bigint AS rejected
    FROM onlyonce_private.window_counts x
    WHERE (x.lineage, x.batch_id) = (b.lineage, b.batch_id) AND b.batch_id > coalesce(s.upto, -1)) w ON true
WHERE l.query <> 'receive';
COMMENT ON VIEW onlyonce.conservation IS
    'Every record has one fate: receive, records_in = kept + invalid + remnant + duplicate; an output, what receive kept = in time + late + rejected.';
COMMENT ON COLUMN onlyonce.conservation.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.conservation.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.conservation.query IS 'receive, or the output';
COMMENT ON COLUMN onlyonce.conservation.lineage IS 'instance/query/life';
COMMENT ON COLUMN onlyonce.conservation.batch IS 'the batch id';
COMMENT ON COLUMN onlyonce.conservation.records_in IS 'receive: records in the input';
COMMENT ON COLUMN onlyonce.conservation.kept IS 'receive: kept';
COMMENT ON COLUMN onlyonce.conservation.invalid IS 'receive: invalid';
COMMENT ON COLUMN onlyonce.conservation.remnant IS 'receive: remnant';
COMMENT ON COLUMN onlyonce.conservation.duplicate IS 'receive: duplicate';
COMMENT ON COLUMN onlyonce.conservation.in_time IS 'output: (record, window) pairs in time';
COMMENT ON COLUMN onlyonce.conservation.late IS 'output: pairs that were late';
COMMENT ON COLUMN onlyonce.conservation.rejected IS 'output: pairs that its function rejected; NULL: it has none (reject)';
COMMENT ON COLUMN onlyonce.conservation.conserved IS 'whether the counts add up; false while a batch is begun and not committed';

CREATE OR REPLACE VIEW onlyonce.totals AS
SELECT p.pipeline, l.instance, l.query, l.lineage, l.life, coalesce(s.batches, 0) + since.batches AS batches,
       (SELECT count(*) FROM onlyonce_private.batches b WHERE b.lineage = l.lineage AND b.state = 'begun') AS begun,
       coalesce(s.read + since.read, s.read, since.read) AS records_in, coalesce(s.kept + since.kept, s.kept, since.kept) AS kept,
       coalesce(s.invalid + since.invalid, s.invalid, since.invalid) AS invalid,
       coalesce(s.remnant + since.remnant, s.remnant, since.remnant) AS remnant,
       coalesce(s.duplicate + since.duplicate, s.duplicate, since.duplicate) AS duplicate,
       coalesce(s.in_time + since.in_time, s.in_time, since.in_time) AS in_time, coalesce(s.late + since.late, s.late, since.late) AS late,
       coalesce(s.rejected + since.rejected, s.rejected, since.rejected) AS rejected,
       coalesce(s.unknown_fields + since.unknown_fields, s.unknown_fields, since.unknown_fields) AS unknown_fields,
       coalesce(s.written_again + since.written_again, s.written_again, since.written_again) AS written_again,
       (SELECT count(DISTINCT hash) FROM unnest(s.declarations || since.declarations) hash) AS declarations,
       (SELECT coalesce(bool_and(coalesce(c.conserved, false)), true) FROM onlyonce.conservation c
        WHERE c.lineage = l.lineage AND c.batch > coalesce(s.upto, -1) AND c.batch <= last.batch_id) AS conserved,
       greatest((SELECT b.tide_after FROM onlyonce_private.batches b
                 WHERE b.lineage = l.lineage AND b.state = 'committed' AND b.delta_version IS NOT NULL
                 ORDER BY b.delta_version DESC LIMIT 1),
                (SELECT c.tide FROM onlyonce_private.closes c
                 WHERE c.lineage = l.lineage AND c.state = 'committed' ORDER BY c.close_no DESC LIMIT 1)) AS max_event_time,
       last.read_upto, last.batch_id AS last_batch, last.committed_at AS last_committed_at, coalesce(s.upto, -1) AS folded_upto
FROM onlyonce_private.lineages l JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.sums s USING (lineage)
LEFT JOIN LATERAL (
    SELECT b.batch_id, b.committed_at,
           (b.source_to->>'reservoirVersion')::bigint - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END AS read_upto
    FROM onlyonce_private.batches b
    WHERE b.lineage = l.lineage AND b.state = 'committed' ORDER BY b.batch_id DESC LIMIT 1) last ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS batches, sum(b.read)::bigint AS read, sum(b.kept)::bigint AS kept, sum(b.invalid)::bigint AS invalid,
           sum(b.remnant)::bigint AS remnant, sum(b.duplicate)::bigint AS duplicate, sum(b.in_time)::bigint AS in_time,
           sum(b.late)::bigint AS late, sum(b.rejected)::bigint AS rejected, sum(b.unknown_fields)::bigint AS unknown_fields, sum(b.written_again)::bigint AS written_again,
           array_agg(DISTINCT b.declaration_hash) AS declarations
    FROM onlyonce_private.batches b
    -- To say where it ends is to say that it is a small range: so an index is taken for it.
    WHERE b.lineage = l.lineage AND b.batch_id > coalesce(s.upto, -1) AND b.batch_id <= last.batch_id AND b.state = 'committed') since
WHERE l.kind = 'stream';
COMMENT ON VIEW onlyonce.totals IS 'What the committed batches of each life of each query came to, quick beside a log of any length: a collection folds what is older than a day into sums.';
COMMENT ON COLUMN onlyonce.totals.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.totals.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.totals.query IS 'receive, or the output';
COMMENT ON COLUMN onlyonce.totals.lineage IS 'instance/query/life';
COMMENT ON COLUMN onlyonce.totals.life IS 'counts the checkpoints of the query';
COMMENT ON COLUMN onlyonce.totals.batches IS 'how many batches are committed';
COMMENT ON COLUMN onlyonce.totals.begun IS 'how many have begun and are not';
COMMENT ON COLUMN onlyonce.totals.records_in IS 'receive: records in the input';
COMMENT ON COLUMN onlyonce.totals.kept IS 'receive: kept';
COMMENT ON COLUMN onlyonce.totals.invalid IS 'receive: invalid';
COMMENT ON COLUMN onlyonce.totals.remnant IS 'receive: remnant';
COMMENT ON COLUMN onlyonce.totals.duplicate IS 'receive: duplicate';
COMMENT ON COLUMN onlyonce.totals.in_time IS 'output: (record, window) pairs in time';
COMMENT ON COLUMN onlyonce.totals.late IS 'output: pairs that were late';
COMMENT ON COLUMN onlyonce.totals.rejected IS 'output: pairs that its function rejected; NULL: it has none (reject)';
COMMENT ON COLUMN onlyonce.totals.unknown_fields IS 'receive: records with fields that are not declared';
COMMENT ON COLUMN onlyonce.totals.written_again IS 'output, at least once: rows that were perhaps written twice';
COMMENT ON COLUMN onlyonce.totals.declarations IS 'under how many declarations it has run';
COMMENT ON COLUMN onlyonce.totals.conserved IS 'whether the records of each batch add up: those up to folded_upto did when they were folded into the sums';
COMMENT ON COLUMN onlyonce.totals.max_event_time IS 'receive: the largest event time that was kept';
COMMENT ON COLUMN onlyonce.totals.read_upto IS 'output: the last version of events that it has read';
COMMENT ON COLUMN onlyonce.totals.last_batch IS 'the highest committed batch id';
COMMENT ON COLUMN onlyonce.totals.last_committed_at IS 'when that was';
COMMENT ON COLUMN onlyonce.totals.folded_upto IS 'the last batch that is folded into the sums; -1: none';

CREATE OR REPLACE VIEW onlyonce_private.met_windows AS
SELECT w.lineage, w.batch_id, w.output, w.window_start, w.window_end, w.in_time, w.late, l.instance, b.tide, b.run_id,
       EXISTS (SELECT 1 FROM onlyonce_private.backfills f
               WHERE (f.instance, f.output, f.state) = (l.instance, w.output, 'committed')
                 AND coalesce(w.late_from, w.window_start) >= f.window_from
                 AND coalesce(w.late_to, w.window_start) < f.window_to
                 AND f.events_version >= (b.source_to->>'reservoirVersion')::bigint
                     - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END) AS folded,
       w.late_from, w.late_to, w.rejected
FROM onlyonce_private.window_counts w JOIN onlyonce_private.batches b USING (lineage, batch_id)
JOIN onlyonce_private.lineages l USING (lineage);
COMMENT ON VIEW onlyonce_private.met_windows IS
    'What each output batch met of each window, and whether a backfill has read it since (late rows are folded in by it).';

CREATE OR REPLACE VIEW onlyonce_private.met_in_all AS
SELECT m.instance, m.output, m.window_start, m.window_end, m.in_time, m.late, m.folded, m.rejected FROM onlyonce_private.met_windows m
UNION ALL
SELECT l.instance, c.output, c.window_start, c.window_end, c.in_time, 0, true, c.rejected
FROM onlyonce_private.window_sums c JOIN onlyonce_private.lineages l USING (lineage);
COMMENT ON VIEW onlyonce_private.met_in_all IS
    'The same of the batches in the log, and of those that are cut from it (keep_log): none of these met a late record.';

-- In two parts, what was written and what was only met so far, so that a search by window goes through to the indexes. Left
-- joins, so that who asks for the windows alone pays for nothing else.
CREATE OR REPLACE VIEW onlyonce.windows AS
SELECT p.pipeline, n.instance, n.output, n.window_start, n.window_end, n.generation,
       CASE WHEN n.generation < newest.generation THEN 'replaced' WHEN n.final THEN 'closed'
            WHEN met.in_time > 0 THEN 'open' WHEN met.late > 0 THEN 'only late' WHEN met.rejected > 0 THEN 'only rejected' ELSE 'open' END AS state,
       n.rows, met.in_time, met.late, met.late_not_folded, met.rejected, n.lineage, n.batch_id AS batch, n.declaration_hash, n.committed_at
FROM onlyonce_private.panes n JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN LATERAL (
    SELECT max(x.generation) AS generation FROM onlyonce_private.panes x
    WHERE (x.instance, x.output, x.window_start, x.window_end) = (n.instance, n.output, n.window_start, n.window_end)) newest ON true
LEFT JOIN LATERAL (
    SELECT sum(m.in_time)::bigint AS in_time, sum(m.late)::bigint AS late, sum(m.rejected)::bigint AS rejected,
           coalesce(sum(m.late) FILTER (WHERE NOT m.folded), 0)::bigint AS late_not_folded
    FROM onlyonce_private.met_in_all m
    WHERE (m.instance, m.output, m.window_start, m.window_end) = (n.instance, n.output, n.window_start, n.window_end)
    HAVING count(*) > 0) met ON true
UNION ALL
SELECT p.pipeline, met.instance, met.output, met.window_start, met.window_end, 0,
       CASE WHEN met.in_time > 0 THEN 'open' WHEN met.late > 0 THEN 'only late' WHEN met.rejected > 0 THEN 'only rejected' ELSE 'open' END,
       NULL, met.in_time, met.late, met.late_not_folded, met.rejected, NULL, NULL, NULL, NULL
FROM (
    SELECT m.instance, m.output, m.window_start, m.window_end, sum(m.in_time)::bigint AS in_time, sum(m.late)::bigint AS late,
           coalesce(sum(m.late) FILTER (WHERE NOT m.folded), 0)::bigint AS late_not_folded, sum(m.rejected)::bigint AS rejected
    FROM onlyonce_private.met_in_all m
    WHERE m.window_start IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM onlyonce_private.panes n
        WHERE (n.instance, n.output, n.window_start, n.window_end) = (m.instance, m.output, m.window_start, m.window_end))
    GROUP BY 1, 2, 3, 4) met
JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.windows IS 'Each window of each output that has data, with its state and generation.';
COMMENT ON COLUMN onlyonce.windows.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.windows.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.windows.output IS 'the output';
COMMENT ON COLUMN onlyonce.windows.window_start IS 'its start, inclusive';
COMMENT ON COLUMN onlyonce.windows.window_end IS 'its end, exclusive';
COMMENT ON COLUMN onlyonce.windows.generation IS '0: written by the stream; then one for each backfill';
COMMENT ON COLUMN onlyonce.windows.state IS 'open: may still change by the stream. closed: what a reader sees, final until a backfill. replaced: an older generation. only late: all its rows came late, no result yet. only rejected: its function rejected all its rows';
COMMENT ON COLUMN onlyonce.windows.rows IS 'result rows';
COMMENT ON COLUMN onlyonce.windows.in_time IS 'records that are in the result; for an output made from another see that one';
COMMENT ON COLUMN onlyonce.windows.late IS 'records that came after it had closed';
COMMENT ON COLUMN onlyonce.windows.late_not_folded IS 'of these, how many no backfill has folded in yet';
COMMENT ON COLUMN onlyonce.windows.rejected IS 'records that the stream met and its function rejected; 0 where it has none';
COMMENT ON COLUMN onlyonce.windows.lineage IS 'the lineage that wrote it';
COMMENT ON COLUMN onlyonce.windows.batch IS 'the batch that wrote it';
COMMENT ON COLUMN onlyonce.windows.declaration_hash IS 'declaration and functions that made it';
COMMENT ON COLUMN onlyonce.windows.committed_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.panes AS
SELECT p.pipeline, n.instance, n.output, n.window_start, n.window_end, n.generation, n.final, n.rows, n.lineage, n.batch_id AS batch,
       n.declaration_hash, n.lookups, n.committed_at, CASE WHEN NOT n.final THEN n.held END AS held, CASE WHEN NOT n.final THEN n.held_since END AS held_since
FROM onlyonce_private.panes n JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.panes IS 'The windows that each output has written, by generation: what windows says of them, without what was read. Quick for a list in order.';
COMMENT ON COLUMN onlyonce.panes.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.panes.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.panes.output IS 'the output';
COMMENT ON COLUMN onlyonce.panes.window_start IS 'the window';
COMMENT ON COLUMN onlyonce.panes.window_end IS 'its end';
COMMENT ON COLUMN onlyonce.panes.generation IS '0: written by the stream; then one for each backfill';
COMMENT ON COLUMN onlyonce.panes.final IS 'whether the window has closed';
COMMENT ON COLUMN onlyonce.panes.rows IS 'how many rows were written of it';
COMMENT ON COLUMN onlyonce.panes.lineage IS 'instance/query/life of the batch or backfill that wrote it last';
COMMENT ON COLUMN onlyonce.panes.batch IS 'that batch';
COMMENT ON COLUMN onlyonce.panes.declaration_hash IS 'the declaration that it was written under';
COMMENT ON COLUMN onlyonce.panes.lookups IS 'the version of each lookup that the batch or backfill saw which wrote it last';
COMMENT ON COLUMN onlyonce.panes.committed_at IS 'when';
COMMENT ON COLUMN onlyonce.panes.held IS 'of an open window: records that came since, and that no pane has (AfterRecords, AfterTime)';
COMMENT ON COLUMN onlyonce.panes.held_since IS 'when the batch began that brought the first of them';

CREATE OR REPLACE VIEW onlyonce.late AS
SELECT p.pipeline, m.instance, m.output, m.lineage, m.batch_id AS batch, m.window_start, m.window_end, m.late, m.folded,
       m.tide AS max_event_time, m.run_id, 'data/' || m.instance || '/events' AS location
FROM onlyonce_private.met_windows m JOIN onlyonce_private.pipelines p USING (instance)
WHERE m.late > 0;
COMMENT ON VIEW onlyonce.late IS 'Records that met a closed window, by output batch and window. `onlyonce late` shows the rows.';
COMMENT ON COLUMN onlyonce.late.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.late.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.late.output IS 'the output whose window had closed';
COMMENT ON COLUMN onlyonce.late.lineage IS 'instance/query/life';
COMMENT ON COLUMN onlyonce.late.batch IS 'the batch of the output that met them';
COMMENT ON COLUMN onlyonce.late.window_start IS 'the window (for sessions: the hour of the event)';
COMMENT ON COLUMN onlyonce.late.window_end IS 'its end';
COMMENT ON COLUMN onlyonce.late.late IS 'how many (record, window) pairs';
COMMENT ON COLUMN onlyonce.late.folded IS 'whether a backfill has folded them in since';
COMMENT ON COLUMN onlyonce.late.max_event_time IS 'the largest event time before the batch';
COMMENT ON COLUMN onlyonce.late.run_id IS 'the run';
COMMENT ON COLUMN onlyonce.late.location IS 'the Delta table with the rows, under the platform''s home';

CREATE OR REPLACE VIEW onlyonce.rejected AS
SELECT p.pipeline, r.instance, r.output, r.reason, r.window_start, r.window_end, r.event_time,
       lpad(to_hex(r.oo_high), 16, '0') || lpad(to_hex(r.oo_low), 16, '0') AS record_id, r.received_as, r.received_in, r.lineage, r.batch_id AS batch,
       r.rows, 'data/' || r.instance || '/events' AS location
FROM onlyonce_private.rejected r JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.rejected IS
    'Records that the function of an output rejected (reject), once for each window: what its batches have met, of recomputed windows what the last backfill met. `onlyonce rejected` shows the values.';
COMMENT ON COLUMN onlyonce.rejected.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.rejected.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.rejected.output IS 'the output whose function rejected it';
COMMENT ON COLUMN onlyonce.rejected.reason IS 'what the function said';
COMMENT ON COLUMN onlyonce.rejected.window_start IS 'the window; of sessions the one that the record alone would have; NULL without windows';
COMMENT ON COLUMN onlyonce.rejected.window_end IS 'its end';
COMMENT ON COLUMN onlyonce.rejected.event_time IS 'of the record';
COMMENT ON COLUMN onlyonce.rejected.record_id IS 'its id in hexadecimal: onlyonce trace PIPELINE RECORD_ID';
COMMENT ON COLUMN onlyonce.rejected.received_as IS 'the lineage of receive that kept the record';
COMMENT ON COLUMN onlyonce.rejected.received_in IS 'and its batch there';
COMMENT ON COLUMN onlyonce.rejected.lineage IS 'the lineage of the output or backfill that rejected it';
COMMENT ON COLUMN onlyonce.rejected.batch IS 'its batch';
COMMENT ON COLUMN onlyonce.rejected.rows IS 'how often the record is there: more than once only in at_least_once mode';
COMMENT ON COLUMN onlyonce.rejected.location IS 'the Delta table with the values, under the platform''s home';

CREATE OR REPLACE VIEW onlyonce.reasons AS
SELECT p.pipeline, r.instance, r.output, r.reason, sum(r.rows)::bigint AS rejected, min(r.event_time) AS first_event_time, max(r.event_time) AS last_event_time
FROM onlyonce_private.rejected r JOIN onlyonce_private.pipelines p USING (instance)
GROUP BY p.pipeline, r.instance, r.output, r.reason;
COMMENT ON VIEW onlyonce.reasons IS 'How many (record, window) pairs each output has rejected, by reason. It reads each of them: give it the pipeline, and the output.';
COMMENT ON COLUMN onlyonce.reasons.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.reasons.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.reasons.output IS 'the output whose function rejected them';
COMMENT ON COLUMN onlyonce.reasons.reason IS 'what the function said';
COMMENT ON COLUMN onlyonce.reasons.rejected IS 'how many pairs';
COMMENT ON COLUMN onlyonce.reasons.first_event_time IS 'of the oldest record';
COMMENT ON COLUMN onlyonce.reasons.last_event_time IS 'of the newest';

CREATE OR REPLACE VIEW onlyonce.invalid AS
SELECT pipeline, instance, lineage, batch, invalid, facts, run_id, committed_at,
       'data/' || instance || '/events' AS location
FROM onlyonce.batches WHERE query = 'receive' AND invalid > 0;
COMMENT ON VIEW onlyonce.invalid IS 'Records without values, by batch. `onlyonce invalid` shows the rows with reason and raw content.';
COMMENT ON COLUMN onlyonce.invalid.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.invalid.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.invalid.lineage IS 'instance/query/life';
COMMENT ON COLUMN onlyonce.invalid.batch IS 'the receive batch';
COMMENT ON COLUMN onlyonce.invalid.invalid IS 'how many';
COMMENT ON COLUMN onlyonce.invalid.facts IS 'files that could not be read, with the reason';
COMMENT ON COLUMN onlyonce.invalid.run_id IS 'the run';
COMMENT ON COLUMN onlyonce.invalid.committed_at IS 'when the batch was committed';
COMMENT ON COLUMN onlyonce.invalid.location IS 'the Delta table with the rows, under the platform''s home';

CREATE OR REPLACE VIEW onlyonce.remnant AS
SELECT pipeline, instance, lineage, batch, remnant, run_id, committed_at,
       'data/' || instance || '/events' AS location
FROM onlyonce.batches WHERE query = 'receive' AND remnant > 0;
COMMENT ON VIEW onlyonce.remnant IS 'Records from before the dedup horizon, by batch. `onlyonce remnant` shows the rows.';
COMMENT ON COLUMN onlyonce.remnant.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.remnant.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.remnant.lineage IS 'instance/query/life';
COMMENT ON COLUMN onlyonce.remnant.batch IS 'the receive batch';
COMMENT ON COLUMN onlyonce.remnant.remnant IS 'how many';
COMMENT ON COLUMN onlyonce.remnant.run_id IS 'the run';
COMMENT ON COLUMN onlyonce.remnant.committed_at IS 'when the batch was committed';
COMMENT ON COLUMN onlyonce.remnant.location IS 'the Delta table with the rows, under the platform''s home';

CREATE OR REPLACE VIEW onlyonce.backfills AS
SELECT p.pipeline, f.instance, f.output, f.window_from, f.window_to, f.state, f.asked_by AS triggered_by, f.run_id, f.windows, f.rows,
       f.in_time, f.late, f.rejected, f.events_version, f.declaration_hash, f.lookups, f.lineage, f.batch_id AS batch, f.epoch, f.begun_at, f.committed_at
FROM onlyonce_private.backfills f JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.backfills IS 'Each recomputation of closed windows: the interval, who asked, what it read and wrote.';
COMMENT ON COLUMN onlyonce.backfills.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.backfills.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.backfills.output IS 'the output that reads events; those made from it are done with it';
COMMENT ON COLUMN onlyonce.backfills.window_from IS 'windows that start here or later (for sessions: after widening to what has merged)';
COMMENT ON COLUMN onlyonce.backfills.window_to IS 'and before this';
COMMENT ON COLUMN onlyonce.backfills.state IS 'begun, committed, replaced (its driver ended; a later one did it again)';
COMMENT ON COLUMN onlyonce.backfills.triggered_by IS 'person: a backfill. late rows: the declaration asks for it (late)';
COMMENT ON COLUMN onlyonce.backfills.run_id IS 'the run (Airflow''s run id, or one of the shell)';
COMMENT ON COLUMN onlyonce.backfills.windows IS 'windows with rows now';
COMMENT ON COLUMN onlyonce.backfills.rows IS 'result rows written to the output itself';
COMMENT ON COLUMN onlyonce.backfills.in_time IS '(record, window) pairs that the stream had too';
COMMENT ON COLUMN onlyonce.backfills.late IS '(record, window) pairs that were late, folded in';
COMMENT ON COLUMN onlyonce.backfills.rejected IS '(record, window) pairs, late ones too, that it rejected; NULL: its output has no function for that';
COMMENT ON COLUMN onlyonce.backfills.events_version IS 'the version of events that was read: what the output''s stream had read';
COMMENT ON COLUMN onlyonce.backfills.declaration_hash IS 'declaration and functions that it ran with';
COMMENT ON COLUMN onlyonce.backfills.lookups IS 'then: each window saw the versions that it had seen; now: the newest; NULL: its output has no lookups';
COMMENT ON COLUMN onlyonce.backfills.lineage IS 'instance/output@from--to/1';
COMMENT ON COLUMN onlyonce.backfills.batch IS 'counts the recomputations of the interval';
COMMENT ON COLUMN onlyonce.backfills.epoch IS 'the driver';
COMMENT ON COLUMN onlyonce.backfills.begun_at IS 'when it began';
COMMENT ON COLUMN onlyonce.backfills.committed_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.closes AS
SELECT p.pipeline, l.instance, c.lineage, c.close_no, c.kind, c.state, c.tide AS max_event_time, c.ended AS ended_event_time,
       c.silent_tide AS idle_event_time, c.silent_clock AS idle_clock, c.epoch, c.run_id, c.begun_at, c.committed_at
FROM onlyonce_private.closes c JOIN onlyonce_private.lineages l USING (lineage)
JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.closes IS 'When the input was declared ended or the source was idle, so that windows closed without new records.';
COMMENT ON COLUMN onlyonce.closes.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.closes.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.closes.lineage IS 'the receive lineage that wrote it';
COMMENT ON COLUMN onlyonce.closes.close_no IS 'counts the closes of a lineage';
COMMENT ON COLUMN onlyonce.closes.kind IS 'ended (the input was declared so), silent (the source was idle for idle_after)';
COMMENT ON COLUMN onlyonce.closes.state IS 'begun, committed';
COMMENT ON COLUMN onlyonce.closes.max_event_time IS 'the largest event time kept so far';
COMMENT ON COLUMN onlyonce.closes.ended_event_time IS 'the max event time when the input was last declared ended: all windows up to there are closed';
COMMENT ON COLUMN onlyonce.closes.idle_event_time IS 'the max event time when the source was last found idle (idle_after)';
COMMENT ON COLUMN onlyonce.closes.idle_clock IS 'the clock less idle_after at that moment: windows that end up to there are closed';
COMMENT ON COLUMN onlyonce.closes.epoch IS 'the driver';
COMMENT ON COLUMN onlyonce.closes.run_id IS 'the run';
COMMENT ON COLUMN onlyonce.closes.begun_at IS 'when it began';
COMMENT ON COLUMN onlyonce.closes.committed_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.sources AS
WITH told AS (
    SELECT p.pipeline, i.instance, newest.*
    FROM (SELECT DISTINCT instance FROM onlyonce_private.lineages WHERE query = 'receive' AND state <> 'closed') i
    JOIN onlyonce_private.pipelines p USING (instance)
    CROSS JOIN LATERAL (
        SELECT one.tides, one.tide FROM onlyonce_private.lineages l
        CROSS JOIN LATERAL (
            (SELECT b.source_tides_after AS tides, b.tide_after AS tide, b.delta_version FROM onlyonce_private.batches b
             WHERE b.lineage = l.lineage AND b.state = 'committed' AND b.delta_version IS NOT NULL ORDER BY b.delta_version DESC LIMIT 1)
            UNION ALL
            (SELECT c.source_tides_after, c.tide, c.delta_version FROM onlyonce_private.closes c
             WHERE c.lineage = l.lineage AND c.state = 'committed' ORDER BY c.close_no DESC LIMIT 1)) one
        WHERE l.instance = i.instance AND l.query = 'receive' ORDER BY one.delta_version DESC LIMIT 1) newest),
each AS (
    SELECT told.pipeline, told.instance, one.key AS source, (one.value->>'tide')::bigint AS tide, (one.value->>'seen')::bigint AS seen,
           (one.value->>'idle')::boolean AS idle, told.tide AS reached
    FROM told CROSS JOIN LATERAL jsonb_each(told.tides) one)
SELECT pipeline, instance, source, to_timestamp(tide / 1000000) + (tide % 1000000) * interval '1 microsecond' AS max_event_time,
       to_timestamp(seen / 1000000) + (seen % 1000000) * interval '1 microsecond' AS last_arrival, idle,
       NOT idle AND (tide IS NULL OR tide = min(tide) FILTER (WHERE NOT idle) OVER (PARTITION BY instance))
           AND (tide IS NULL OR NOT bool_or(tide IS NULL AND NOT idle) OVER (PARTITION BY instance)) AS holds_watermark,
       reached AS pipeline_max_event_time
FROM each;
COMMENT ON VIEW onlyonce.sources IS 'Each source of the pipelines that have several: how far it has come in event time, and which of them holds the watermark back.';
COMMENT ON COLUMN onlyonce.sources.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.sources.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.sources.source IS 'the source''s name';
COMMENT ON COLUMN onlyonce.sources.max_event_time IS 'the largest event time that was kept of it; NULL: none yet';
COMMENT ON COLUMN onlyonce.sources.last_arrival IS 'the system time of its last batch; before the first one, since when the watermark waits for it';
COMMENT ON COLUMN onlyonce.sources.idle IS 'whether nothing has come from it for its idle_after, by the last batch or close: then it holds nothing back';
COMMENT ON COLUMN onlyonce.sources.holds_watermark IS 'whether the watermark waits for it: of the sources that are not idle it is the least far, or nothing of it is kept yet';
COMMENT ON COLUMN onlyonce.sources.pipeline_max_event_time IS 'the event time by which windows are judged: the least of the sources that are not idle; it never moves back';

CREATE OR REPLACE VIEW onlyonce.inputs AS
SELECT p.pipeline, l.instance, s.source, b.lineage, b.batch_id AS batch, (b.source_to->>'version')::bigint AS version,
       (b.source_to->>'newest')::bigint AS newest_version, b.source_to->'schemas'->'value' AS schemas, b.source_to->'schemas'->'key' AS key_schemas,
       b.source_to->'offsets' AS offsets, b.system_time, b.committed_at
FROM onlyonce_private.lineages l JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce.sources s USING (instance)
-- Of several sources not all have been in the last batches: so far is looked back, and no further.
CROSS JOIN LATERAL (
    SELECT x.* FROM (
        SELECT y.* FROM onlyonce_private.batches y
        WHERE y.lineage = l.lineage AND y.state = 'committed' AND y.source_to ? 'batch_no' ORDER BY y.batch_id DESC LIMIT 1000 OFFSET 0) x
    WHERE s.source IS NULL OR x.source_to->>'source' = s.source ORDER BY x.batch_id DESC LIMIT 1) b
WHERE l.query = 'receive' AND l.state <> 'closed' AND l.kind = 'stream';
COMMENT ON VIEW onlyonce.inputs IS 'Up to where each source is taken in, by its last committed batch: a table''s version beside its newest, the schemas of its messages, its offsets. The schemas and offsets of earlier batches are in end_offset of batches.';
COMMENT ON COLUMN onlyonce.inputs.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.inputs.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.inputs.source IS 'of several sources, which; NULL: there is one. A source without a batch among the last 1,000 has no row';
COMMENT ON COLUMN onlyonce.inputs.lineage IS 'the life of receive';
COMMENT ON COLUMN onlyonce.inputs.batch IS 'its last committed batch of that source';
COMMENT ON COLUMN onlyonce.inputs.version IS 'a Delta table: the last version with rows that is taken in';
COMMENT ON COLUMN onlyonce.inputs.newest_version IS 'a Delta table: its newest version when that batch began';
COMMENT ON COLUMN onlyonce.inputs.schemas IS 'Kafka with a schema registry: the schema ids of the messages in that batch';
COMMENT ON COLUMN onlyonce.inputs.key_schemas IS 'the same of their keys';
COMMENT ON COLUMN onlyonce.inputs.offsets IS 'Kafka: by partition the first offset and the one behind the last';
COMMENT ON COLUMN onlyonce.inputs.system_time IS 'when its input was first seen';
COMMENT ON COLUMN onlyonce.inputs.committed_at IS 'when the batch was committed';

CREATE OR REPLACE VIEW onlyonce.lag AS
WITH stage AS (
    SELECT p.pipeline, l.instance, l.query, l.lineage, begun.*, last.last_batch, last.last_committed_at,
           coalesce(last.read_upto, (l.start_from->>'version')::bigint - 1, -1) AS read_upto
    FROM onlyonce_private.lineages l JOIN onlyonce_private.pipelines p USING (instance)
    CROSS JOIN LATERAL (
        SELECT count(*) AS begun, min(b.system_time) AS begun_since, sum((b.source_to->>'lines')::bigint) AS begun_lines
        FROM onlyonce_private.batches b WHERE b.lineage = l.lineage AND b.state = 'begun') begun
    -- Offsets and tides never move back, so the last batch tells them; adding up all of them took seconds.
    LEFT JOIN LATERAL (
        SELECT b.batch_id AS last_batch, b.committed_at AS last_committed_at,
               (b.source_to->>'reservoirVersion')::bigint
                   - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END AS read_upto
        FROM onlyonce_private.batches b WHERE b.lineage = l.lineage AND b.state = 'committed'
        ORDER BY b.batch_id DESC LIMIT 1) last ON true
    WHERE l.state <> 'closed' AND l.kind = 'stream'),
known AS (
    SELECT stage.*, r.waiting, r.waiting_records, r.waiting_since, t.tide
    FROM stage CROSS JOIN LATERAL (
        SELECT count(*) AS waiting, sum(b.kept)::bigint AS waiting_records, min(b.system_time) AS waiting_since
        FROM onlyonce_private.lineages l JOIN onlyonce_private.batches b USING (lineage)
        WHERE stage.query <> 'receive' AND l.instance = stage.instance AND l.query = 'receive' AND b.state = 'committed'
          AND b.delta_version > stage.read_upto) r
    CROSS JOIN LATERAL (
        SELECT max(x.tide) AS tide FROM onlyonce_private.lineages l CROSS JOIN LATERAL (
            (SELECT b.tide_after AS tide FROM onlyonce_private.batches b
             WHERE b.lineage = l.lineage AND b.state = 'committed' AND b.tide_after IS NOT NULL
               AND b.delta_version <= CASE WHEN stage.query = 'receive' THEN 9223372036854775807 ELSE stage.read_upto END
             ORDER BY b.delta_version DESC LIMIT 1)
            UNION ALL
            (SELECT c.tide FROM onlyonce_private.closes c
             WHERE c.lineage = l.lineage AND c.state = 'committed'
               AND c.delta_version <= CASE WHEN stage.query = 'receive' THEN 9223372036854775807 ELSE stage.read_upto END
             ORDER BY c.delta_version DESC LIMIT 1)) x
        WHERE l.instance = stage.instance AND l.query = 'receive') t),
aged AS (
    SELECT pipeline, instance, query, lineage, begun, last_batch, last_committed_at, tide,
           CASE WHEN query = 'receive' THEN begun_since ELSE waiting_since END AS oldest,
           CASE WHEN query = 'receive' THEN begun ELSE waiting END AS batches_waiting,
           CASE WHEN query = 'receive' THEN begun_lines ELSE waiting_records END AS records_waiting
    FROM known
    UNION ALL
    SELECT p.pipeline, o.instance, o.output || '/deliver', o.instance || '/' || o.output || '/deliver', 0, NULL, NULL, NULL,
           min(o.committed_at), NULL, count(*)
    FROM onlyonce_private.outbox o JOIN onlyonce_private.pipelines p USING (instance)
    WHERE o.state IN ('waiting', 'sending') AND o.instance = p.pipeline GROUP BY p.pipeline, o.instance, o.output
    UNION ALL
    SELECT s.pipeline, s.instance, 'receive/' || s.source, s.instance || '/receive/' || s.source, coalesce(begun.batches, 0), NULL,
           NULL, s.max_event_time, begun.since, coalesce(begun.batches, 0), begun.lines
    FROM onlyonce.sources s
    LEFT JOIN LATERAL (
        SELECT count(*) AS batches, min(b.system_time) AS since, sum((b.source_to->>'lines')::bigint) AS lines
        FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage)
        WHERE l.instance = s.instance AND l.query = 'receive' AND b.state = 'begun' AND b.source_to->>'source' = s.source) begun ON true)
SELECT aged.pipeline, aged.instance, query AS stage, lineage, coalesce(late.system_lag, interval '0') AS system_lag,
       late.system_lag > interval '0' AND late.system_lag = max(late.system_lag) OVER (PARTITION BY aged.instance) AS slowest,
       batches_waiting, coalesce(records_waiting, 0)::bigint AS records_waiting,
       begun AS batches_begun, last_batch, last_committed_at, tide AS max_event_time, clock_timestamp() - tide AS freshness, s.idle, s.holds_watermark
FROM aged CROSS JOIN LATERAL (SELECT greatest(clock_timestamp() - oldest, interval '0') AS system_lag) late
LEFT JOIN onlyonce.sources s ON s.instance = aged.instance AND 'receive/' || s.source = aged.query;
COMMENT ON VIEW onlyonce.lag IS 'How far each stage of each pipeline is behind, by the log: one row for receive, for each of several sources, for each output that has run, and for each delivery with rows to send. It tells the slow stage.';
COMMENT ON COLUMN onlyonce.lag.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.lag.instance IS 'the pipeline on its stream, or one bounded run of it that has not finished';
COMMENT ON COLUMN onlyonce.lag.stage IS 'receive, the output, or output/deliver: what its outbox has not delivered; receive/source: one of several sources';
COMMENT ON COLUMN onlyonce.lag.lineage IS 'instance/query/life; of a delivery instance/output/deliver, of a source instance/receive/source';
COMMENT ON COLUMN onlyonce.lag.system_lag IS 'the age of the oldest input that waits for this stage, by the time it was first seen; 0 when none does. Receive: of its begun batches. The log does not know of files that no run has listed, nor of listed ones whose batch has not begun';
COMMENT ON COLUMN onlyonce.lag.slowest IS 'whether its input waits the longest of all stages of the pipeline';
COMMENT ON COLUMN onlyonce.lag.batches_waiting IS 'receive: batches begun and not committed. An output: committed receive batches that it has not committed';
COMMENT ON COLUMN onlyonce.lag.records_waiting IS 'the records in them: of receive all lines, of an output those that were kept; of a delivery the rows that are not sent';
COMMENT ON COLUMN onlyonce.lag.batches_begun IS 'batches of this stage that began and are not committed';
COMMENT ON COLUMN onlyonce.lag.last_batch IS 'the last batch that it has committed; not told of a source';
COMMENT ON COLUMN onlyonce.lag.last_committed_at IS 'when that was';
COMMENT ON COLUMN onlyonce.lag.max_event_time IS 'the largest event time of what it has committed (of several sources the least of those that are not idle): its watermark is this less its allowed lateness';
COMMENT ON COLUMN onlyonce.lag.freshness IS 'the age of that event time';
COMMENT ON COLUMN onlyonce.lag.idle IS 'one of several sources: whether nothing has come for its idle_after, so that it holds nothing back';
COMMENT ON COLUMN onlyonce.lag.holds_watermark IS 'one of several sources: whether the watermark waits for it';

CREATE OR REPLACE VIEW onlyonce.outputs AS
WITH each AS (
    SELECT p.pipeline, l.instance, o.key AS output, o.value->>'from_output' AS reads, l.query
    FROM onlyonce_private.lineages l JOIN onlyonce_private.pipelines p USING (instance)
    CROSS JOIN LATERAL (
        SELECT x.declaration_hash FROM onlyonce_private.batches x WHERE x.lineage = l.lineage ORDER BY x.batch_id DESC LIMIT 1) last
    JOIN onlyonce_private.declarations d ON (d.instance, d.query, d.hash) = (l.instance, l.query, last.declaration_hash)
    CROSS JOIN LATERAL jsonb_each(d.parts->'outputs') o
    WHERE l.query <> 'receive' AND l.state <> 'closed' AND l.kind = 'stream'),
behind AS (SELECT instance, stage, batches_waiting FROM onlyonce.lag)
SELECT e.pipeline, e.instance, e.output, e.reads, e.query,
       greatest(mine.batches_waiting - coalesce(theirs.batches_waiting, 0), 0) AS batches_behind,
       written.window_start AS last_window_start, written.window_end AS last_window_end, written.committed_at AS last_written_at
FROM each e
LEFT JOIN each before ON (before.instance, before.output) = (e.instance, e.reads)
LEFT JOIN behind mine ON (mine.instance, mine.stage) = (e.instance, e.query)
LEFT JOIN behind theirs ON (theirs.instance, theirs.stage) = (before.instance, before.query)
LEFT JOIN LATERAL (
    SELECT n.window_start, n.window_end, n.committed_at FROM onlyonce_private.panes n
    WHERE n.instance = e.instance AND n.output = e.output AND n.final AND n.window_start IS NOT NULL
    ORDER BY n.window_start DESC, n.window_end DESC LIMIT 1) written ON true;
COMMENT ON VIEW onlyonce.outputs IS 'What each output reads, and how far it is behind that: chains, outputs made from others, several results of one function.';
COMMENT ON COLUMN onlyonce.outputs.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.outputs.instance IS 'the pipeline on its stream, or one bounded run of it that has not finished';
COMMENT ON COLUMN onlyonce.outputs.output IS 'the output, as its last batch was declared';
COMMENT ON COLUMN onlyonce.outputs.reads IS 'events, or the output whose windows or rows it is made from';
COMMENT ON COLUMN onlyonce.outputs.query IS 'the query that writes it: its own, or that of the output from whose rows it is made in the same batch';
COMMENT ON COLUMN onlyonce.outputs.batches_behind IS 'batches of receive that what it reads has, and it has not; 0: it has all of them';
COMMENT ON COLUMN onlyonce.outputs.last_window_start IS 'the newest closed window that it has written; NULL: it has none';
COMMENT ON COLUMN onlyonce.outputs.last_window_end IS 'its end';
COMMENT ON COLUMN onlyonce.outputs.last_written_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.state AS
SELECT p.pipeline, l.instance, l.query, s.lineage, s.batch_id AS batch,
       CASE s.kind WHEN 'stateStoreSave' THEN 'windows' WHEN 'sessionWindowStateStoreSaveExec' THEN 'sessions' WHEN 'symmetricHashJoin' THEN 'join'
                   WHEN 'transformWithStateInPandasExec' THEN 'processor' ELSE s.kind END AS kind,
       CASE WHEN NOT EXISTS (
           SELECT 1 FROM onlyonce_private.declarations d
           WHERE (d.instance, d.query) = (l.instance, l.query) AND d.parts->'outputs'->l.query->>'join' LIKE '%kind=%') THEN s.rows END AS rows,
       s.rows_in, s.rows_out, s.timers_set, s.timers_ended, s.disk_bytes, s.memory_bytes, s.seen_at
FROM onlyonce_private.states s JOIN onlyonce_private.lineages l USING (lineage) JOIN onlyonce_private.pipelines p USING (instance)
WHERE l.state <> 'closed';
COMMENT ON VIEW onlyonce.state IS 'The state that outputs keep in Spark: open windows, rows of a join that wait for a partner, what a processor keeps. As Spark told it with the last batch.';
COMMENT ON COLUMN onlyonce.state.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.state.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.state.query IS 'the output';
COMMENT ON COLUMN onlyonce.state.lineage IS 'instance/query/life';
COMMENT ON COLUMN onlyonce.state.batch IS 'the batch that told it';
COMMENT ON COLUMN onlyonce.state.kind IS 'windows, sessions, join, processor; else Spark''s name';
COMMENT ON COLUMN onlyonce.state.rows IS 'inner join: the rows of both sides that may still find a partner; NULL: of outer joins and other kinds Spark does not count all that goes, and of a join not any more once a driver was killed right behind a batch';
COMMENT ON COLUMN onlyonce.state.rows_in IS 'rows of state that the batch put in or changed';
COMMENT ON COLUMN onlyonce.state.rows_out IS 'rows of state that it took out';
COMMENT ON COLUMN onlyonce.state.timers_set IS 'processor: timers that it set in the batch';
COMMENT ON COLUMN onlyonce.state.timers_ended IS 'processor: timers that fired or were taken back in the batch';
COMMENT ON COLUMN onlyonce.state.disk_bytes IS 'RocksDB: files of state on the disks of executors, without the changes since they were last written';
COMMENT ON COLUMN onlyonce.state.memory_bytes IS 'what the stores hold in memory, blocks that RocksDB shares included';
COMMENT ON COLUMN onlyonce.state.seen_at IS 'when that was told';

CREATE OR REPLACE VIEW onlyonce.declarations AS
SELECT p.pipeline, d.instance, d.query, d.hash AS declaration_hash, d.parts, d.first_seen_at
FROM onlyonce_private.declarations d JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.declarations IS 'What each query was declared as when it ran: see declaration_hash in batches and windows.';
COMMENT ON COLUMN onlyonce.declarations.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.declarations.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.declarations.query IS 'receive, or the output that reads events; those made from it are in its parts';
COMMENT ON COLUMN onlyonce.declarations.declaration_hash IS 'as in batches and windows';
COMMENT ON COLUMN onlyonce.declarations.parts IS 'the options, and the source of the functions';
COMMENT ON COLUMN onlyonce.declarations.first_seen_at IS 'when a driver first started under it';

CREATE OR REPLACE VIEW onlyonce.releases AS
SELECT p.pipeline, r.instance, r.release_no, r.kind, r.state, s.rows, r.lines, r.left_out, r.still_invalid, r.path AS file,
       r.run_id, b.run_id AS taken_in_by, b.lineage, b.batch_id AS batch, r.begun_at, r.released_at, b.committed_at AS taken_in_at
FROM onlyonce_private.releases r JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN LATERAL (SELECT sum(x.rows)::bigint AS rows FROM onlyonce_private.released_sets x
                   WHERE x.release_no = r.release_no) s ON true
LEFT JOIN onlyonce_private.batches b ON b.state = 'committed' AND b.source_to->'released' @> to_jsonb(r.path)
    AND b.lineage IN (SELECT l.lineage FROM onlyonce_private.lineages l WHERE l.instance = r.instance);
COMMENT ON VIEW onlyonce.releases IS 'Rows of invalid or remnant that were put into the inbox again, and the run that took them in.';
COMMENT ON COLUMN onlyonce.releases.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.releases.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.releases.release_no IS 'counts the releases of the platform';
COMMENT ON COLUMN onlyonce.releases.kind IS 'invalid, remnant';
COMMENT ON COLUMN onlyonce.releases.state IS 'begun (the next release finishes it), released';
COMMENT ON COLUMN onlyonce.releases.rows IS 'rows of events that it took; a file that could not be read is one';
COMMENT ON COLUMN onlyonce.releases.lines IS 'lines of its file: input again, and counted as such';
COMMENT ON COLUMN onlyonce.releases.left_out IS 'lines that were left out, since a record with their id is kept';
COMMENT ON COLUMN onlyonce.releases.still_invalid IS 'of the lines, how many were no record by the declaration of that moment';
COMMENT ON COLUMN onlyonce.releases.file IS 'its file in the inbox; none when all was left out';
COMMENT ON COLUMN onlyonce.releases.run_id IS 'the command that began it';
COMMENT ON COLUMN onlyonce.releases.taken_in_by IS 'the run that read the file';
COMMENT ON COLUMN onlyonce.releases.lineage IS 'the receive lineage of that batch';
COMMENT ON COLUMN onlyonce.releases.batch IS 'the receive batch that read the file';
COMMENT ON COLUMN onlyonce.releases.begun_at IS 'when it began';
COMMENT ON COLUMN onlyonce.releases.released_at IS 'when its file was in the inbox';
COMMENT ON COLUMN onlyonce.releases.taken_in_at IS 'when that batch was committed';

CREATE OR REPLACE VIEW onlyonce.removals AS
SELECT p.pipeline, m.instance, m.removal_no, m.kind, m.state, m.keep_events, m.before AS records_before, e.columns, e.asked_by, e.ids_too,
       r.kept, r.invalid, r.remnant, r.batches, e.lines, e.windows, e.left_alone, e.fingerprint,
       m.files, m.events_version, m.begun_at, m.done_at
FROM onlyonce_private.removals m JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.erasures e USING (instance, removal_no)
LEFT JOIN LATERAL (
    SELECT coalesce(sum(x.rows) FILTER (WHERE x.fate = 'kept'), 0)::bigint AS kept,
           coalesce(sum(x.rows) FILTER (WHERE x.fate = 'invalid'), 0)::bigint AS invalid,
           coalesce(sum(x.rows) FILTER (WHERE x.fate = 'remnant'), 0)::bigint AS remnant,
           count(DISTINCT (x.lineage, x.batch_id)) AS batches
    FROM onlyonce_private.removed_rows x WHERE (x.instance, x.removal_no) = (m.instance, m.removal_no)) r ON true;
COMMENT ON VIEW onlyonce.removals IS 'Records that were removed from events for good: older than the pipeline keeps (keep_events), or erased on request (onlyonce forget).';
COMMENT ON COLUMN onlyonce.removals.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.removals.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.removals.removal_no IS 'counts the removals of the pipeline';
COMMENT ON COLUMN onlyonce.removals.kind IS 'retention (by age), erasure (on request)';
COMMENT ON COLUMN onlyonce.removals.state IS 'begun (the next onlyonce maintain, or the same onlyonce forget, finishes it), done';
COMMENT ON COLUMN onlyonce.removals.keep_events IS 'what the declaration said';
COMMENT ON COLUMN onlyonce.removals.records_before IS 'records from before this event time went; an invalid one has none, so its system time counted';
COMMENT ON COLUMN onlyonce.removals.columns IS 'erasure: by which columns the records were chosen; their values are not stored';
COMMENT ON COLUMN onlyonce.removals.asked_by IS 'erasure: who asked for it';
COMMENT ON COLUMN onlyonce.removals.ids_too IS 'erasure: whether the record ids were forgotten too, so that a re-delivery is a new record';
COMMENT ON COLUMN onlyonce.removals.lines IS 'erasure: lines of input files that were blanked';
COMMENT ON COLUMN onlyonce.removals.windows IS 'erasure: intervals of windows that were computed again';
COMMENT ON COLUMN onlyonce.removals.left_alone IS 'erasure: what could not be erased, by name';
COMMENT ON COLUMN onlyonce.removals.fingerprint IS 'erasure: HMAC-SHA256 of the condition, by which the same one is known again';
COMMENT ON COLUMN onlyonce.removals.kept IS 'how many that were kept';
COMMENT ON COLUMN onlyonce.removals.invalid IS 'how many invalid ones';
COMMENT ON COLUMN onlyonce.removals.remnant IS 'how many remnants';
COMMENT ON COLUMN onlyonce.removals.batches IS 'of how many receive batches';
COMMENT ON COLUMN onlyonce.removals.files IS 'how many data files had such rows';
COMMENT ON COLUMN onlyonce.removals.events_version IS 'the version of events from which they are gone';
COMMENT ON COLUMN onlyonce.removals.begun_at IS 'when it began';
COMMENT ON COLUMN onlyonce.removals.done_at IS 'when it was done; the files leave the disk a day later';

CREATE OR REPLACE VIEW onlyonce.record_ids AS
SELECT p.pipeline, c.instance, to_timestamp(c.bucket * 600) AS bucket_start, count(*) AS chunks,
       sum(c.id_count)::bigint AS ids, sum(octet_length(c.ids) + coalesce(octet_length(c.filter), 0))::bigint AS bytes
FROM onlyonce_private.catalog_chunks c JOIN onlyonce_private.pipelines p USING (instance)
GROUP BY p.pipeline, c.instance, c.bucket;
COMMENT ON VIEW onlyonce.record_ids IS 'How many record ids are remembered to know duplicates by, by bucket of system time. What is older is collected.';
COMMENT ON COLUMN onlyonce.record_ids.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.record_ids.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.record_ids.bucket_start IS 'the ten minutes of system time that begin then';
COMMENT ON COLUMN onlyonce.record_ids.chunks IS 'in how many chunks, each with a Bloom filter';
COMMENT ON COLUMN onlyonce.record_ids.ids IS 'record ids';
COMMENT ON COLUMN onlyonce.record_ids.bytes IS 'ids and the filters of chunks, without those of onlyonce.range_filters';

CREATE OR REPLACE VIEW onlyonce.range_filters AS
SELECT p.pipeline, f.instance, to_timestamp(f.first_bucket * 600) AS range_start, to_timestamp((f.last_bucket + 1) * 600) AS range_end,
       count(*) AS filters, sum(cardinality(f.chunk_hashes))::bigint AS chunks, sum(f.id_count)::bigint AS ids,
       sum(octet_length(f.filter))::bigint AS bytes
FROM onlyonce_private.range_filters f JOIN onlyonce_private.pipelines p USING (instance)
GROUP BY p.pipeline, f.instance, f.first_bucket, f.last_bucket;
COMMENT ON VIEW onlyonce.range_filters IS 'The Bloom filters over the ids of several closed buckets, which a collection makes: a look-up asks them before the filters of the chunks.';
COMMENT ON COLUMN onlyonce.range_filters.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.range_filters.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.range_filters.range_start IS 'the system time with which the range begins';
COMMENT ON COLUMN onlyonce.range_filters.range_end IS 'the system time with which it ends';
COMMENT ON COLUMN onlyonce.range_filters.filters IS 'how many there are, one for each partition';
COMMENT ON COLUMN onlyonce.range_filters.chunks IS 'chunks that were in the range when they were made';
COMMENT ON COLUMN onlyonce.range_filters.ids IS 'their record ids';
COMMENT ON COLUMN onlyonce.range_filters.bytes IS 'the filters';

CREATE OR REPLACE VIEW onlyonce.long_runs AS
SELECT p.pipeline, r.instance, r.attempt,
       CASE WHEN r.exit_code = 0 THEN 'stopped' WHEN r.exit_code > 0 THEN 'failed'
            WHEN r.heartbeat_at + r.lost_after > clock_timestamp()
            THEN CASE WHEN r.stop_asked_at IS NULL THEN 'running' ELSE 'stopping' END
            WHEN r.stop_asked_at IS NULL THEN 'lost' ELSE 'stopped' END AS state,
       r.driver, r.run_id, r.every AS poll_interval, r.turns, r.turn_at, r.started_at, r.heartbeat_at, r.stop_asked_at, r.ended_at,
       r.exit_code, r.why AS error, r.down AS failed_outputs
FROM onlyonce_private.long_runs r JOIN onlyonce_private.pipelines p USING (instance) WHERE r.attempt > 0;
COMMENT ON VIEW onlyonce.long_runs IS 'The last long run of each pipeline: its driver, whether it is alive, how it ended.';
COMMENT ON COLUMN onlyonce.long_runs.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.long_runs.instance IS 'the same: a long run is of the stream';
COMMENT ON COLUMN onlyonce.long_runs.attempt IS 'counts the drivers, one after the other';
COMMENT ON COLUMN onlyonce.long_runs.state IS 'running, stopping (asked to), stopped (as asked), failed (with its exit code), lost (its heartbeat ended)';
COMMENT ON COLUMN onlyonce.long_runs.driver IS 'machine, process and a mark of its own';
COMMENT ON COLUMN onlyonce.long_runs.run_id IS 'the run that started it, which its batches carry';
COMMENT ON COLUMN onlyonce.long_runs.poll_interval IS 'how long it waits between two looks for what is new';
COMMENT ON COLUMN onlyonce.long_runs.turns IS 'looks after which each of its queries had ended a batch since the last turn, or had nothing to do';
COMMENT ON COLUMN onlyonce.long_runs.turn_at IS 'about when its last turn was: old beside a fresh heartbeat, one of its batches takes long or hangs';
COMMENT ON COLUMN onlyonce.long_runs.started_at IS 'when it started';
COMMENT ON COLUMN onlyonce.long_runs.heartbeat_at IS 'its last sign of life';
COMMENT ON COLUMN onlyonce.long_runs.stop_asked_at IS 'when it was asked to stop between two batches';
COMMENT ON COLUMN onlyonce.long_runs.ended_at IS 'when it said that it ended';
COMMENT ON COLUMN onlyonce.long_runs.exit_code IS 'how; 0: as asked';
COMMENT ON COLUMN onlyonce.long_runs.error IS 'the error that it ended with';
COMMENT ON COLUMN onlyonce.long_runs.failed_outputs IS 'the outputs that stand still, each with its error; the others are up';

CREATE OR REPLACE VIEW onlyonce.alerts AS
SELECT kind, subject, what, raised_at, told_at AS notified_at
FROM onlyonce_private.alerts;
COMMENT ON VIEW onlyonce.alerts IS 'The causes of alerts that have not cleared. `onlyonce alerts` looks anew.';
COMMENT ON COLUMN onlyonce.alerts.kind IS 'conservation, lag, near horizon';
COMMENT ON COLUMN onlyonce.alerts.subject IS 'the pipeline, and the stage where there is one';
COMMENT ON COLUMN onlyonce.alerts.what IS 'what was found when it was raised';
COMMENT ON COLUMN onlyonce.alerts.raised_at IS 'when it was first seen';
COMMENT ON COLUMN onlyonce.alerts.notified_at IS 'when the hook was called; none while it has failed, or there is none';

CREATE OR REPLACE VIEW onlyonce.outbox AS
SELECT p.pipeline, o.instance, o.output, o.unit, o.seq, o.key, o.state, o.attempts, o.unanswered, o.uncertain, o.answer,
       o.payload, o.unit || '/' || o.seq || '@' || o.life AS idempotency_key,
       CAST(md5(o.unit || '/' || o.seq || '@' || o.life) AS uuid) AS insert_id,
       o.committed_at, o.due_at, o.begun_at, o.answered_at, o.stream
FROM onlyonce_private.outbox o JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.outbox IS 'Each row for a webhook or BigQuery, with the state of its delivery. Delivered rows stay as long as units do.';
COMMENT ON COLUMN onlyonce.outbox.stream IS 'the write stream of BigQuery that its unit goes to (BigQueryStream), from before the first row was sent';
COMMENT ON COLUMN onlyonce.outbox.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.outbox.instance IS 'the pipeline on its stream, or one bounded run of it, whose rows are sent only when it is named';
COMMENT ON COLUMN onlyonce.outbox.output IS 'the output';
COMMENT ON COLUMN onlyonce.outbox.unit IS 'the unit that committed it: unique_id of commits';
COMMENT ON COLUMN onlyonce.outbox.seq IS 'its number in the unit';
COMMENT ON COLUMN onlyonce.outbox.key IS 'rows of one key are sent in order. BigQuery: none';
COMMENT ON COLUMN onlyonce.outbox.state IS 'held (until its backfill has ended), waiting, sending (an attempt is begun), delivered, dead (given up: onlyonce deliver --retry-dead), invalid (the server rejects it)';
COMMENT ON COLUMN onlyonce.outbox.attempts IS 'how often it was sent, or was about to be; starts again with --retry-dead';
COMMENT ON COLUMN onlyonce.outbox.unanswered IS 'how many attempts had no answer that tells whether the target has it';
COMMENT ON COLUMN onlyonce.outbox.uncertain IS 'the target may have it twice: sent again after an answer was lost, when it may have forgotten the key';
COMMENT ON COLUMN onlyonce.outbox.answer IS 'what came back last';
COMMENT ON COLUMN onlyonce.outbox.payload IS 'what is sent, as JSON';
COMMENT ON COLUMN onlyonce.outbox.idempotency_key IS 'a webhook''s key: unit, number, and an id of the lineage. The same at each attempt';
COMMENT ON COLUMN onlyonce.outbox.insert_id IS 'BigQuery''s insert id: 128 bits of the key. The same at each attempt';
COMMENT ON COLUMN onlyonce.outbox.committed_at IS 'when it was written, with its unit; of a backfill when that had ended';
COMMENT ON COLUMN onlyonce.outbox.due_at IS 'not sent before; null: at once';
COMMENT ON COLUMN onlyonce.outbox.begun_at IS 'when the last attempt began';
COMMENT ON COLUMN onlyonce.outbox.answered_at IS 'when its answer was recorded';

CREATE OR REPLACE VIEW onlyonce.output_files AS
SELECT p.pipeline, f.instance, f.output, f.window_start, f.window_end, f.generation, f.pane, f.shard, f.shards,
       CASE WHEN b.state = 'replaced' THEN 'given up' WHEN f.pane IS NULL THEN 'begun'
            WHEN f.finalized_at IS NULL THEN 'waiting' WHEN f.generation < newest.generation THEN 'replaced' ELSE 'final' END AS state,
       f.place, CASE WHEN f.finalized_at IS NOT NULL THEN f.name END AS name, f.rows, f.bytes, f.checksum,
       f.lineage || '/' || f.batch_id || '/' || f.output || '/' || f.partition AS unique_id, f.lineage, f.batch_id AS batch,
       f.temporary, f.recorded_at, f.finalized_at
FROM onlyonce_private.files f JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.backfills b ON (b.lineage, b.batch_id) = (f.lineage, f.batch_id)
LEFT JOIN LATERAL (
    SELECT max(x.generation) AS generation FROM onlyonce_private.files x
    WHERE x.pane IS NOT NULL AND x.finalized_at IS NOT NULL AND (x.instance, x.output) = (f.instance, f.output)
      AND (x.window_start, x.window_end) = (f.window_start, f.window_end)) newest ON true;
COMMENT ON VIEW onlyonce.output_files IS 'Each file of a sharded output that counts: its window, pane and shard, what is in it, and whether it has its final name. What is not in here is nobody''s.';
COMMENT ON COLUMN onlyonce.output_files.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.output_files.instance IS 'the pipeline on its stream, or one bounded run of it';
COMMENT ON COLUMN onlyonce.output_files.output IS 'the output';
COMMENT ON COLUMN onlyonce.output_files.window_start IS 'the window; none for an output without windows';
COMMENT ON COLUMN onlyonce.output_files.window_end IS 'its end';
COMMENT ON COLUMN onlyonce.output_files.generation IS '0: written by the stream; then one for each backfill. A window is all files of its newest generation';
COMMENT ON COLUMN onlyonce.output_files.pane IS 'counts the panes of the window; none while its batch is not committed';
COMMENT ON COLUMN onlyonce.output_files.shard IS 'which of the shards, from 0';
COMMENT ON COLUMN onlyonce.output_files.shards IS 'how many each window has';
COMMENT ON COLUMN onlyonce.output_files.state IS 'begun: its batch is not committed. waiting: for finalize. final: to be read. replaced: final, but a backfill has made the window anew. given up: of a backfill that was begun again';
COMMENT ON COLUMN onlyonce.output_files.place IS 'the folder or URL; one that is neither absolute nor a URL is in the folder files of the platform';
COMMENT ON COLUMN onlyonce.output_files.name IS 'the final name in that place, once it has it; in an object store the name is in the manifest''s list, and the object is the temporary';
COMMENT ON COLUMN onlyonce.output_files.rows IS 'how many rows';
COMMENT ON COLUMN onlyonce.output_files.bytes IS 'its size';
COMMENT ON COLUMN onlyonce.output_files.checksum IS 'sha256 of its bytes, in hexadecimal';
COMMENT ON COLUMN onlyonce.output_files.unique_id IS 'the unit that it was committed with';
COMMENT ON COLUMN onlyonce.output_files.lineage IS 'instance/query/life; of a backfill instance/output@from--to/1';
COMMENT ON COLUMN onlyonce.output_files.batch IS 'the batch that wrote it';
COMMENT ON COLUMN onlyonce.output_files.temporary IS 'the name under which the winning attempt wrote it';
COMMENT ON COLUMN onlyonce.output_files.recorded_at IS 'when its unit committed';
COMMENT ON COLUMN onlyonce.output_files.finalized_at IS 'when it got its final name';

CREATE OR REPLACE VIEW onlyonce.subscriptions AS
SELECT s.pipeline, s.subscription, s.registered_at, coalesce(sum(cardinality(u.message_ids)), 0)::bigint AS unacknowledged,
       min(u.landed_at) AS oldest_landed_at, to_timestamp(min(u.bucket) * 600) AS holds_from, max(u.lapses_at) AS lapses_at
FROM onlyonce_private.subscriptions s
LEFT JOIN onlyonce_private.unacknowledged u ON u.subscription = s.subscription AND u.lapses_at > clock_timestamp()
GROUP BY s.pipeline, s.subscription, s.registered_at;
COMMENT ON VIEW onlyonce.subscriptions IS 'Whose each Pub/Sub subscription is, and which landed messages it may deliver again.';
COMMENT ON COLUMN onlyonce.subscriptions.pipeline IS 'the declared pipeline; no other one may land from it';
COMMENT ON COLUMN onlyonce.subscriptions.subscription IS 'its whole name';
COMMENT ON COLUMN onlyonce.subscriptions.registered_at IS 'when the pipeline first landed from it';
COMMENT ON COLUMN onlyonce.subscriptions.unacknowledged IS 'messages that are landed and not known to be acknowledged; a message that is landed twice counts twice';
COMMENT ON COLUMN onlyonce.subscriptions.oldest_landed_at IS 'when the oldest of them was landed';
COMMENT ON COLUMN onlyonce.subscriptions.holds_from IS 'while they are there no record id first seen from then on is collected';
COMMENT ON COLUMN onlyonce.subscriptions.lapses_at IS 'when the subscription itself will have thrown the last of them away';

CREATE OR REPLACE VIEW onlyonce.findings AS
SELECT l.looked_at, f.finding, f."where" AS subject, f.what, f.data, f.repair, f.fix
FROM onlyonce_private.looks l
LEFT JOIN LATERAL jsonb_to_recordset(l.found) AS f (finding text, "where" text, what text, data text, repair text, fix text) ON true;
COMMENT ON VIEW onlyonce.findings IS 'What the last `onlyonce doctor`, or the hourly DAG onlyonce_audit, has found stuck. One row without a finding: nothing. No row: nobody has looked yet.';
COMMENT ON COLUMN onlyonce.findings.looked_at IS 'when that was; what was repaired since is still here until the next look';
COMMENT ON COLUMN onlyonce.findings.finding IS 'which kind';
COMMENT ON COLUMN onlyonce.findings.subject IS 'the batch, lineage, file or table';
COMMENT ON COLUMN onlyonce.findings.what IS 'what happened';
COMMENT ON COLUMN onlyonce.findings.data IS 'what it means for the data';
COMMENT ON COLUMN onlyonce.findings.repair IS 'the command that repairs it';
COMMENT ON COLUMN onlyonce.findings.fix IS 'whether `onlyonce doctor --fix` does so: yes; with --yes, since it takes something away; no, a person must';

CREATE OR REPLACE VIEW onlyonce.driver_runs AS
SELECT dag_id, run_id, pipeline, attempt, begun_at, ended_at, exit_code, why AS error FROM onlyonce_private.driver_runs;
COMMENT ON VIEW onlyonce.driver_runs IS 'Which runs of Airflow''s DAGs have driven which pipeline, and how the last driver of each ended.';
COMMENT ON COLUMN onlyonce.driver_runs.dag_id IS 'the DAG, whatever it is called';
COMMENT ON COLUMN onlyonce.driver_runs.run_id IS 'its run; runs of two DAGs may have one id';
COMMENT ON COLUMN onlyonce.driver_runs.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.driver_runs.attempt IS 'how many drivers the run has had: one for each try of its task';
COMMENT ON COLUMN onlyonce.driver_runs.begun_at IS 'when the last of them began';
COMMENT ON COLUMN onlyonce.driver_runs.ended_at IS 'when it said that it had ended; none: it is at work, or was killed';
COMMENT ON COLUMN onlyonce.driver_runs.exit_code IS 'with which exit code; 0: all is committed';
COMMENT ON COLUMN onlyonce.driver_runs.error IS 'by which error';

CREATE OR REPLACE VIEW onlyonce.formats AS
SELECT part, format, made_at FROM onlyonce_private.formats;
COMMENT ON VIEW onlyonce.formats IS 'The format in which the tables behind the views were made. A version of onlyonce that needs another one refuses this database.';
COMMENT ON COLUMN onlyonce.formats.part IS 'authority: epochs and units; platform: the log';
COMMENT ON COLUMN onlyonce.formats.format IS 'its name';
COMMENT ON COLUMN onlyonce.formats.made_at IS 'when the tables were made';

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'onlyonce_reader') THEN
        GRANT USAGE ON SCHEMA onlyonce TO onlyonce_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA onlyonce TO onlyonce_reader;
    END IF;
END $$;
