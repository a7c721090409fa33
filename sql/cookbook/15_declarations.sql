-- Under which declarations has a query run, since when, and how many batches did each commit?
SELECT d.instance, d.query, d.declaration_hash, d.first_seen_at, count(b.batch) AS batches, min(b.committed_at) AS first_commit, max(b.committed_at) AS last_commit
FROM onlyonce.declarations d
LEFT JOIN onlyonce.batches b ON (b.instance, b.query, b.declaration_hash, b.state) = (d.instance, d.query, d.declaration_hash, 'committed')
GROUP BY d.instance, d.query, d.declaration_hash, d.first_seen_at
ORDER BY d.instance, d.query, d.first_seen_at;
