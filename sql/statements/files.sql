-- record --
-- The files of one unit, in the unit's transaction.
INSERT INTO onlyonce_private.files
    (instance, output, incarnation, batch_id, partition, window_start, window_end, shard, shards, place, temporary, name, rows,
     bytes, checksum)
SELECT l.instance, :output, l.incarnation, :batch_id, :partition, f.window_start, f.window_end, f.shard, :shards, :place,
       f.temporary, f.name, f.rows, f.bytes, f.checksum
FROM onlyonce_private.incarnations l,
     jsonb_to_recordset(CAST(:files AS jsonb)) AS f (window_start timestamptz, window_end timestamptz, shard int,
                                                     temporary text, name text, rows bigint, bytes bigint, checksum text)
WHERE l.incarnation = :incarnation

-- of_unit --
-- The temporary files of a unit that count.
SELECT temporary FROM onlyonce_private.files
WHERE incarnation = :incarnation AND batch_id = :batch_id AND output = :output AND partition = :partition

-- give_panes --
-- The panes of a batch's windows, in the transaction that ends the batch. A repetition changes nothing. An output
-- without windows has nulls; they get a value here, since only an equality can be hashed.
WITH mine AS MATERIALIZED (
    SELECT DISTINCT f.instance, f.output, f.window_start, f.window_end, l.kind
    FROM onlyonce_private.files f JOIN onlyonce_private.incarnations l USING (incarnation)
    WHERE f.incarnation = :incarnation AND f.batch_id = :batch_id AND f.output = :output AND f.pane IS NULL),
next AS MATERIALIZED (
    SELECT coalesce(m.window_start, '-infinity') AS window_start, coalesce(m.window_end, '-infinity') AS window_end,
           coalesce(k.pane + 1, 0) AS pane,
           CASE WHEN m.kind = 'backfill' THEN coalesce(k.generation, 0) + 1 ELSE 0 END AS generation
    FROM mine m CROSS JOIN LATERAL (
        SELECT max(known.pane) AS pane, max(known.generation) AS generation
        FROM (SELECT f.pane, f.generation FROM onlyonce_private.files f
              WHERE f.pane IS NOT NULL AND (f.instance, f.output, f.window_start, f.window_end)
                    = (m.instance, m.output, m.window_start, m.window_end)
              UNION ALL
              -- Without windows each batch makes a pane, and none is recomputed: the last pane suffices.
              (SELECT f.pane, f.generation FROM onlyonce_private.files f
               WHERE f.pane IS NOT NULL AND (f.instance, f.output) = (m.instance, m.output)
                 AND f.window_start IS NULL AND f.window_end IS NULL AND m.window_start IS NULL
               ORDER BY f.pane DESC LIMIT 1)) known) k)
UPDATE onlyonce_private.files f
SET pane = next.pane, generation = next.generation, name = replace(f.name, '{pane}', next.pane::text)
FROM next
WHERE f.incarnation = :incarnation AND f.batch_id = :batch_id AND f.output = :output AND f.pane IS NULL
  AND coalesce(f.window_start, '-infinity') = next.window_start AND coalesce(f.window_end, '-infinity') = next.window_end

-- next_panes --
-- The number that each window's next pane gets by give_panes.
SELECT w.window_start, w.window_end, coalesce(k.pane + 1, 0) AS pane
FROM jsonb_to_recordset(CAST(:windows AS jsonb)) AS w (window_start timestamptz, window_end timestamptz)
CROSS JOIN LATERAL (
    SELECT max(known.pane) AS pane
    FROM (SELECT f.pane FROM onlyonce_private.files f
          WHERE f.pane IS NOT NULL AND (f.instance, f.output, f.window_start, f.window_end)
                = (:instance, :output, w.window_start, w.window_end)
          UNION ALL
          (SELECT f.pane FROM onlyonce_private.files f
           WHERE f.pane IS NOT NULL AND (f.instance, f.output) = (:instance, :output)
             AND f.window_start IS NULL AND f.window_end IS NULL AND w.window_start IS NULL
           ORDER BY f.pane DESC LIMIT 1)) known) k

-- unnamed --
-- The files of a batch that have their panes, and no name by a function yet.
SELECT f.file_no, f.window_start, f.window_end, f.pane, f.shard FROM onlyonce_private.files f
WHERE f.incarnation = :incarnation AND f.batch_id = :batch_id AND f.output = :output AND f.name = f.pane || '/' || f.temporary

-- named --
-- The files of a place with some names. A name belongs to one file for ever, also if a later pane has replaced the file.
SELECT f.name, f.window_start, f.window_end, f.pane, f.shard FROM onlyonce_private.files f
WHERE f.pane IS NOT NULL AND f.place = :place AND f.name = ANY(:names) ORDER BY f.name

