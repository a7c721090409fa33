-- A window is final when it has closed. Outputs whose rows go to a table as they come had said so at a window's first row; the
-- next batch of each says it anew, for the windows that have closed. Files of such outputs are written at the close.
UPDATE onlyonce_private.panes p SET final = false
FROM onlyonce_private.batches b
WHERE p.final AND p.generation = 0 AND (b.lineage, b.batch_id) = (p.lineage, p.batch_id)
  AND (b.facts->>'stateless')::boolean
  AND NOT EXISTS (SELECT 1 FROM onlyonce_private.files f WHERE (f.instance, f.output) = (p.instance, p.output));

CREATE INDEX panes_open ON onlyonce_private.panes (instance, output, window_end) WHERE NOT final;
