-- What is late and not yet included in a result? A backfill of these windows includes it.
SELECT instance, output, window_start, window_end, sum(late)::bigint AS late_records, count(*) AS batches
FROM onlyonce.late
WHERE NOT included
GROUP BY instance, output, window_start, window_end
ORDER BY instance, output, window_start;
