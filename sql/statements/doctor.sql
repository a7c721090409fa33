-- queries --
-- The incarnations that are not closed, with their last batches, and whether a driver of one has a session here.
SELECT p.pipeline, l.instance, l.query, l.incarnation, l.ordinal, l.state, l.checkpoint_id, e.epoch, b.begun, b.committed,
       onlyonce_private.at_work(l.incarnation_no, NULL) AS at_work
FROM onlyonce_private.incarnations l JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.epochs e USING (incarnation)
CROSS JOIN LATERAL (
    SELECT (SELECT max(x.batch_id) FROM onlyonce_private.batches x WHERE x.incarnation = l.incarnation) AS begun,
           (SELECT x.batch_id FROM onlyonce_private.batches x WHERE x.incarnation = l.incarnation AND x.state = 'committed'
            ORDER BY x.batch_id DESC LIMIT 1) AS committed) b
WHERE l.state <> 'closed' AND l.kind = 'stream' ORDER BY l.instance, l.query = 'receive' DESC, l.query

-- begun_batches --
-- Batches that began and did not commit, their units, for how long nothing of them has changed, not even their driver,
-- and how long the last batches took (median).
SELECT b.incarnation, b.batch_id, b.run_id, b.begun_at, b.declaration_hash, u.units, u.dead, u.epochs,
       extract(epoch FROM clock_timestamp() - greatest(l.started_at, b.begun_at, u.last, d.since))::float AS quiet_seconds, t.usual_seconds
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
LEFT JOIN onlyonce_private.epochs e USING (incarnation)
CROSS JOIN LATERAL (
    SELECT count(*) AS units, count(*) FILTER (WHERE x.epoch < e.epoch OR NOT onlyonce_private.at_work(l.incarnation_no, x.epoch)) AS dead,
           string_agg(DISTINCT x.epoch::text, ', ') AS epochs, max(x.committed_at) AS last
    FROM onlyonce_private.units x WHERE (x.incarnation, x.batch_id) = (b.incarnation, b.batch_id)) u
CROSS JOIN LATERAL (
    SELECT min(a.backend_start) AS since FROM pg_catalog.pg_stat_activity a
    WHERE a.datname = current_database() AND a.application_name = 'onlyonce/' || l.incarnation_no || '/' || e.epoch) d
CROSS JOIN LATERAL (
    SELECT (percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM x.committed_at - x.begun_at)))::float AS usual_seconds
    FROM (SELECT y.begun_at, y.committed_at FROM onlyonce_private.batches y
          WHERE y.incarnation = b.incarnation AND y.state = 'committed' ORDER BY y.batch_id DESC LIMIT 10) x) t
WHERE b.state = 'begun' ORDER BY b.incarnation, b.batch_id

-- begun_markers --
-- Watermark markers of the input that began and are not in the log as done.
SELECT c.incarnation, c.marker_no, c.kind, c.run_id, c.begun_at,
       extract(epoch FROM clock_timestamp() - greatest(l.started_at, c.begun_at))::float AS quiet_seconds
FROM onlyonce_private.watermark_markers c JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE c.state = 'begun' AND l.state <> 'closed' ORDER BY c.incarnation

-- begun_backfills --
-- Backfills that began and did not commit, and whether their driver has a session here.
SELECT p.pipeline, f.instance, f.output, f.incarnation, f.run_id, f.begun_at, f.asked_by, f.window_from, f.window_to,
       extract(epoch FROM clock_timestamp() - greatest(l.started_at, f.begun_at))::float AS quiet_seconds,
       onlyonce_private.at_work(l.incarnation_no, f.epoch) AS at_work
FROM onlyonce_private.backfills f JOIN onlyonce_private.incarnations l USING (incarnation)
JOIN onlyonce_private.pipelines p ON p.instance = f.instance
WHERE f.state = 'begun' ORDER BY f.begun_at

-- begun_reprocessings --
-- Reprocessings that took their rows and have put no file into the inbox.
SELECT r.instance, r.reprocessing_no, r.kind, r.run_id, r.begun_at,
       extract(epoch FROM clock_timestamp() - r.begun_at)::float AS quiet_seconds
FROM onlyonce_private.reprocessings r WHERE r.state = 'begun' ORDER BY r.reprocessing_no

-- lost_long_runs --
-- Continuous runs whose heartbeat has stopped without notice, and that were neither started again nor asked to stop.
SELECT r.pipeline, r.instance, r.attempt, r.driver, r.run_id,
       extract(epoch FROM clock_timestamp() - r.heartbeat_at)::float AS quiet_seconds
FROM onlyonce.long_runs r WHERE r.state = 'lost' ORDER BY r.instance

-- outputs_down --
-- Outputs of living continuous runs that are down while the others continue, each with its error.
SELECT r.pipeline, r.instance, d.key AS output, d.value AS why
FROM onlyonce.long_runs r CROSS JOIN LATERAL jsonb_each_text(r.failed_outputs) d
WHERE r.state IN ('running', 'stopping') ORDER BY r.instance, d.key

