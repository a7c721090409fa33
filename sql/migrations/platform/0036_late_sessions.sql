-- A late row has no session of its own, so it is counted by the hour of its event. A backfill has folded the rows of an hour in when it
-- holds the first and the last of them, not the hour's start.
ALTER TABLE onlyonce_private.window_counts ADD COLUMN late_from timestamptz, ADD COLUMN late_to timestamptz;
COMMENT ON COLUMN onlyonce_private.window_counts.late_from IS 'of sessions: the first event time of the late rows; late_to: the last';

UPDATE onlyonce_private.window_counts w SET late_from = w.window_start, late_to = w.window_end - interval '1 microsecond'
FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage)
JOIN onlyonce_private.declarations d ON (d.instance, d.query, d.hash) = (l.instance, l.query, b.declaration_hash)
WHERE (b.lineage, b.batch_id) = (w.lineage, w.batch_id) AND w.late > 0
  AND d.parts->'outputs'->w.output->>'window' LIKE 'Session%';