-- give_names --
-- The names of files by a function, in the transaction that ends the batch.
UPDATE onlyonce_private.files f SET name = given.name
FROM unnest(CAST(:numbers AS bigint[]), CAST(:names AS text[])) AS given (file_no, name)
WHERE f.file_no = given.file_no

-- windows_in --
-- The windows of an output that have files and start in a span. A backfill must mark the windows that are empty now.
SELECT DISTINCT window_start, window_end FROM onlyonce_private.files
WHERE instance = :instance AND output = :output AND pane IS NOT NULL
  AND window_start >= :window_from AND window_start < :window_to

-- current --
-- What a reader of an output must see: the files of each window's newest pane. Without windows a pane replaces no earlier pane.
SELECT f.file_no, f.instance, f.output, f.window_start, f.window_end, f.generation, f.pane, f.shard, f.shards, f.place,
       f.temporary, f.name, f.rows, f.bytes, f.checksum, f.finalized_at
FROM (SELECT *, max(pane) OVER (PARTITION BY window_start, window_end) AS newest FROM onlyonce_private.files
      WHERE instance = :instance AND output = :output AND pane IS NOT NULL) AS f
WHERE f.pane = f.newest OR f.window_start IS NULL ORDER BY f.file_no

-- waiting --
-- The panes, oldest first, with files that have no final name yet, and all files of each, without places that are away.
-- A pane is known only when its batch is committed.
WITH next AS (
    SELECT DISTINCT instance, output, window_start, window_end, pane FROM onlyonce_private.files
    WHERE pane IS NOT NULL AND finalized_at IS NULL AND (instance = ANY(:instances) OR :everything) AND place <> ALL(:away)
    ORDER BY instance, output, window_start, pane LIMIT :panes)
SELECT f.file_no, f.instance, f.output, f.window_start, f.window_end, f.generation, f.pane, f.shard, f.shards, f.place,
       f.temporary, f.name, f.rows, f.bytes, f.checksum, f.finalized_at
FROM next CROSS JOIN LATERAL (
    SELECT x.* FROM onlyonce_private.files x
    WHERE (x.instance, x.output, x.window_start, x.window_end, x.pane)
        = (next.instance, next.output, next.window_start, next.window_end, next.pane)
    UNION ALL
    SELECT x.* FROM onlyonce_private.files x
    WHERE (x.instance, x.output, x.pane) = (next.instance, next.output, next.pane)
      AND x.window_start IS NULL AND x.window_end IS NULL AND next.window_start IS NULL) f
ORDER BY f.instance, f.output, f.window_start, f.window_end, f.pane, f.shard

-- finalized --
-- These files have their final names.
UPDATE onlyonce_private.files SET finalized_at = clock_timestamp()
WHERE file_no = ANY(:numbers) AND finalized_at IS NULL

-- places --
-- Where the log has files.
WITH RECURSIVE one AS (
    SELECT (SELECT min(f.place) FROM onlyonce_private.files f) AS place
    UNION ALL
    SELECT (SELECT min(f.place) FROM onlyonce_private.files f WHERE f.place > one.place) FROM one WHERE one.place IS NOT NULL)
SELECT place FROM one WHERE place IS NOT NULL

-- standings --
-- The state of temporary files in the log: whether a file is the winner of a batch that was not given up, and whether
-- its unit or batch is committed. Also the highest epoch of its incarnation. An incarnation's batches are committed in order.
-- One statement has one snapshot.
SELECT t.temporary,
       EXISTS (SELECT 1 FROM onlyonce_private.files f WHERE f.place = ANY(:places) AND f.temporary = t.temporary
               AND NOT EXISTS (SELECT 1 FROM onlyonce_private.backfills b
                               WHERE (b.incarnation, b.batch_id) = (f.incarnation, f.batch_id) AND b.state = 'replaced')) AS winner,
       EXISTS (SELECT 1 FROM onlyonce_private.units u
               WHERE u.unique_id = l.incarnation || '/' || t.batch_id || '/' || t.output || '/' || t.partition)
           OR EXISTS (SELECT 1 FROM onlyonce_private.batches b
                      WHERE b.incarnation = l.incarnation AND b.batch_id >= t.batch_id AND b.state = 'committed')
           OR EXISTS (SELECT 1 FROM onlyonce_private.backfills b
                      WHERE (b.incarnation, b.batch_id) = (l.incarnation, t.batch_id) AND b.state <> 'begun')
           OR l.state = 'closed' AS settled,
       e.epoch
FROM jsonb_to_recordset(CAST(:temporaries AS jsonb)) AS t (temporary text, incarnation_no int, batch_id bigint, output text,
                                                           partition int)
LEFT JOIN onlyonce_private.incarnations l USING (incarnation_no) LEFT JOIN onlyonce_private.epochs e USING (incarnation)