-- waiting_files --
-- Files of committed batches without their final names, by output, and how long the first of them waits.
SELECT p.pipeline, f.instance, f.output, count(*) AS files, min(f.place) AS place,
       extract(epoch FROM clock_timestamp() - min(coalesce(b.committed_at, k.committed_at, f.recorded_at)))::float AS waiting_seconds
FROM onlyonce_private.files f JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.batches b ON (b.incarnation, b.batch_id) = (f.incarnation, f.batch_id)
LEFT JOIN onlyonce_private.backfills k ON (k.incarnation, k.batch_id) = (f.incarnation, f.batch_id)
WHERE f.pane IS NOT NULL AND f.finalized_at IS NULL GROUP BY 1, 2, 3 ORDER BY 2, 3

-- given_up_rows --
-- Dead letters and rejected rows of the outbox, by output, with the last answer to one of them.
SELECT p.pipeline, g.*, last.answer
FROM (SELECT instance, output, state, count(*) AS rows, count(*) FILTER (WHERE unanswered > 0) AS unanswered
      FROM onlyonce_private.outbox WHERE state IN ('dead', 'invalid') GROUP BY 1, 2, 3) g
JOIN onlyonce_private.pipelines p USING (instance)
CROSS JOIN LATERAL (
    SELECT x.answer FROM onlyonce_private.outbox x
    WHERE (x.instance, x.output, x.state) = (g.instance, g.output, g.state) AND x.state IN ('dead', 'invalid')
    ORDER BY x.answered_at DESC, x.row_no DESC LIMIT 1) last
ORDER BY g.instance, g.output, g.state

-- undelivered_rows --
-- Rows of the outbox to send: for how long a due attempt was not made, and whether a deliverer holds the lock. Rows of
-- a bounded run don't count: they wait until a command names the run.
SELECT p.pipeline, o.instance, o.output, count(*) AS rows,
       extract(epoch FROM clock_timestamp() - greatest(min(o.committed_at), max(o.begun_at), max(o.answered_at), max(o.due_at)))::float
           AS quiet_seconds,
       EXISTS (SELECT 1 FROM onlyonce_private.locks l
               WHERE l.name = 'deliverer/' || o.instance || '/' || o.output || '/deliver' AND onlyonce_private.lives(l.pid, l.began_at)) AS at_work
FROM onlyonce_private.outbox o JOIN onlyonce_private.pipelines p USING (instance)
WHERE o.state IN ('waiting', 'sending') AND o.instance = p.pipeline GROUP BY 1, 2, 3 ORDER BY 2, 3

-- open_subscriptions --
-- Subscriptions with pulled messages that are not known to be acknowledged, and how long ago the first of them was pulled.
SELECT s.pipeline, s.subscription, s.unacknowledged AS messages, s.lapses_at,
       extract(epoch FROM clock_timestamp() - s.oldest_pulled_at)::float AS held_seconds
FROM onlyonce.subscriptions s WHERE s.unacknowledged > 0 ORDER BY s.subscription

-- orphan_units --
-- Units for which the log has neither a batch nor a backfill.
SELECT u.incarnation, u.batch_id, u.units, u.first
FROM (SELECT incarnation, batch_id, count(*) AS units, min(unique_id) AS first FROM onlyonce_private.units
      WHERE authority = 'platform' GROUP BY 1, 2 OFFSET 0) u
CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT 1 FROM onlyonce_private.batches b WHERE (b.incarnation, b.batch_id) = (u.incarnation, u.batch_id))
        OR EXISTS (SELECT 1 FROM onlyonce_private.backfills f WHERE (f.incarnation, f.batch_id) = (u.incarnation, u.batch_id)) AS known OFFSET 0) log
WHERE NOT log.known ORDER BY 1, 2

-- uneven_buckets --
-- The live buckets in which an incarnation has more or fewer ids in the catalog than its batches have kept. Ids that were
-- added after a switch of mode are fewer than the records.
WITH said AS (
    SELECT l.instance, b.incarnation, b.bucket, bool_or(b.mode = 'at_least_once') AS plain,
           -- Ids that were erased with their records are in no chunk.
           sum(CASE WHEN b.state = 'committed' THEN b.kept - coalesce((
               SELECT sum(r.rows) FROM onlyonce_private.removed_rows r JOIN onlyonce_private.erasures e USING (instance, removal_no)
               WHERE e.ids_too AND (r.incarnation, r.batch_id, r.fate) = (b.incarnation, b.batch_id, 'kept')), 0) ELSE (
               SELECT sum(u.kept) FROM onlyonce_private.units u WHERE (u.incarnation, u.batch_id) = (b.incarnation, b.batch_id)) END) AS ids
    FROM onlyonce_private.incarnations l JOIN onlyonce_private.pipelines p USING (instance)
    CROSS JOIN LATERAL (
        SELECT * FROM onlyonce_private.batches x
        WHERE x.incarnation = l.incarnation AND x.bucket >= p.gc_floor AND x.bucket <= 9223372036854775807 OFFSET 0) b
    WHERE l.query = 'receive' AND b.bucket >= b.gc_floor
      AND (b.mode = 'exactly_once' OR b.ids_added_at IS NOT NULL)
    GROUP BY 1, 2, 3),
