-- Is every record accounted for? Each row must say `conserved`.
-- receive: records_in = kept + duplicate + invalid + expired. An output: what it read = in_time + late + rejected.
SELECT instance, query, sum(records_in)::bigint AS records_in, sum(kept)::bigint AS kept, sum(duplicate)::bigint AS duplicate,
       sum(invalid)::bigint AS invalid, sum(expired)::bigint AS expired, sum(in_time)::bigint AS in_time, sum(late)::bigint AS late,
       sum(rejected)::bigint AS rejected, sum(begun)::bigint AS begun_batches, bool_and(conserved) AS conserved
FROM onlyonce.totals
GROUP BY instance, query
ORDER BY instance, query = 'receive' DESC, query;
