-- kept --
-- To what age the log was last cut, and from when on it has all batches of outputs; null if it was never cut.
SELECT keep_log, log_kept_from FROM onlyonce_private.pipelines WHERE instance = :instance

-- limit --
-- The moment that is this long ago.
SELECT clock_timestamp() - CAST(:keep AS interval) AS time

-- begin --
-- Noted before the first batch is cut. The time never moves back.
UPDATE onlyonce_private.pipelines SET keep_log = CAST(:keep AS interval), log_kept_from = greatest(log_kept_from, CAST(:limit AS timestamptz))
WHERE instance = :instance AND (keep_log IS DISTINCT FROM CAST(:keep AS interval) OR log_kept_from IS NULL OR log_kept_from < CAST(:limit AS timestamptz))

-- incarnations --
-- The incarnations of outputs with old batches to cut, each with the last batch that may be cut. It is in the sums and, except
-- for sessions, has no record in an open window. Also how far the live incarnation has read; null if there is none, or if it
-- has read nothing: then nothing may be cut.
SELECT l.incarnation, l.query, may.upto, going_on.read_upto
FROM onlyonce_private.incarnations l JOIN onlyonce_private.sums s USING (incarnation)
CROSS JOIN LATERAL (SELECT CASE WHEN l.query = ANY (CAST(:sessions AS text[])) THEN s.upto ELSE least(s.upto, s.final_upto) END AS upto) may
CROSS JOIN LATERAL (
    SELECT count(*) AS batches, max(o.committed_at) AS newest, max(o.batch_id) AS last
    FROM (SELECT x.committed_at, x.batch_id FROM onlyonce_private.batches x WHERE x.incarnation = l.incarnation ORDER BY x.batch_id LIMIT 2) o) oldest
LEFT JOIN LATERAL (
    SELECT max((b.source_to->>'reservoirVersion')::bigint - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END) AS read_upto
    FROM onlyonce_private.incarnations g
    CROSS JOIN LATERAL (
        SELECT x.source_to FROM onlyonce_private.batches x
        WHERE x.incarnation = g.incarnation AND x.state = 'committed' ORDER BY x.batch_id DESC LIMIT 1) b
    WHERE (g.instance, g.query) = (l.instance, l.query) AND g.kind = 'stream' AND g.state <> 'closed') going_on ON true
WHERE l.instance = :instance AND l.kind = 'stream' AND l.query <> 'receive'
  AND oldest.batches = 2 AND oldest.newest < CAST(:limit AS timestamptz) AND oldest.last <= may.upto
ORDER BY l.incarnation

-- cut --
-- Cuts the next batches of an incarnation from the log, in order. A batch is old if its units are removed and it was committed
-- before the limit. An old batch is cut if the next one is old too: so the last old one stays, by which others are
-- found. A batch stays if it has a late record, since people search for the record's batch, or if one of its files has
-- no final name yet. Its counts of each window are added to the sums of the window. A dry run cuts nothing, and returns
-- how many it would cut.
WITH next AS (
    SELECT b.batch_id, b.late, b.state = 'committed' AND b.units_removed IS NOT NULL AND b.committed_at < CAST(:limit AS timestamptz) AND b.batch_id <= :upto AS old,
           (b.source_to->>'reservoirVersion')::bigint
               - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END AS read_upto
    FROM onlyonce_private.batches b
    WHERE b.incarnation = :incarnation AND b.batch_id > :after ORDER BY b.batch_id LIMIT :at_once),
in_order AS (SELECT next.*, lead(old) OVER (ORDER BY batch_id) AS before_an_old_one FROM next),
old AS (SELECT batch_id, late, read_upto FROM in_order WHERE old AND before_an_old_one),
going AS (
    SELECT o.batch_id FROM old o
    WHERE o.late = 0 AND o.read_upto <= :read_upto AND o.batch_id IS DISTINCT FROM CAST(:first AS bigint)
      AND NOT EXISTS (SELECT 1 FROM onlyonce_private.files f
                      WHERE f.incarnation = :incarnation AND f.batch_id = o.batch_id AND f.pane IS NOT NULL AND f.finalized_at IS NULL)),
counted AS (
    DELETE FROM onlyonce_private.window_counts w USING going g WHERE NOT CAST(:dry_run AS boolean) AND w.incarnation = :incarnation AND w.batch_id = g.batch_id
    RETURNING w.output, w.window_start, w.window_end, w.in_time, w.rejected),
added AS (
    INSERT INTO onlyonce_private.window_sums AS known (incarnation, output, window_start, window_end, in_time, rejected)
    SELECT :incarnation, output, window_start, window_end, sum(in_time), sum(rejected) FROM counted GROUP BY output, window_start, window_end
    ON CONFLICT ON CONSTRAINT window_sums_once DO UPDATE
    SET in_time = known.in_time + excluded.in_time, rejected = known.rejected + excluded.rejected),
gone AS (
    DELETE FROM onlyonce_private.batches b USING going g WHERE NOT CAST(:dry_run AS boolean) AND b.incarnation = :incarnation AND b.batch_id = g.batch_id RETURNING b.batch_id)
SELECT (SELECT max(batch_id) FROM old) AS upto, CASE WHEN CAST(:dry_run AS boolean) THEN (SELECT count(*) FROM going) ELSE (SELECT count(*) FROM gone) END AS batches
