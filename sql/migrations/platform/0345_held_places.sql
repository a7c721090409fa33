-- A driver that runs long holds a lock by a session of its own, so that its end is known at once; one of an older version has none.
ALTER TABLE onlyonce_private.long_runs ADD COLUMN locked boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN onlyonce_private.long_runs.locked IS 'Whether its driver holds the lock of the pipeline''s long run for as long as it lives';
