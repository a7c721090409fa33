-- The long-running mode: who drives a pipeline without end, whether it is alive, and whether it was asked to stop. A table
-- of its own: commits hold the rows of epochs and pipelines FOR SHARE, and a heartbeat must not wait for them.
CREATE TABLE onlyonce_private.long_runs (
    instance      text PRIMARY KEY REFERENCES onlyonce_private.pipelines,
    attempt       bigint NOT NULL DEFAULT 0,
    run_id        text NOT NULL DEFAULT '',
    driver        text NOT NULL DEFAULT '',
    every         interval NOT NULL DEFAULT interval '0',
    lost_after    interval NOT NULL DEFAULT interval '0',
    turns         bigint NOT NULL DEFAULT 0,
    turn_at       timestamptz,
    started_at    timestamptz,
    heartbeat_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    stop_asked_at timestamptz,
    ended_at      timestamptz DEFAULT clock_timestamp(),
    exit_code     int DEFAULT 0,
    why           text,
    supervisor    text,
    CONSTRAINT long_runs_ended_has_its_code CHECK ((ended_at IS NULL) = (exit_code IS NULL)),
    CONSTRAINT long_runs_driver_has_started CHECK (attempt = 0 OR started_at IS NOT NULL)
);
COMMENT ON TABLE onlyonce_private.long_runs IS
    'The last long run of each pipeline: its driver, its heartbeat and how it ended. Attempt 0: there was none yet.';
