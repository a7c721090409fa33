-- held --
-- The open windows of an output that hold back records from their panes.
SELECT window_start, window_end, held, held_since FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND held IS NOT NULL AND NOT final

-- open_panes --
-- The last panes of an output's open windows.
SELECT window_start, window_end, pane, rows, coalesce(rows_of_all_panes, rows) AS rows_of_all_panes FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND NOT final

-- last_panes --
-- The last pane of each window of an output that starts in a span, whatever generation it is of.
SELECT DISTINCT ON (window_start, window_end)
       window_start, window_end, pane, rows, coalesce(rows_of_all_panes, rows) AS rows_of_all_panes FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND window_start >= :window_from AND window_start < :window_to
ORDER BY window_start, window_end, pane DESC NULLS LAST

-- number --
-- The numbers of the panes that a batch has written, and how many rows its table has of all panes of each window. The
-- driver has counted them before it wrote the rows, so the same batch may be ended again.
UPDATE onlyonce_private.panes known SET pane = given.pane, rows_of_all_panes = given.rows_of_all_panes
FROM unnest(
    CAST(:window_start AS timestamptz[]), CAST(:window_end AS timestamptz[]), CAST(:pane AS int[]), CAST(:rows_of_all_panes AS bigint[])
) AS given (window_start, window_end, pane, rows_of_all_panes)
WHERE known.instance = :instance AND known.output = :output AND known.generation = 0
  AND (known.window_start, known.window_end) = (given.window_start, given.window_end)
  AND (known.incarnation, known.batch_id) = (:incarnation, :batch_id)

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

-- forget_replaced_sessions --
-- Open sessions that the last pane of all open sessions does not have: they have merged, or have another start or end.
DELETE FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND NOT final AND (incarnation, batch_id) <> (:incarnation, :batch_id)
