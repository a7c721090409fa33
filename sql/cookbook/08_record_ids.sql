-- How many record ids are remembered, since when, and in how many bytes?
-- A record that comes again after its id was collected is an expired record, not a duplicate.
SELECT instance, min(bucket_start) AS oldest, max(bucket_start) AS newest, sum(ids)::bigint AS ids, sum(bytes)::bigint AS bytes,
       round(sum(bytes) / nullif(sum(ids), 0), 1) AS bytes_an_id
FROM onlyonce.record_ids
GROUP BY instance ORDER BY instance;
