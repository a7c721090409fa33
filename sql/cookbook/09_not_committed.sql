-- Which batches have begun and are not committed? The next run of the pipeline finishes them.
SELECT instance, incarnation, batch, epoch, run_id, begun_at, clock_timestamp() - begun_at AS since
FROM onlyonce.batches WHERE state = 'begun'
UNION ALL
SELECT instance, incarnation, batch, epoch, run_id, begun_at, clock_timestamp() - begun_at
FROM onlyonce.backfills WHERE state = 'begun'
ORDER BY begun_at;