there AS (
    -- No look-up asks a chunk that is not listed.
    SELECT c.instance, c.incarnation, c.bucket, sum(c.id_count) FILTER (WHERE EXISTS (
               SELECT 1 FROM onlyonce_private.chunk_list x
               WHERE (x.instance, x.bucket, x.incarnation, x.batch_id, x.partition) = (c.instance, c.bucket, c.incarnation, c.batch_id, c.partition)
                 AND x.id_count = c.id_count)) AS ids,
           sum(c.id_count) FILTER (WHERE NOT EXISTS (
               SELECT 1 FROM onlyonce_private.batches b WHERE (b.incarnation, b.batch_id) = (c.incarnation, c.batch_id))) AS unknown
    FROM onlyonce_private.catalog_chunks c JOIN onlyonce_private.pipelines p USING (instance)
    WHERE c.bucket >= p.gc_floor GROUP BY 1, 2, 3),
both_sides AS (
    SELECT instance, incarnation, bucket, coalesce(said.plain, false) AS plain, coalesce(said.ids, 0)::bigint AS said,
           coalesce(there.ids, 0)::bigint AS there, coalesce(there.unknown, 0)::bigint AS unknown
    FROM said FULL JOIN there USING (instance, incarnation, bucket))
SELECT instance, incarnation, bucket, said, there, unknown FROM both_sides
WHERE unknown > 0 OR there > said OR (there < said AND (NOT plain OR there = 0)) ORDER BY 1, 2, 3

-- live_chunks --
-- The chunks of live buckets with ids, whose filters are checked.
SELECT c.instance, c.bucket, c.incarnation, c.batch_id, c.partition, c.id_count
FROM onlyonce_private.chunk_list c JOIN onlyonce_private.pipelines p USING (instance)
WHERE c.bucket >= p.gc_floor AND c.id_count > 0 ORDER BY 1, 2, 3, 4, 5

-- read_from_events --
-- The highest version of `events` that the log refers to, by instance.
SELECT l.instance, max(v.delta_version) AS version
FROM onlyonce_private.incarnations l CROSS JOIN LATERAL (
    SELECT max(b.delta_version) AS delta_version FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.delta_version IS NOT NULL
    UNION ALL SELECT max(c.delta_version) FROM onlyonce_private.watermark_markers c WHERE c.incarnation = l.incarnation AND c.state = 'committed') v
WHERE l.query = 'receive' GROUP BY 1 HAVING max(v.delta_version) IS NOT NULL ORDER BY 1

-- kept_in_bucket --
-- The committed batches of an incarnation whose ids are in a bucket of the id catalog. Erased records are no longer in
-- `events` and can't be read from there.
SELECT b.incarnation, b.batch_id, b.bucket, b.partitions, b.kept - coalesce((
    SELECT sum(r.rows) FROM onlyonce_private.removed_rows r WHERE (r.incarnation, r.batch_id, r.fate) = (b.incarnation, b.batch_id, 'kept')), 0)::bigint AS kept
FROM onlyonce_private.batches b
WHERE b.incarnation = :incarnation AND b.bucket = :bucket AND b.state = 'committed' AND b.kept > 0
  AND (b.mode = 'exactly_once' OR b.ids_added_at IS NOT NULL)
ORDER BY b.batch_id

-- take_chunks --
-- The chunks of some committed batches of an incarnation in a bucket, to be made again in the same transaction. Entries
-- whose chunks were lost are deleted too.
WITH unlisted AS (
    DELETE FROM onlyonce_private.chunk_list
    WHERE instance = :instance AND bucket = :bucket AND incarnation = :incarnation AND batch_id = ANY (:batch_ids))
DELETE FROM onlyonce_private.catalog_chunks
WHERE instance = :instance AND bucket = :bucket AND incarnation = :incarnation AND batch_id = ANY (:batch_ids)

-- ahead --
-- Instances whose last input was registered by a clock more than five minutes ahead of this one.
SELECT p.pipeline, a.instance, a.seen_at AS reached, extract(epoch FROM a.seen_at - clock_timestamp())::float AS ahead_seconds
FROM onlyonce_private.last_arrivals a JOIN onlyonce_private.pipelines p USING (instance)
WHERE a.seen_at > clock_timestamp() + interval '5 minutes' ORDER BY 2

-- note_look --
-- The findings, in place of the previous ones.
INSERT INTO onlyonce_private.looks (found) VALUES (cast(:found AS jsonb))
ON CONFLICT (last) DO UPDATE SET looked_at = clock_timestamp(), found = excluded.found
