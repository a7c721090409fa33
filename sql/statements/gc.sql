-- instances --
-- All pipelines and bounded runs.
SELECT instance, pipeline, gc_floor FROM onlyonce_private.pipelines ORDER BY instance

-- lock_floor --
-- The stored floor. The lock conflicts with the FOR SHARE of a batch that begins: none of the instance begins between
-- this read and the new floor.
SELECT instance_no, gc_floor FROM onlyonce_private.pipelines WHERE instance = :instance FOR NO KEY UPDATE

-- known --
-- The receive batches that limit the floor: by bucket, and for begun ones the smallest floor that they began with.
SELECT b.bucket, b.state, min(b.begun_with) AS begun_with
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (
    SELECT x.bucket, x.state, x.gc_floor AS begun_with FROM onlyonce_private.batches x
    WHERE x.incarnation = l.incarnation AND x.bucket >= :floor
    UNION ALL
    SELECT x.bucket, x.state, x.gc_floor FROM onlyonce_private.batches x WHERE x.incarnation = l.incarnation AND x.state = 'begun') b
WHERE l.instance = :instance AND l.query = 'receive'
GROUP BY b.bucket, b.state

-- newest --
-- The bucket of the last arrival. Later buckets belong to input that a wrong clock has dated, and whose arrival was
-- corrected since.
SELECT floor(extract(epoch FROM seen_at) / 600)::bigint AS bucket FROM onlyonce_private.last_arrivals WHERE instance = :instance

-- held --
-- The lowest bucket of pulled messages that Pub/Sub may deliver again; NULL when there are none.
SELECT min(u.bucket) AS bucket
FROM onlyonce_private.unacknowledged u JOIN onlyonce_private.pipelines p USING (pipeline)
WHERE p.instance = :instance AND u.lapses_at > clock_timestamp()

-- raise_floor --
-- The floor never moves back, even if several gc runs raise it.
UPDATE onlyonce_private.pipelines SET gc_floor = :floor WHERE instance = :instance AND gc_floor < :floor

-- buckets_below --
-- The tables of an instance's buckets below the floor, including one that a user has detached or was detaching.
SELECT c.relname AS name, b.bucket, coalesce(i.inhdetachpending, false) AS detaching
FROM pg_class c
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
CROSS JOIN LATERAL (SELECT CAST(substring(c.relname FROM '^catalog_[0-9]+_([0-9]+)$') AS bigint) AS bucket) b
WHERE c.relnamespace = CAST('onlyonce_private' AS regnamespace) AND c.relkind = 'r'
  AND c.relname ~ ('^' || :parent || '_[0-9]+$') AND b.bucket < :floor
ORDER BY b.bucket

-- bucket_before --
-- The bucket of the last batch of an incarnation before one.
SELECT bucket FROM onlyonce_private.batches
WHERE incarnation = :incarnation AND batch_id < :batch_id AND state = 'committed'
ORDER BY batch_id DESC LIMIT 1

-- short_wait --
-- New readers queue behind a DROP that waits for a running one, so it waits only shortly.
SELECT set_config('lock_timeout', :wait, true)

-- size --
-- The bytes of a table with its index and TOAST; NULL if the table is gone.
SELECT pg_total_relation_size(to_regclass(:name)) AS bytes

-- crowded --
-- The buckets in which some incarnation and partition has several chunks that are not full, with the newest bucket that is
-- committed. Below that one a bucket is closed: ingestion time does not move back.
SELECT c.bucket, n.newest
FROM onlyonce_private.chunk_list c
CROSS JOIN (SELECT max(last.bucket) AS newest FROM onlyonce_private.incarnations l CROSS JOIN LATERAL (
                SELECT b.bucket FROM onlyonce_private.batches b WHERE b.incarnation = l.incarnation AND b.state = 'committed'
                ORDER BY b.bucket DESC LIMIT 1) last
            WHERE l.instance = :instance AND l.query = 'receive') n
