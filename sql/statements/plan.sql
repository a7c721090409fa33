-- keep --
-- What a query is declared as, once for each fingerprint.
INSERT INTO onlyonce_private.declarations (instance, query, hash, parts)
VALUES (:instance, :query, :hash, CAST(:parts AS jsonb))
ON CONFLICT ON CONSTRAINT declarations_once DO NOTHING

-- ran_under --
-- The declaration of an incarnation's last batch, as far as it was kept, and whether the query keeps no state.
SELECT b.declaration_hash, d.parts, coalesce((b.facts->>'stateless')::boolean, false) AS stateless, b.mode
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
LEFT JOIN onlyonce_private.declarations d
    ON (d.instance, d.query, d.hash) = (l.instance, l.query, b.declaration_hash)
WHERE b.incarnation = :incarnation ORDER BY b.batch_id DESC LIMIT 1

-- last_way --
-- The declaration of the last committed batch of a query, in whichever incarnation, and whether the query kept no state.
SELECT d.parts, coalesce((b.facts->>'stateless')::boolean, false) AS stateless
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (
    SELECT x.declaration_hash, x.facts FROM onlyonce_private.batches x
    WHERE x.incarnation = l.incarnation AND x.state = 'committed' ORDER BY x.batch_id DESC LIMIT 1) b
LEFT JOIN onlyonce_private.declarations d ON (d.instance, d.query, d.hash) = (l.instance, l.query, b.declaration_hash)
WHERE l.instance = :instance AND l.query = :query AND l.kind = 'stream' ORDER BY l.ordinal DESC LIMIT 1

-- queries --
-- The queries of an instance that have run, with their live incarnation and how often they have committed.
SELECT l.query, l.incarnation, l.start_from,
       (SELECT count(*) FROM onlyonce_private.batches b WHERE b.incarnation = l.incarnation AND b.state = 'committed') AS batches
FROM onlyonce_private.incarnations l
WHERE l.instance = :instance AND l.kind = 'stream' AND l.state <> 'closed'
ORDER BY l.query = 'receive' DESC, l.query

-- renamed_from --
-- The pipelines that have run as another one is declared, which has not run: that one may be a new name of them.
SELECT d.instance FROM onlyonce_private.declarations d
WHERE d.query = 'receive' AND d.hash = :hash AND d.instance <> :instance
  AND EXISTS (SELECT FROM onlyonce_private.incarnations l
              WHERE l.instance = d.instance AND l.query = 'receive' AND l.kind = 'stream' AND l.state <> 'closed')
  AND NOT EXISTS (SELECT FROM onlyonce_private.incarnations l WHERE l.instance = :instance AND l.query = 'receive')
ORDER BY d.instance

-- made_under --
-- The closed windows of an output, by the declaration that made them: also those without a row, since another function may return some.
SELECT p.declaration_hash, d.parts, min(p.window_start) AS first, max(p.window_start) AS last, max(p.window_end) AS upto
FROM (SELECT DISTINCT ON (window_start, window_end) * FROM onlyonce_private.panes
      WHERE instance = :instance AND output = :output
      ORDER BY window_start, window_end, generation DESC) p
LEFT JOIN onlyonce_private.declarations d ON (d.instance, d.query, d.hash) = (p.instance, :query, p.declaration_hash)
WHERE p.final
GROUP BY p.declaration_hash, d.parts ORDER BY min(p.window_start)

-- last_final --
-- The start of the newest closed window of an output, and the end of its last window in the log.
SELECT (SELECT max(window_start) FROM onlyonce_private.panes
        WHERE instance = :instance AND output = :output AND final) AS last_start,
       (SELECT max(window_end) FROM onlyonce_private.panes WHERE instance = :instance AND output = :output) AS last_end
