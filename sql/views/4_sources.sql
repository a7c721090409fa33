-- What sources have, and how far each stage is behind.

CREATE OR REPLACE VIEW onlyonce.sources AS
WITH told AS (
    SELECT p.pipeline, i.instance, newest.*
    FROM (SELECT DISTINCT instance FROM onlyonce_private.incarnations WHERE query = 'receive' AND state <> 'closed') i
    JOIN onlyonce_private.pipelines p USING (instance)
    CROSS JOIN LATERAL (
        SELECT one.progress, one.max_event_time FROM onlyonce_private.incarnations l
        CROSS JOIN LATERAL (
            (SELECT b.source_progress_after AS progress, b.max_event_time_after AS max_event_time, b.delta_version FROM onlyonce_private.batches b
             WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.delta_version IS NOT NULL ORDER BY b.delta_version DESC LIMIT 1)
            UNION ALL
            (SELECT c.source_progress_after, c.max_event_time, c.delta_version FROM onlyonce_private.watermark_markers c
             WHERE c.incarnation = l.incarnation AND c.state = 'committed' ORDER BY c.marker_no DESC LIMIT 1)) one
        WHERE l.instance = i.instance AND l.query = 'receive' ORDER BY one.delta_version DESC LIMIT 1) newest),
each AS (
    SELECT told.pipeline, told.instance, one.key AS source, (one.value->>'max_event_time')::bigint AS max_event_time, (one.value->>'seen')::bigint AS seen,
           (one.value->>'idle')::boolean AS idle, told.max_event_time AS reached
    FROM told CROSS JOIN LATERAL jsonb_each(told.progress) one)
SELECT pipeline, instance, source, to_timestamp(max_event_time / 1000000) + (max_event_time % 1000000) * interval '1 microsecond' AS max_event_time,
       to_timestamp(seen / 1000000) + (seen % 1000000) * interval '1 microsecond' AS last_arrival, idle,
       NOT idle AND (max_event_time IS NULL OR max_event_time = min(max_event_time) FILTER (WHERE NOT idle) OVER (PARTITION BY instance))
           AND (max_event_time IS NULL OR NOT bool_or(max_event_time IS NULL AND NOT idle) OVER (PARTITION BY instance)) AS holds_watermark,
       reached AS pipeline_max_event_time
FROM each;
COMMENT ON VIEW onlyonce.sources IS 'Each source of the pipelines that have several: how far it has come in event time, and which of them holds the watermark back.';
COMMENT ON COLUMN onlyonce.sources.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.sources.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.sources.source IS 'the source''s name';
COMMENT ON COLUMN onlyonce.sources.max_event_time IS 'the largest event time that was kept of it; NULL: none yet';
COMMENT ON COLUMN onlyonce.sources.last_arrival IS 'the ingestion time of its last batch; before the first one, since when the watermark waits for it';
COMMENT ON COLUMN onlyonce.sources.idle IS 'whether nothing has come from it for its idle_after, by the last batch or watermark marker: then it holds nothing back';
COMMENT ON COLUMN onlyonce.sources.holds_watermark IS 'whether the watermark waits for it: of the sources that are not idle it is the furthest behind, or nothing of it is kept yet';
COMMENT ON COLUMN onlyonce.sources.pipeline_max_event_time IS 'the event time by which windows are judged: the smallest of the sources that are not idle; it never moves back';

CREATE OR REPLACE VIEW onlyonce.inputs AS
SELECT p.pipeline, l.instance, s.source, b.incarnation, b.batch_id AS batch, (b.source_to->>'version')::bigint AS version,
       (b.source_to->>'newest')::bigint AS newest_version, b.source_to->'schemas'->'value' AS schemas, b.source_to->'schemas'->'key' AS key_schemas,
       b.source_to->'offsets' AS offsets, b.ingestion_time, b.committed_at
FROM onlyonce_private.incarnations l JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce.sources s USING (instance)
-- With several sources, some are not in the last batches: this reads back so far, and no further.
CROSS JOIN LATERAL (
    SELECT x.* FROM (
        SELECT y.* FROM onlyonce_private.batches y
        WHERE y.incarnation = l.incarnation AND y.state = 'committed' AND y.source_to ? 'batch_no' ORDER BY y.batch_id DESC LIMIT 1000 OFFSET 0) x
    WHERE s.source IS NULL OR x.source_to->>'source' = s.source ORDER BY x.batch_id DESC LIMIT 1) b
