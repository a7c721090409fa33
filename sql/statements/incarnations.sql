-- add_instance --
-- Registers a pipeline (or bounded run) once.
INSERT INTO onlyonce_private.pipelines (instance, pipeline) VALUES (:instance, :pipeline)
ON CONFLICT (instance) DO NOTHING

-- live --
-- The incarnation of a query that is not closed.
SELECT incarnation, incarnation_no, ordinal, checkpoint_id, state, start_from
FROM onlyonce_private.incarnations WHERE instance = :instance AND query = :query AND state <> 'closed'

-- last_ordinal --
-- The number of the last incarnation of a query, 0 before the first.
SELECT coalesce(max(ordinal), 0) AS ordinal FROM onlyonce_private.incarnations WHERE instance = :instance AND query = :query

-- add --
-- A new incarnation of a query.
INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, start_from, kind)
VALUES (:incarnation, :instance, :query, :ordinal, :checkpoint_id, CAST(:start_from AS jsonb), :kind)
ON CONFLICT DO NOTHING

-- set_state --
-- Closes an incarnation, or marks it damaged.
UPDATE onlyonce_private.incarnations SET state = :state WHERE incarnation = :incarnation

-- started --
-- Notes when a driver last started, unless its incarnation was closed.
UPDATE onlyonce_private.incarnations SET started_at = clock_timestamp() WHERE incarnation = :incarnation AND state <> 'closed'

-- end_older_sessions --
-- Ends the sessions of an incarnation's epochs below one (null: all): a stalled one would hold the epoch row against the
-- bump. Only sessions of this database and of one platform: incarnations are numbered by platform, and a server or a sink's
-- database may have several platforms. Any role may give its session any name, so the digits of an epoch are bounded.
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND usename = current_user AND datname = current_database()
  AND application_name LIKE ANY (:names)
  AND CASE WHEN application_name ~ '^onlyonce(@[0-9a-f]{8})?/[0-9]+/[0-9]{1,18}(/|$)'
      THEN CAST(:below AS bigint) IS NULL OR split_part(application_name, '/', 3)::bigint < CAST(:below AS bigint) END

-- bump --
-- A new driver's epoch: one more than the last.
INSERT INTO onlyonce_private.epochs AS known (incarnation, epoch) VALUES (:incarnation, 1)
ON CONFLICT (incarnation) DO UPDATE SET epoch = known.epoch + 1
RETURNING epoch

-- last_batches --
-- The highest batch that began and the highest that committed, for the comparison with the checkpoint.
SELECT (SELECT max(batch_id) FROM onlyonce_private.batches WHERE incarnation = :incarnation) AS begun,
       (SELECT max(batch_id) FROM onlyonce_private.batches WHERE incarnation = :incarnation AND state = 'committed') AS committed

-- last_bounded --
-- The bounded runs of a pipeline and whether all their incarnations are closed.
SELECT p.instance, coalesce(bool_and(l.state = 'closed'), false) AS done
FROM onlyonce_private.pipelines p LEFT JOIN onlyonce_private.incarnations l USING (instance)
WHERE p.pipeline = :pipeline AND p.instance <> p.pipeline
GROUP BY p.instance, p.instance_no ORDER BY p.instance_no DESC LIMIT 1

-- wrote --
-- Whether a run has committed a batch of a pipeline or bounded run since a time.
SELECT EXISTS (
    SELECT FROM onlyonce_private.batches JOIN onlyonce_private.incarnations USING (incarnation)
    WHERE instance = :instance AND run_id = :run_id AND committed_at >= :since) AS wrote

-- close_instance --
-- Ends all incarnations of a bounded run.
UPDATE onlyonce_private.incarnations SET state = 'closed' WHERE instance = :instance AND state = 'live'