WHERE c.instance = :instance AND c.bucket >= :floor AND c.id_count <= :half
GROUP BY c.bucket, n.newest
HAVING count(*) > count(DISTINCT (c.incarnation, c.partitions, c.partition))
ORDER BY c.bucket

-- parts --
-- The chunks of a bucket that are not full, of committed batches only. These are never replayed, so no look-up needs
-- fewer than all of them.
SELECT c.incarnation, c.partitions, c.partition, c.batch_id, c.id_count AS ids
FROM onlyonce_private.chunk_list c JOIN onlyonce_private.batches b USING (incarnation, batch_id)
WHERE c.instance = :instance AND c.bucket = :bucket AND c.id_count <= :half AND b.state = 'committed'

-- unlist --
-- The entries of a bucket that is dropped, in the same transaction.
DELETE FROM onlyonce_private.chunk_list WHERE instance = :instance AND bucket = :bucket

-- take_parts --
-- Parts to merge into one chunk: read, locked and deleted at once.
DELETE FROM onlyonce_private.catalog_chunks
WHERE instance = :instance AND bucket = :bucket AND incarnation = :incarnation AND partitions = :partitions
  AND partition = :partition AND batch_id = ANY (:batch_ids)
RETURNING ids

-- wasteful --
-- The closed buckets whose tables take much more disk space than their chunks need, with the index by which to rewrite
-- them.
SELECT k.bucket, t.relname AS name, x.relname AS by_index, pg_total_relation_size(t.oid) AS held
FROM (SELECT c.bucket, c.tableoid, sum(octet_length(c.ids) + coalesce(octet_length(c.filter), 0)) AS needed
      FROM onlyonce_private.catalog_chunks c WHERE c.instance = :instance AND c.bucket >= :floor
      GROUP BY c.bucket, c.tableoid) k
JOIN pg_class t ON t.oid = k.tableoid
JOIN pg_index i ON i.indrelid = t.oid AND i.indisprimary
JOIN pg_class x ON x.oid = i.indexrelid
WHERE pg_total_relation_size(t.oid) > :waste * k.needed + :worth_it
  AND k.bucket < (SELECT max(last.bucket) FROM onlyonce_private.incarnations l CROSS JOIN LATERAL (
                      SELECT b.bucket FROM onlyonce_private.batches b WHERE b.incarnation = l.incarnation AND b.state = 'committed'
                      ORDER BY b.bucket DESC LIMIT 1) last
                  WHERE l.instance = :instance AND l.query = 'receive')
ORDER BY k.bucket

-- near_horizon --
-- A pipeline's last duplicates that were caught near the edge of the dedup horizon: the next ones may come after it.
SELECT l.instance AS pipeline, sum(near.near_horizon)::bigint AS near_the_edge, sum(b.duplicate)::bigint AS duplicate,
       max(b.committed_at) FILTER (WHERE near.near_horizon > 0) AS last
FROM onlyonce_private.incarnations l JOIN onlyonce_private.batches b USING (incarnation)
CROSS JOIN LATERAL (
    SELECT coalesce(b.near_horizon, (SELECT sum(u.near_horizon)::bigint FROM onlyonce_private.units u
                                     WHERE (u.incarnation, u.batch_id) = (b.incarnation, b.batch_id))) AS near_horizon) near
WHERE l.instance = :instance AND l.query = 'receive' AND b.bucket >= :floor AND b.state = 'committed' AND b.duplicate > 0
GROUP BY l.instance HAVING sum(near.near_horizon) > 0

-- remove_units --
-- The units of some batches that were committed long ago. The units of an incarnation's last batch stay, for people. The
-- batch gets their number, and the sums that only they have.
WITH old AS (
    SELECT b.incarnation, b.batch_id FROM onlyonce_private.batches b
    WHERE b.state = 'committed' AND b.units_removed IS NULL
      AND b.committed_at < clock_timestamp() - make_interval(days => :keep_days)
      AND b.batch_id < (SELECT max(x.batch_id) FROM onlyonce_private.batches x
                        WHERE x.incarnation = b.incarnation AND x.state = 'committed')
    ORDER BY b.committed_at LIMIT :at_once FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM onlyonce_private.units u USING old
    WHERE (u.incarnation, u.batch_id) = (old.incarnation, old.batch_id)
    RETURNING u.incarnation, u.batch_id, u.near_horizon, u.lookups_spared, u.false_positives),