WHERE l.query = 'receive' AND l.state <> 'closed' AND l.kind = 'stream';
COMMENT ON VIEW onlyonce.inputs IS 'Up to where each source is received, by its last committed batch: a table''s version and its newest version, the schemas of its messages, its offsets. The schemas and offsets of earlier batches are in end_offset of batches.';
COMMENT ON COLUMN onlyonce.inputs.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.inputs.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.inputs.source IS 'of several sources, which; NULL: there is one. A source without a batch among the last 1,000 has no row';
COMMENT ON COLUMN onlyonce.inputs.incarnation IS 'the incarnation of receive';
COMMENT ON COLUMN onlyonce.inputs.batch IS 'its last committed batch of that source';
COMMENT ON COLUMN onlyonce.inputs.version IS 'a Delta table: the last version with rows that is received';
COMMENT ON COLUMN onlyonce.inputs.newest_version IS 'a Delta table: its newest version when that batch began';
COMMENT ON COLUMN onlyonce.inputs.schemas IS 'Kafka with a schema registry: the schema ids of the messages in that batch';
COMMENT ON COLUMN onlyonce.inputs.key_schemas IS 'the schemas of their keys';
COMMENT ON COLUMN onlyonce.inputs.offsets IS 'Kafka: by partition the first offset and the one behind the last';
COMMENT ON COLUMN onlyonce.inputs.ingestion_time IS 'when its input was first seen';
COMMENT ON COLUMN onlyonce.inputs.committed_at IS 'when the batch was committed';

CREATE OR REPLACE VIEW onlyonce.lag AS
WITH stage AS (
    SELECT p.pipeline, l.instance, l.query, l.incarnation, begun.*, last.last_batch, last.last_committed_at,
           coalesce(last.read_upto, (l.start_from->>'version')::bigint - 1, -1) AS read_upto
    FROM onlyonce_private.incarnations l JOIN onlyonce_private.pipelines p USING (instance)
    CROSS JOIN LATERAL (
        SELECT count(*) AS begun, min(b.ingestion_time) AS begun_since, sum((b.source_to->>'lines')::bigint) AS begun_lines
        FROM onlyonce_private.batches b WHERE b.incarnation = l.incarnation AND b.state = 'begun') begun
    -- Offsets and progress never move back, so the last batch has them; adding up all batches took seconds.
    LEFT JOIN LATERAL (
        SELECT b.batch_id AS last_batch, b.committed_at AS last_committed_at,
               (b.source_to->>'reservoirVersion')::bigint
                   - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END AS read_upto
        FROM onlyonce_private.batches b WHERE b.incarnation = l.incarnation AND b.state = 'committed'
        ORDER BY b.batch_id DESC LIMIT 1) last ON true
    WHERE l.state <> 'closed' AND l.kind = 'stream'),
known AS (
    SELECT stage.*, r.waiting, r.waiting_records, r.waiting_since, t.max_event_time
    FROM stage CROSS JOIN LATERAL (
        SELECT count(*) AS waiting, sum(b.kept)::bigint AS waiting_records, min(b.ingestion_time) AS waiting_since
        FROM onlyonce_private.incarnations l JOIN onlyonce_private.batches b USING (incarnation)
        WHERE stage.query <> 'receive' AND l.instance = stage.instance AND l.query = 'receive' AND b.state = 'committed'
          AND b.delta_version > stage.read_upto) r
    CROSS JOIN LATERAL (
        SELECT max(x.max_event_time) AS max_event_time FROM onlyonce_private.incarnations l CROSS JOIN LATERAL (
            (SELECT b.max_event_time_after AS max_event_time FROM onlyonce_private.batches b
             WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.max_event_time_after IS NOT NULL
               AND b.delta_version <= CASE WHEN stage.query = 'receive' THEN 9223372036854775807 ELSE stage.read_upto END
             ORDER BY b.delta_version DESC LIMIT 1)
            UNION ALL
            (SELECT c.max_event_time FROM onlyonce_private.watermark_markers c
             WHERE c.incarnation = l.incarnation AND c.state = 'committed'
               AND c.delta_version <= CASE WHEN stage.query = 'receive' THEN 9223372036854775807 ELSE stage.read_upto END
             ORDER BY c.delta_version DESC LIMIT 1)) x
        WHERE l.instance = stage.instance AND l.query = 'receive') t),
