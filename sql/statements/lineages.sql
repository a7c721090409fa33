-- add_instance --
-- Registers a pipeline (or bounded run) once.
INSERT INTO onlyonce_private.pipelines (instance, pipeline) VALUES (:instance, :pipeline)
ON CONFLICT (instance) DO NOTHING

-- live --
-- The lineage of a query that is not closed.
SELECT lineage, lineage_no, life, checkpoint_id, state, start_from
FROM onlyonce_private.lineages WHERE instance = :instance AND query = :query AND state <> 'closed'

-- last_life --
-- The number of the last life of a query, 0 before the first.
SELECT coalesce(max(life), 0) AS life FROM onlyonce_private.lineages WHERE instance = :instance AND query = :query

-- add --
-- A new life of a query.
INSERT INTO onlyonce_private.lineages (lineage, instance, query, life, checkpoint_id, start_from, kind)
VALUES (:lineage, :instance, :query, :life, :checkpoint_id, CAST(:start_from AS jsonb), :kind)
ON CONFLICT DO NOTHING

-- set_state --
-- Closes a lineage, or marks it damaged.
UPDATE onlyonce_private.lineages SET state = :state WHERE lineage = :lineage

-- started --
-- Notes when a driver last started, unless its life was closed.
UPDATE onlyonce_private.lineages SET started_at = clock_timestamp() WHERE lineage = :lineage AND state <> 'closed'

-- end_older_sessions --
-- Ends the sessions of a lineage's epochs below one (null: all): a stalled one would hold the epoch row against the
-- bump. Only sessions of this database: lineages are numbered by platform, and a server may have several platforms. Any
-- role may give its session any name, so the digits of an epoch are bounded.
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND usename = current_user AND datname = current_database()
  AND application_name LIKE :name_prefix
  AND CASE WHEN application_name ~ '^onlyonce/[0-9]+/[0-9]{1,18}(/|$)'
      THEN CAST(:below AS bigint) IS NULL OR split_part(application_name, '/', 3)::bigint < CAST(:below AS bigint) END

-- bump --
-- A new driver's epoch: one more than the last.
INSERT INTO onlyonce_private.epochs AS known (lineage, epoch) VALUES (:lineage, 1)
ON CONFLICT (lineage) DO UPDATE SET epoch = known.epoch + 1
RETURNING epoch

-- last_batches --
-- The highest batch that began and the highest that committed, for the comparison with the checkpoint.
SELECT (SELECT max(batch_id) FROM onlyonce_private.batches WHERE lineage = :lineage) AS begun,
       (SELECT max(batch_id) FROM onlyonce_private.batches WHERE lineage = :lineage AND state = 'committed') AS committed

-- last_bounded --
-- The bounded runs of a pipeline and whether all their lineages are closed.
SELECT p.instance, coalesce(bool_and(l.state = 'closed'), false) AS done
FROM onlyonce_private.pipelines p LEFT JOIN onlyonce_private.lineages l USING (instance)
WHERE p.pipeline = :pipeline AND p.instance <> p.pipeline
GROUP BY p.instance, p.instance_no ORDER BY p.instance_no DESC LIMIT 1

-- close_instance --
-- Ends all lineages of a bounded run.
UPDATE onlyonce_private.lineages SET state = 'closed' WHERE instance = :instance AND state = 'live'
