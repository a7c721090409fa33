-- add --
-- The row of a pipeline, as of a continuous run that has ended. So two drivers that start at once wait for each other at its
-- lock.
INSERT INTO onlyonce_private.long_runs (instance) VALUES (:instance) ON CONFLICT (instance) DO NOTHING

-- look --
-- The last continuous run of a pipeline. Ages are by this server's clock.
SELECT instance, attempt, run_id, driver, clock_timestamp() - heartbeat_at AS quiet, lost_after, rounds,
       stop_asked_at IS NOT NULL AS stop_asked, exit_code, error AS why, locked
FROM onlyonce.long_runs WHERE instance = :instance

-- alive --
-- The continuous runs whose drivers are alive by their heartbeats.
SELECT instance, driver FROM onlyonce.long_runs WHERE state IN ('running', 'stopping') ORDER BY instance

-- look_and_lock --
-- The last continuous run of a pipeline, locked until this transaction ends.
SELECT instance, attempt, run_id, driver, clock_timestamp() - heartbeat_at AS quiet, lost_after, rounds,
       stop_asked_at IS NOT NULL AS stop_asked, exit_code, why, locked
FROM onlyonce_private.long_runs WHERE instance = :instance FOR UPDATE

-- take --
-- A new driver. Only the count is kept of the previous attempt.
UPDATE onlyonce_private.long_runs
SET attempt = attempt + 1, run_id = :run_id, driver = :driver, every = :every, lost_after = :lost_after, rounds = 0,
    round_at = NULL, started_at = clock_timestamp(), heartbeat_at = clock_timestamp(), stop_asked_at = NULL,
    ended_at = NULL, exit_code = NULL, why = NULL, down = '{}', locked = true
WHERE instance = :instance RETURNING attempt

-- beat --
-- A heartbeat; returns whether a stop was asked for. No row: another driver has superseded it, or it has ended.
UPDATE onlyonce_private.long_runs
SET heartbeat_at = clock_timestamp(), rounds = :rounds, down = CAST(:down AS jsonb),
    round_at = CASE WHEN rounds = :rounds THEN round_at ELSE clock_timestamp() END
WHERE instance = :instance AND attempt = :attempt AND ended_at IS NULL
RETURNING stop_asked_at IS NOT NULL AS stop_asked

-- ask_stop --
-- Asks the driver to stop between two batches. No row: no driver is running.
UPDATE onlyonce_private.long_runs SET stop_asked_at = coalesce(stop_asked_at, clock_timestamp())
WHERE instance = :instance AND ended_at IS NULL
RETURNING attempt

-- ask_watched_to_stop --
-- Asks the driver that a supervisor watches to stop; also as the reader.
SELECT onlyonce.ask_stop(:supervisor) AS attempt

-- watch --
-- From now on this supervisor watches the run: an earlier, cleared one can no longer stop it.
UPDATE onlyonce_private.long_runs SET supervisor = :supervisor WHERE instance = :instance

-- end --
-- Notes how a driver ended; nothing if another has superseded it.
UPDATE onlyonce_private.long_runs
SET ended_at = clock_timestamp(), heartbeat_at = clock_timestamp(), rounds = :rounds, exit_code = :exit_code, why = :why
WHERE instance = :instance AND attempt = :attempt AND ended_at IS NULL
