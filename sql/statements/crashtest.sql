-- The results in the log of a scratch platform, which has one pipeline.

-- fates --
-- The fates of all records by stage, and whether they add up.
SELECT query AS stage, sum(records_in) AS "in", sum(kept) AS kept, sum(invalid) AS invalid, sum(expired) AS expired,
       sum(duplicate) AS duplicate, sum(in_time) AS in_time, sum(late) AS late, bool_and(conserved) AS conserved
FROM onlyonce.conservation GROUP BY query

-- late --
-- How many records were late for each window.
SELECT output, window_start, window_end, sum(late) AS late, bool_and(included) AS included
FROM onlyonce.late GROUP BY output, window_start, window_end
