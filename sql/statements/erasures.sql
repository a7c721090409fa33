-- begun --
-- The erasure that an earlier attempt has left behind.
SELECT e.removal_no AS number, m.upto, e.columns, e.salt, e.fingerprint, e.asked_by, e.ids_too, e.todo, e.ids
FROM onlyonce_private.erasures e JOIN onlyonce_private.removals m USING (instance, removal_no)
WHERE e.instance = :instance AND m.state = 'begun'

-- begin_removal --
INSERT INTO onlyonce_private.removals (instance, removal_no, kind, upto)
SELECT CAST(:instance AS text), coalesce(max(removal_no), 0) + 1, 'erasure', CAST(:upto AS bigint)
FROM onlyonce_private.removals WHERE instance = :instance
RETURNING removal_no

-- begin --
INSERT INTO onlyonce_private.erasures (instance, removal_no, columns, salt, fingerprint, asked_by, ids_too, todo, ids)
VALUES (:instance, :number, :columns, :salt, :fingerprint, :asked_by, :ids_too, CAST(:todo AS jsonb), :ids)

-- end --
-- Everything is done, and the erasure's list of what to do is deleted. The receipt names what is left.
UPDATE onlyonce_private.erasures SET todo = NULL, ids = NULL, lines = :lines, windows = :windows, left_alone = :left
WHERE instance = :instance AND removal_no = :number

-- at_work --
-- The drivers of an instance that have a session.
SELECT l.incarnation FROM onlyonce_private.incarnations l JOIN onlyonce_private.epochs e USING (incarnation)
WHERE l.instance = :instance AND onlyonce_private.at_work(l.incarnation_no, e.epoch)
ORDER BY 1

-- begun_batches --
-- Batches that began and did not end: a replay reads their records again.
SELECT b.incarnation || '/' || b.batch_id AS unit FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE l.instance = :instance AND l.state <> 'closed' AND b.state = 'begun' ORDER BY 1

-- other_instances --
-- Bounded runs of a pipeline, with data of their own.
SELECT instance FROM onlyonce_private.pipelines WHERE pipeline = :pipeline AND instance <> :pipeline ORDER BY 1

-- windows_at --
-- The closed windows of an output that hold some times.
SELECT DISTINCT p.window_start, p.window_end FROM onlyonce_private.panes p
WHERE p.instance = :instance AND p.output = :output AND p.final AND EXISTS (
    SELECT 1 FROM unnest(CAST(:times AS timestamptz[])) AS t (at) WHERE p.window_start <= t.at AND t.at < p.window_end)
ORDER BY 1

-- outbox --
-- Rows of an instance in the outbox whose payload contains a value anywhere, or an escape. Each row is parsed
-- afterwards.
SELECT row_no, output, state, payload FROM onlyonce_private.outbox
WHERE instance = :instance AND (position(:text IN payload) > 0 OR position(E'\\' IN payload) > 0)

-- forget_outbox --
DELETE FROM onlyonce_private.outbox WHERE row_no = ANY (:row_nos)

-- forget_failures --
-- Errors of batches that have ended: an error may quote a record, and no attempt needs it any more.
DELETE FROM onlyonce_private.batch_failures f USING onlyonce_private.incarnations l
WHERE l.incarnation = f.incarnation AND l.instance = :instance

-- errors --
-- Errors that the log keeps of runs, alerts and the doctor's last check.
SELECT what AS error FROM onlyonce_private.alerts
UNION SELECT why FROM onlyonce_private.driver_runs WHERE why IS NOT NULL
UNION SELECT why FROM onlyonce_private.long_runs WHERE why IS NOT NULL
UNION SELECT down::text FROM onlyonce_private.long_runs
UNION SELECT found::text FROM onlyonce_private.looks

-- forget_alerts --
UPDATE onlyonce_private.alerts SET what = 'it quoted a record that was erased' WHERE what = ANY (:errors)

-- forget_driver_runs --
UPDATE onlyonce_private.driver_runs SET why = 'it quoted a record that was erased' WHERE why = ANY (:errors)

-- forget_long_runs --
UPDATE onlyonce_private.long_runs
SET why = CASE WHEN why = ANY (:errors) THEN 'it quoted a record that was erased' ELSE why END,
    down = CASE WHEN down::text = ANY (:errors) THEN '{}' ELSE down END
WHERE why = ANY (:errors) OR down::text = ANY (:errors)

-- forget_looks --
-- The next check of the doctor finds again what still holds.
DELETE FROM onlyonce_private.looks WHERE found::text = ANY (:errors)

-- chunks --
-- The chunks of an instance that may hold ids.
SELECT bucket, incarnation, batch_id, partition, ids FROM onlyonce_private.catalog_chunks WHERE instance = :instance FOR UPDATE

-- settled --
-- The last committed batch of each incarnation of an output: no staged rows up to it are read again, and none at all of a
-- closed incarnation.
SELECT l.instance, l.query AS output, l.incarnation, max(b.batch_id) AS upto
FROM onlyonce_private.incarnations l JOIN onlyonce_private.batches b USING (incarnation)
WHERE l.instance = :instance AND b.state = 'committed' AND l.query <> 'receive' AND l.state <> 'closed' GROUP BY 1, 2, 3
UNION ALL
SELECT l.instance, l.query, l.incarnation, 9223372036854775807 FROM onlyonce_private.incarnations l
WHERE l.instance = :instance AND l.query <> 'receive' AND l.kind = 'stream' AND l.state = 'closed'
UNION ALL
SELECT f.instance, f.output, f.incarnation, max(f.batch_id) FROM onlyonce_private.backfills f
WHERE f.instance = :instance AND f.state <> 'begun' GROUP BY 1, 2, 3

-- tables --
-- The tables of a schema. The id catalog has hashes only.
SELECT c.relname AS name FROM pg_class c
WHERE c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND c.relname <> 'catalog_chunks' ORDER BY 1

-- searched_columns --
-- Columns that may have strings (strings, arrays, JSON and structures), and columns with some names.
SELECT a.attname AS name FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relname = :table AND a.attnum > 0 AND NOT a.attisdropped
  AND (t.typcategory IN ('S', 'A', 'C', 'E') OR t.typname IN ('json', 'jsonb', 'xml', 'hstore') OR a.attname = ANY (:asked))
ORDER BY a.attnum

-- statistics --
-- The values that the planner keeps of a table's columns.
SELECT attname AS name, concat_ws(' ', most_common_vals::text, histogram_bounds::text, most_common_elems::text) AS kept
FROM pg_stats WHERE schemaname = :schema AND tablename = :table

-- statements_schema --
-- The schema of the extension's view with the text of statements; no row if this database does not have it.
SELECT n.nspname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'pg_stat_statements' AND c.relkind = 'v'

-- wal --
-- What decides how long old bytes stay in the write-ahead log.
SELECT current_setting('checkpoint_timeout') AS checkpoint_timeout, current_setting('max_wal_size') AS max_wal_size,
       current_setting('wal_recycle')::boolean AS recycled, current_setting('archive_mode') <> 'off' AS archived,
       ARRAY(SELECT slot_name::text FROM pg_replication_slots ORDER BY 1) AS slots

-- rewrite --
-- The tables from which an erasure deletes rows, or errors that quote a record.
VACUUM (FULL, VERBOSE) onlyonce_private.outbox, onlyonce_private.rejected, onlyonce_private.batch_failures,
    onlyonce_private.alerts, onlyonce_private.long_runs, onlyonce_private.looks, onlyonce_private.driver_runs