aged AS (
    SELECT pipeline, instance, query, incarnation, begun, last_batch, last_committed_at, max_event_time,
           CASE WHEN query = 'receive' THEN begun_since ELSE waiting_since END AS oldest,
           CASE WHEN query = 'receive' THEN begun ELSE waiting END AS batches_waiting,
           CASE WHEN query = 'receive' THEN begun_lines ELSE waiting_records END AS records_waiting, read_upto
    FROM known
    UNION ALL
    SELECT p.pipeline, o.instance, o.output || '/deliver', o.instance || '/' || o.output || '/deliver', 0, NULL, NULL, NULL,
           min(o.committed_at), NULL, count(*), NULL
    FROM onlyonce_private.outbox o JOIN onlyonce_private.pipelines p USING (instance)
    WHERE o.state IN ('waiting', 'sending') AND o.instance = p.pipeline GROUP BY p.pipeline, o.instance, o.output
    UNION ALL
    SELECT s.pipeline, s.instance, 'receive/' || s.source, s.instance || '/receive/' || s.source, coalesce(begun.batches, 0), NULL,
           NULL, s.max_event_time, begun.since, coalesce(begun.batches, 0), begun.lines, NULL
    FROM onlyonce.sources s
    LEFT JOIN LATERAL (
        SELECT count(*) AS batches, min(b.ingestion_time) AS since, sum((b.source_to->>'lines')::bigint) AS lines
        FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
        WHERE l.instance = s.instance AND l.query = 'receive' AND b.state = 'begun' AND b.source_to->>'source' = s.source) begun ON true)
SELECT aged.pipeline, aged.instance, query AS stage, incarnation, coalesce(late.system_lag, interval '0') AS system_lag,
       late.system_lag > interval '0' AND late.system_lag = max(late.system_lag) OVER (PARTITION BY aged.instance) AS slowest,
       batches_waiting, coalesce(records_waiting, 0)::bigint AS records_waiting,
       begun AS batches_begun, last_batch, last_committed_at, aged.max_event_time, clock_timestamp() - aged.max_event_time AS freshness, s.idle, s.holds_watermark,
       CASE WHEN last_batch IS NULL OR query = 'receive' THEN NULL
            WHEN coalesce(records_waiting, 0) = 0 THEN interval '0'
            ELSE records_waiting / nullif(read.records, 0) * rate.seconds * interval '1 second' END AS catch_up
