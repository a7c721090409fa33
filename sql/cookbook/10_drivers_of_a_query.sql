-- Which drivers have run a query, and how often did one take over a batch? Only the newest epoch may commit.
SELECT incarnation, epoch, min(committed_at) AS first_commit, max(committed_at) AS last_commit, count(DISTINCT batch) AS batches,
       sum(rows)::bigint AS rows, array_agg(DISTINCT run_id) AS runs
FROM onlyonce.commits
GROUP BY incarnation, epoch
ORDER BY incarnation, epoch;
