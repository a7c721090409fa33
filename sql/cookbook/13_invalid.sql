-- Which batches had records that the declaration does not accept? `onlyonce invalid PIPELINE` shows each with its reason.
SELECT i.instance, i.batch, i.invalid, b.records_in, round(100.0 * i.invalid / nullif(b.records_in, 0), 2) AS percent, i.committed_at, i.location
FROM onlyonce.invalid i JOIN onlyonce.batches b USING (incarnation, batch)
ORDER BY i.committed_at DESC;
