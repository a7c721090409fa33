-- What is the history of one window: each time that it was written, by which batch and declaration?
-- Set: output, at (a time within the window). Unset, it shows every window that was written more than once.
\if :{?output} \else \set output '%' \endif
\if :{?at} \else \set at '' \endif
SELECT n.instance, n.output, n.window_start, n.window_end, n.generation, n.final, n.rows, n.incarnation, n.batch, n.declaration_hash, n.committed_at
FROM onlyonce.panes n
WHERE n.output LIKE :'output'
  AND CASE WHEN :'at' = '' THEN EXISTS (SELECT 1 FROM onlyonce.panes x
                                        WHERE (x.instance, x.output, x.window_start, x.window_end) = (n.instance, n.output, n.window_start, n.window_end)
                                          AND x.generation > 0)
           ELSE CAST(nullif(:'at', '') AS timestamptz) >= n.window_start AND CAST(nullif(:'at', '') AS timestamptz) < n.window_end END
ORDER BY n.instance, n.output, n.window_start, n.generation;
