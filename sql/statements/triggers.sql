-- held --
-- The open windows of an output that hold back records from their panes.
SELECT window_start, window_end, held, held_since FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND held IS NOT NULL AND NOT final

-- hold --
-- What a batch holds back of each window that it has changed. The driver has added it up, so the same batch may be
-- ended again.
INSERT INTO onlyonce_private.panes AS known
    (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash, held, held_since)
SELECT :instance, :output, window_start, window_end, 0, false, 0, :incarnation, :batch_id, :declaration_hash, held, held_since
FROM unnest(
    CAST(:window_start AS timestamptz[]), CAST(:window_end AS timestamptz[]), CAST(:held AS bigint[]), CAST(:held_since AS timestamptz[])
) AS met (window_start, window_end, held, held_since)
ON CONFLICT ON CONSTRAINT panes_once DO UPDATE SET held = excluded.held, held_since = excluded.held_since
WHERE NOT known.final

-- open_windows --
-- The windows of an output that are not closed: those that its last pane has, and those that hold back records.
SELECT window_start, window_end, rows FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND NOT final

-- forget_changed --
-- Open sessions that the last pane of all open sessions does not have: they have merged, or have another start or end.
DELETE FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND NOT final AND (incarnation, batch_id) <> (:incarnation, :batch_id)
