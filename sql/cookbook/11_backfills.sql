-- Who recomputed which windows, when, and what changed?
SELECT f.instance, f.output, f.window_from, f.last_end AS window_to, f.triggered_by, f.run_id, f.windows, f.rows, f.late AS late_included, f.state, f.committed_at
FROM onlyonce.backfills f
ORDER BY f.begun_at DESC;