FROM aged CROSS JOIN LATERAL (SELECT greatest(clock_timestamp() - oldest, interval '0') AS system_lag) late
CROSS JOIN LATERAL (
    SELECT min(x.read_after) AS read_after, sum(x.seconds) AS seconds
    FROM (SELECT extract(epoch FROM b.committed_at - b.begun_at)::float AS seconds,
                 coalesce((b.source_from->>'reservoirVersion')::bigint
                     - CASE WHEN coalesce((b.source_from->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END, -1) AS read_after
          FROM onlyonce_private.batches b
          WHERE aged.query <> 'receive' AND b.incarnation = aged.incarnation AND b.state = 'committed' ORDER BY b.batch_id DESC LIMIT 20) x) rate
-- An output counts a record once for each of its windows, so its records are counted where receive has kept them.
CROSS JOIN LATERAL (
    SELECT sum(b.kept)::float AS records FROM onlyonce_private.incarnations l JOIN onlyonce_private.batches b USING (incarnation)
    WHERE rate.seconds > 0 AND records_waiting > 0 AND l.instance = aged.instance AND l.query = 'receive' AND b.state = 'committed'
      AND b.delta_version > rate.read_after AND b.delta_version <= aged.read_upto) read
LEFT JOIN onlyonce.sources s ON s.instance = aged.instance AND 'receive/' || s.source = aged.query;
COMMENT ON VIEW onlyonce.lag IS 'How far each stage of each pipeline is behind, by the log: one row for receive, for each of several sources, for each output that has run, and for each delivery with rows to send. `slowest` names the slow stage.';
COMMENT ON COLUMN onlyonce.lag.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.lag.instance IS 'the stream of the pipeline, or one of its bounded runs that has not finished';
COMMENT ON COLUMN onlyonce.lag.stage IS 'receive, the output, or output/deliver: what its outbox has not delivered; receive/source: one of several sources';
COMMENT ON COLUMN onlyonce.lag.incarnation IS 'instance/query/ordinal; of a delivery instance/output/deliver, of a source instance/receive/source';
COMMENT ON COLUMN onlyonce.lag.system_lag IS 'the age of the oldest input that waits for this stage, by the time it was first seen; 0 when none does. Receive: of its begun batches. The log does not know of files that no run has listed, nor of listed ones whose batch has not begun';
COMMENT ON COLUMN onlyonce.lag.slowest IS 'whether its input waits the longest of all stages of the pipeline';
COMMENT ON COLUMN onlyonce.lag.batches_waiting IS 'receive: batches begun and not committed. An output: committed receive batches that it has not committed';
COMMENT ON COLUMN onlyonce.lag.records_waiting IS 'the records in them: of receive all lines, of an output those that were kept; of a delivery the rows that are not sent';
COMMENT ON COLUMN onlyonce.lag.batches_begun IS 'batches of this stage that began and are not committed';
COMMENT ON COLUMN onlyonce.lag.last_batch IS 'the last batch that it has committed; NULL for a source';
COMMENT ON COLUMN onlyonce.lag.last_committed_at IS 'when that was';
COMMENT ON COLUMN onlyonce.lag.max_event_time IS 'the largest event time of what it has committed (of several sources the smallest among the sources that are not idle): its watermark is this minus its watermark_delay';
COMMENT ON COLUMN onlyonce.lag.freshness IS 'the age of that event time';
COMMENT ON COLUMN onlyonce.lag.idle IS 'one of several sources: whether nothing has come for its idle_after, so that it holds nothing back';
COMMENT ON COLUMN onlyonce.lag.holds_watermark IS 'one of several sources: whether the watermark waits for it';
COMMENT ON COLUMN onlyonce.lag.catch_up IS 'an output: how long the records that wait take at the rate of its last 20 batches; NULL: it has read no record yet. For a source see the view backlog';

CREATE OR REPLACE VIEW onlyonce.subscriptions AS
SELECT s.pipeline, s.subscription, s.registered_at, coalesce(sum(cardinality(u.message_ids)), 0)::bigint AS unacknowledged,
       min(u.pulled_at) AS oldest_pulled_at, to_timestamp(min(u.bucket) * 600) AS holds_from, max(u.lapses_at) AS lapses_at
FROM onlyonce_private.subscriptions s
LEFT JOIN onlyonce_private.unacknowledged u ON u.subscription = s.subscription AND u.lapses_at > clock_timestamp()
GROUP BY s.pipeline, s.subscription, s.registered_at;
COMMENT ON VIEW onlyonce.subscriptions IS 'Whose each Pub/Sub subscription is, and which pulled messages it may deliver again.';
COMMENT ON COLUMN onlyonce.subscriptions.pipeline IS 'the declared pipeline; no other one may pull from it';
COMMENT ON COLUMN onlyonce.subscriptions.subscription IS 'its whole name';
COMMENT ON COLUMN onlyonce.subscriptions.registered_at IS 'when the pipeline first pulled from it';
COMMENT ON COLUMN onlyonce.subscriptions.unacknowledged IS 'messages that are pulled and not known to be acknowledged; a message that is pulled twice counts twice';
COMMENT ON COLUMN onlyonce.subscriptions.oldest_pulled_at IS 'when the oldest of them was pulled';
COMMENT ON COLUMN onlyonce.subscriptions.holds_from IS 'while they are there no record id first seen from then on is removed';
COMMENT ON COLUMN onlyonce.subscriptions.lapses_at IS 'when the subscription itself will have thrown the last of them away';

CREATE OR REPLACE VIEW onlyonce.taken_in AS
SELECT p.pipeline, last.instance, last.batch_no, last.committed_at, rate.records / nullif(rate.seconds, 0) AS records_per_second
FROM (
    SELECT DISTINCT ON (l.instance) l.instance, l.incarnation, b.batch_no, b.committed_at FROM onlyonce_private.incarnations l
    CROSS JOIN LATERAL (
        SELECT (x.source_to->>'batch_no')::bigint AS batch_no, x.committed_at FROM onlyonce_private.batches x
        WHERE x.incarnation = l.incarnation AND x.state = 'committed' ORDER BY x.batch_id DESC LIMIT 1) b
    WHERE l.query = 'receive' ORDER BY l.instance, l.ordinal DESC) last
JOIN onlyonce_private.pipelines p USING (instance)
CROSS JOIN LATERAL (
    SELECT sum(x.read)::float AS records, sum(extract(epoch FROM x.committed_at - x.begun_at))::float AS seconds
    FROM (SELECT b.read, b.begun_at, b.committed_at FROM onlyonce_private.batches b
          WHERE b.incarnation = last.incarnation AND b.state = 'committed' ORDER BY b.batch_id DESC LIMIT 20) x) rate;
COMMENT ON VIEW onlyonce.taken_in IS 'Up to which batch of its manifest each pipeline and bounded run has committed its input, and how fast its last batches read.';
COMMENT ON COLUMN onlyonce.taken_in.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.taken_in.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.taken_in.batch_no IS 'the number of the last committed batch in the manifest of the source; of several sources in their common order';
COMMENT ON COLUMN onlyonce.taken_in.committed_at IS 'when that batch was committed';
COMMENT ON COLUMN onlyonce.taken_in.records_per_second IS 'records in a second of the last 20 batches, from the begin of each to its commit';

CREATE OR REPLACE VIEW onlyonce.backlog AS
SELECT a.pipeline, nullif(a.source, '') AS source, CASE WHEN a.source = '' THEN 'receive' ELSE 'receive/' || a.source END AS stage,
       a.asked_at, now.is_current, a.answered,
       CASE WHEN now.is_current THEN a.bytes END AS backlog_bytes, CASE WHEN now.is_current THEN a.records END AS backlog_records,
       CASE WHEN now.is_current THEN a.oldest_unread_at END AS oldest_unread_at,
       CASE WHEN now.is_current THEN clock_timestamp() - a.oldest_unread_at END AS oldest_unread_age,
       CASE WHEN now.is_current AND a.records = 0 THEN interval '0'
            WHEN now.is_current AND t.records_per_second > 0 THEN a.records / t.records_per_second * interval '1 second' END AS catch_up,
       CASE WHEN now.is_current THEN a.detail END AS detail, a.why_unknown
FROM onlyonce_private.source_answers a LEFT JOIN onlyonce.taken_in t ON t.instance = a.pipeline
CROSS JOIN LATERAL (SELECT a.asked_at >= clock_timestamp() - 3 * a.asked_every AS is_current) now;
COMMENT ON VIEW onlyonce.backlog IS 'What each source said that no committed batch has read, when the DAG onlyonce_ask_sources asked it last. onlyonce lag asks now.';
COMMENT ON COLUMN onlyonce.backlog.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.backlog.source IS 'one of several sources; NULL: the pipeline has one';
COMMENT ON COLUMN onlyonce.backlog.stage IS 'receive, or receive/source, as in the view lag';
COMMENT ON COLUMN onlyonce.backlog.asked_at IS 'when it was asked';
COMMENT ON COLUMN onlyonce.backlog.is_current IS 'whether the answer is not older than three intervals; the values of an older one are NULL';
COMMENT ON COLUMN onlyonce.backlog.answered IS 'whether it answered; if not, no value is known';
COMMENT ON COLUMN onlyonce.backlog.backlog_bytes IS 'bytes that are not read; NULL: not known';
COMMENT ON COLUMN onlyonce.backlog.backlog_records IS 'records that are not read; NULL: not known, as of files that no run has listed';
COMMENT ON COLUMN onlyonce.backlog.oldest_unread_at IS 'when the oldest of them came, by the source';
COMMENT ON COLUMN onlyonce.backlog.oldest_unread_age IS 'the age of it';
COMMENT ON COLUMN onlyonce.backlog.catch_up IS 'how long these records take at the rate of the last 20 batches';
COMMENT ON COLUMN onlyonce.backlog.detail IS 'how they are divided: files, versions of a table, or by partition of a topic records and seconds';
COMMENT ON COLUMN onlyonce.backlog.why_unknown IS 'why it did not answer, or why a value is not known';
