-- What was committed between two times, and by which driver?
-- Set: pipeline, from, to. Unset, it shows everything of all pipelines.
--   psql "$(onlyonce sql --url)" -v pipeline=shop -v from=2026-03-01 -v to=2026-03-02 -f sql/cookbook/01_committed_between.sql
\if :{?pipeline} \else \set pipeline '%' \endif
\if :{?from} \else \set from '-infinity' \endif
\if :{?to} \else \set to 'infinity' \endif
SELECT committed_at, unique_id, rows, epoch, attempt, run_id, batch_state
FROM onlyonce.commits
WHERE pipeline LIKE :'pipeline' AND committed_at >= CAST(:'from' AS timestamptz) AND committed_at < CAST(:'to' AS timestamptz)
ORDER BY committed_at, unique_id;
