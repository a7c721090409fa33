-- Which run of which DAG has driven a pipeline, and how its last driver ended: so that a run is known whatever its DAG is called.
CREATE TABLE onlyonce_private.driver_runs (
    dag_id text NOT NULL,
    run_id text NOT NULL,
    pipeline text NOT NULL,
    attempt int NOT NULL DEFAULT 1,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    exit_code int,
    why text,
    CONSTRAINT driver_runs_pkey PRIMARY KEY (dag_id, run_id, pipeline),
    CONSTRAINT driver_runs_ended CHECK ((ended_at IS NULL) = (exit_code IS NULL))
);
CREATE INDEX driver_runs_begun_at ON onlyonce_private.driver_runs (begun_at);
COMMENT ON TABLE onlyonce_private.driver_runs IS 'One row for each run of an Airflow DAG that has driven a pipeline: how many drivers it had, and how the last one ended.';
