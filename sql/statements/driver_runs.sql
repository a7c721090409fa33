-- begin --
-- Begin a driver of a run. A later one is another attempt, whose end is not known yet. It continues the work of one that
-- has not ended well. After a good end the work begins again: the run was cleared.
INSERT INTO onlyonce_private.driver_runs (dag_id, run_id, pipeline) VALUES (:dag_id, :run_id, :pipeline)
ON CONFLICT (dag_id, run_id, pipeline) DO UPDATE
SET attempt = driver_runs.attempt + 1, ended_at = NULL, exit_code = NULL, why = NULL,
    begun_at = CASE WHEN driver_runs.exit_code = 0 THEN clock_timestamp() ELSE driver_runs.begun_at END
RETURNING attempt, begun_at

-- end --
-- Note how it ended; nothing if another attempt has begun since.
UPDATE onlyonce_private.driver_runs SET ended_at = clock_timestamp(), exit_code = :exit_code, why = :why
WHERE dag_id = :dag_id AND run_id = :run_id AND pipeline = :pipeline AND attempt = :attempt

-- look --
-- The last driver of a run.
SELECT attempt, exit_code, why FROM onlyonce_private.driver_runs
WHERE dag_id = :dag_id AND run_id = :run_id AND pipeline = :pipeline

-- remove --
-- Runs that began more than keep_days days ago, and are no longer needed.
DELETE FROM onlyonce_private.driver_runs WHERE begun_at < clock_timestamp() - make_interval(days => :keep_days)

-- clock --
-- What PostgreSQL's clock shows, in seconds.
SELECT extract(epoch FROM clock_timestamp())::float8 AS seconds