summed AS (
    SELECT old.incarnation, old.batch_id, count(gone.incarnation)::int AS units, sum(gone.near_horizon)::bigint AS near,
           sum(gone.lookups_spared)::bigint AS spared, sum(gone.false_positives)::bigint AS false_positives
    FROM old LEFT JOIN gone USING (incarnation, batch_id) GROUP BY 1, 2)
UPDATE onlyonce_private.batches b SET units_removed = summed.units, near_horizon = summed.near, lookups_spared = summed.spared,
    false_positives = summed.false_positives
FROM summed WHERE (b.incarnation, b.batch_id) = (summed.incarnation, summed.batch_id)
RETURNING b.units_removed

-- remove_delivered --
-- Rows of the outbox that were delivered long ago, except rows that may be at their target twice.
DELETE FROM onlyonce_private.outbox WHERE row_no = ANY (ARRAY(
    SELECT o.row_no FROM onlyonce_private.outbox o
    WHERE o.committed_at < clock_timestamp() - make_interval(days => :keep_days) AND o.state = 'delivered'
      AND NOT o.uncertain AND o.answered_at < clock_timestamp() - make_interval(days => :keep_days)
    LIMIT :at_once FOR UPDATE SKIP LOCKED))

-- settled --
-- For each output's incarnation the last batch such that it and all earlier ones were committed long enough ago. An
-- incarnation's batches are committed in order. A backfill is begun when no earlier one of its incarnation is. No batch of a
-- closed incarnation is read again, also one that it has withdrawn.
SELECT l.instance, l.query, l.incarnation, last.batch_id AS upto
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (
    SELECT b.batch_id FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed'
      AND b.committed_at < clock_timestamp() - make_interval(days => :keep_days)
    ORDER BY b.batch_id DESC LIMIT 1) last
WHERE l.query <> 'receive' AND l.kind = 'stream' AND l.state <> 'closed'
UNION ALL
SELECT l.instance, l.query, l.incarnation, 9223372036854775807
FROM onlyonce_private.incarnations l
WHERE l.query <> 'receive' AND l.kind = 'stream' AND l.state = 'closed'
UNION ALL
SELECT last.instance, last.output, l.incarnation, last.batch_id
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (
    SELECT f.instance, f.output, f.batch_id FROM onlyonce_private.backfills f
    WHERE f.incarnation = l.incarnation AND f.state <> 'begun'
      AND coalesce(f.committed_at, f.begun_at) < clock_timestamp() - make_interval(days => :keep_days)
    ORDER BY f.batch_id DESC LIMIT 1) last
WHERE l.kind = 'backfill' ORDER BY 3

-- committed_cuts --
-- Which of some cuts of an inbox (`batch_no` of its manifest) an instance has committed, with the files that could not
-- be read. If a pipeline has several sources, each has a manifest with its own numbers. A new incarnation may pass a cut again
-- without reading it, so the first batch with the cut has read it.
SELECT DISTINCT ON (batch_no) coalesce(b.source_to->>'source_batch_no', b.source_to->>'batch_no')::bigint AS batch_no, b.facts
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed' AND b.source_to ? 'batch_no'
  AND coalesce(b.source_to->>'source', '') = :source
  AND coalesce(b.source_to->>'source_batch_no', b.source_to->>'batch_no')::bigint = ANY (CAST(:numbers AS bigint[]))
ORDER BY batch_no, l.ordinal, b.batch_id

