-- near --
-- The lookup versions that the rows of an output's batch and of the batch before it store.
SELECT batch_id, state, declaration_hash, lookups FROM onlyonce_private.batches
WHERE incarnation = :incarnation AND batch_id BETWEEN CAST(:batch_id AS bigint) - 1 AND CAST(:batch_id AS bigint)

-- others --
-- The last batch before one that saw other versions of its lookups.
SELECT b.batch_id FROM onlyonce_private.batches b
JOIN onlyonce_private.batches this ON (this.incarnation, this.batch_id) = (b.incarnation, :batch_id)
WHERE b.incarnation = :incarnation AND b.batch_id < :batch_id AND b.lookups <> this.lookups ORDER BY b.batch_id DESC LIMIT 1

-- of_windows --
-- The versions of lookups that the windows of an output that start in an interval saw when they were last written. A
-- window without a result has none.
SELECT DISTINCT ON (window_start, window_end) window_start, window_end, lookups FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND window_start >= :window_from AND window_start < :window_to AND lookups IS NOT NULL
ORDER BY window_start, window_end, generation DESC

-- columns --
-- The columns of a user's table, with their types; for a domain its base type. No row if there is no such table.
SELECT a.attname AS name, t.typtype AS kind,
       CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END AS type
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(format('%I.%I', CAST(:schema AS text), CAST(:table AS text))) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- asked_for --
-- The versions of lookups that may be read again. A begun batch or one of the last two batches of its incarnation may read
-- them. So may a backfill, for windows whose records are in `events`. Versions of Delta tables are included, whose ids
-- are not hashes of a copy.
WITH replayed AS (
    SELECT b.lookups FROM onlyonce_private.incarnations l
    CROSS JOIN LATERAL (SELECT x.lookups, x.state FROM onlyonce_private.batches x
                        WHERE x.incarnation = l.incarnation ORDER BY x.batch_id DESC LIMIT 2) b
    UNION ALL SELECT b.lookups FROM onlyonce_private.batches b WHERE b.state = 'begun'),
written AS (
    SELECT DISTINCT ON (w.instance, w.output, w.window_start, w.window_end) w.lookups
    FROM onlyonce_private.panes w JOIN onlyonce_private.pipelines p USING (instance)
    WHERE w.lookups IS NOT NULL AND (p.events_kept_from IS NULL OR w.window_end > p.events_kept_from)
    ORDER BY w.instance, w.output, w.window_start, w.window_end, w.generation DESC)
SELECT DISTINCT seen.value->>'version' AS version, seen.value->>'table' AS table_id
FROM (SELECT lookups FROM replayed UNION ALL SELECT lookups FROM written) named CROSS JOIN LATERAL jsonb_each(named.lookups) seen
