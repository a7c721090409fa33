-- How large is the log, by table, and how old is it?
SELECT c.relname AS "table", pg_size_pretty(sum(pg_total_relation_size(coalesce(i.inhrelid, c.oid)))) AS size,
       sum(pg_total_relation_size(coalesce(i.inhrelid, c.oid)))::bigint AS bytes, greatest(sum(coalesce(p.reltuples, c.reltuples)), 0)::bigint AS rows_about
FROM pg_class c
LEFT JOIN pg_inherits i ON i.inhparent = c.oid
LEFT JOIN pg_class p ON p.oid = i.inhrelid
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'onlyonce_private') AND c.relkind IN ('r', 'p') AND NOT c.relispartition
GROUP BY c.relname
ORDER BY bytes DESC, c.relname;

SELECT instance, query, min(created_at) AS first_started, max(last_committed_at) AS last_committed, sum(batches)::bigint AS batches
FROM onlyonce.incarnations GROUP BY instance, query ORDER BY instance, query = 'receive' DESC, query;