-- runs --
-- The instances of some pipelines, and whether all incarnations of each have ended.
SELECT p.instance, p.pipeline, coalesce(bool_and(l.state = 'closed') FILTER (WHERE l.kind = 'stream'), false) AS ended
FROM onlyonce_private.pipelines p LEFT JOIN onlyonce_private.incarnations l USING (instance)
WHERE p.pipeline = ANY (:pipelines) GROUP BY 1, 2 ORDER BY 1

-- no_new_run --
-- Until the transaction ends no instance can be registered, so none lists the inbox for the first time.
LOCK TABLE onlyonce_private.pipelines IN SHARE MODE

-- unfolded --
-- Incarnations with an old batch that is not yet in their sums, and the last batch that is in the sums.
SELECT l.incarnation, coalesce(s.upto, -1) AS upto
FROM onlyonce_private.incarnations l LEFT JOIN onlyonce_private.sums s USING (incarnation)
CROSS JOIN LATERAL (
    SELECT b.state, b.committed_at FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.batch_id > coalesce(s.upto, -1) ORDER BY b.batch_id LIMIT 1) next
WHERE l.kind = 'stream' AND next.state = 'committed' AND next.committed_at < clock_timestamp() - make_interval(hours => :hours)
ORDER BY l.incarnation

-- fold --
-- Adds the next batches of an incarnation to its sums, in order. It stops at the first batch that is young or does not add up,
-- which an audit still reads. If two gc runs add batches at the same time, the second finds that `upto` has moved and adds nothing.
WITH next AS (
    SELECT b.*, c.conserved AS adds_up
    FROM (SELECT * FROM onlyonce_private.batches x WHERE x.incarnation = :incarnation AND x.batch_id > :upto ORDER BY x.batch_id LIMIT :at_once) b
    CROSS JOIN LATERAL (
        SELECT k.conserved FROM onlyonce.conservation k WHERE k.incarnation = b.incarnation AND k.batch = b.batch_id OFFSET 0) c),
stop AS (
    SELECT min(batch_id) AS batch_id FROM next
    WHERE state <> 'committed' OR adds_up IS NOT TRUE OR committed_at >= clock_timestamp() - make_interval(hours => :hours)),
good AS (SELECT next.* FROM next, stop WHERE stop.batch_id IS NULL OR next.batch_id < stop.batch_id)
INSERT INTO onlyonce_private.sums AS known
    (incarnation, upto, batches, read, kept, invalid, expired, duplicate, in_time, late, rejected, unknown_fields, written_again, declarations)
SELECT :incarnation, max(batch_id), count(*), sum(read), sum(kept), sum(invalid), sum(expired), sum(duplicate), sum(in_time), sum(late), sum(rejected),
       sum(unknown_fields), sum(written_again), array_agg(DISTINCT declaration_hash)
FROM good HAVING count(*) > 0
ON CONFLICT (incarnation) DO UPDATE
SET upto = excluded.upto, batches = known.batches + excluded.batches,
    read = coalesce(known.read + excluded.read, known.read, excluded.read),
    kept = coalesce(known.kept + excluded.kept, known.kept, excluded.kept),
    invalid = coalesce(known.invalid + excluded.invalid, known.invalid, excluded.invalid),
    expired = coalesce(known.expired + excluded.expired, known.expired, excluded.expired),
    duplicate = coalesce(known.duplicate + excluded.duplicate, known.duplicate, excluded.duplicate),
    in_time = coalesce(known.in_time + excluded.in_time, known.in_time, excluded.in_time),
    late = coalesce(known.late + excluded.late, known.late, excluded.late),
    rejected = coalesce(known.rejected + excluded.rejected, known.rejected, excluded.rejected),
    unknown_fields = coalesce(known.unknown_fields + excluded.unknown_fields, known.unknown_fields, excluded.unknown_fields),
    written_again = coalesce(known.written_again + excluded.written_again, known.written_again, excluded.written_again),
    declarations = ARRAY(SELECT DISTINCT hash FROM unnest(known.declarations || excluded.declarations) hash)
WHERE known.upto = :upto
RETURNING (SELECT count(*) FROM good) AS folded

-- unsettled --
-- The incarnations of outputs with batches in their sums whose windows are not yet noted as final.
SELECT s.incarnation, s.final_upto AS after, s.upto
FROM onlyonce_private.sums s JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE l.query <> 'receive' AND s.final_upto < s.upto ORDER BY s.incarnation

-- close_replaced --
-- Windows in time of the next batches of an incarnation that no batch writes any more, since the output has other windows by now. Each
-- gets a pane without rows, made by the batch that has closed a later window: fixed and sliding windows close in order, so
-- its records are in windows that are closed. Sessions do not.
WITH next AS (
    SELECT b.batch_id, b.declaration_hash FROM onlyonce_private.batches b
    WHERE b.incarnation = :incarnation AND b.batch_id > :after AND b.batch_id <= :upto ORDER BY b.batch_id LIMIT :at_once)
INSERT INTO onlyonce_private.panes
    (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash, lookups)
SELECT DISTINCT ON (w.output, w.window_start, w.window_end)
       l.instance, w.output, w.window_start, w.window_end, 0, true, 0, later.incarnation, later.batch_id, later.declaration_hash, later.lookups
FROM next JOIN onlyonce_private.incarnations l ON l.incarnation = :incarnation
JOIN onlyonce_private.window_counts w ON w.incarnation = l.incarnation AND w.batch_id = next.batch_id
JOIN onlyonce_private.declarations d ON (d.instance, d.query, d.hash) = (l.instance, l.query, next.declaration_hash)
CROSS JOIN LATERAL (
    SELECT p.incarnation, p.batch_id, p.declaration_hash, p.lookups
    FROM onlyonce_private.panes p JOIN onlyonce_private.declarations e ON (e.instance, e.query, e.hash) = (l.instance, l.query, p.declaration_hash)
    WHERE p.instance = l.instance AND p.output = w.output AND p.window_start >= w.window_end AND p.final AND p.generation = 0
      AND e.parts->'outputs'->w.output->'window'->>'kind' IN ('fixed', 'sliding')
    ORDER BY p.window_start LIMIT 1) later
WHERE w.in_time > 0 AND w.window_start IS NOT NULL
  AND d.parts->'outputs'->w.output->'window'->>'kind' IN ('fixed', 'sliding')
  AND NOT EXISTS (SELECT FROM onlyonce_private.panes p
                  WHERE (p.instance, p.output, p.window_start, p.window_end) = (l.instance, w.output, w.window_start, w.window_end))
ORDER BY w.output, w.window_start, w.window_end
ON CONFLICT ON CONSTRAINT panes_once DO NOTHING

-- note_final --
-- Notes up to which batch of an incarnation all windows with rows in time are final, within the next batches. It stops at the
-- first batch with an open window.
WITH next AS (
    SELECT b.batch_id FROM onlyonce_private.batches b
    WHERE b.incarnation = :incarnation AND b.batch_id > :after AND b.batch_id <= :upto ORDER BY b.batch_id LIMIT :at_once),
open AS (
    SELECT w.batch_id FROM next
    JOIN onlyonce_private.window_counts w ON w.incarnation = :incarnation AND w.batch_id = next.batch_id
    JOIN onlyonce_private.incarnations l ON l.incarnation = w.incarnation
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT 1 FROM onlyonce_private.panes p
                       WHERE p.instance = l.instance AND p.output = w.output AND p.final
                         AND (p.window_start, p.window_end) = (w.window_start, w.window_end)) AS final OFFSET 0) closed
    WHERE w.in_time > 0 AND w.window_start IS NOT NULL AND NOT closed.final
    ORDER BY w.batch_id LIMIT 1),
found AS (
    SELECT max(next.batch_id) AS upto FROM next
    WHERE NOT EXISTS (SELECT 1 FROM open WHERE open.batch_id <= next.batch_id))
UPDATE onlyonce_private.sums SET final_upto = found.upto
FROM found WHERE incarnation = :incarnation AND final_upto = :after AND found.upto IS NOT NULL
RETURNING final_upto
