-- instances --
-- A pipeline with its bounded runs, or one bounded run. The lock keeps a run from registering an incarnation meanwhile.
SELECT instance, instance_no, pipeline FROM onlyonce_private.pipelines
WHERE pipeline = :name OR instance = :name ORDER BY instance FOR UPDATE

-- known --
-- The names that can be dropped.
SELECT instance FROM onlyonce_private.pipelines UNION SELECT instance FROM onlyonce_private.leftovers ORDER BY 1

-- incarnations --
-- The incarnations of some instances, backfills included, or only of one query; and whether a driver has a session.
SELECT l.incarnation, l.instance, l.query,
       onlyonce_private.at_work(l.incarnation_no, NULL) AS at_work
FROM onlyonce_private.incarnations l
WHERE l.instance = ANY (:instances)
  AND (CAST(:query AS text) IS NULL OR l.query = :query OR starts_with(l.query, :query || '@'))
ORDER BY l.incarnation

-- hold --
-- No driver of these incarnations starts or commits until the transaction ends.
SELECT incarnation FROM onlyonce_private.epochs WHERE incarnation = ANY (:incarnations) ORDER BY incarnation FOR UPDATE

-- parts --
-- The declarations of the queries in all their runs.
SELECT instance, query, parts FROM onlyonce_private.declarations
WHERE instance = ANY (:instances) AND query <> 'receive' AND (CAST(:query AS text) IS NULL OR query = :query)
ORDER BY instance, query, first_seen_at

-- nothing_kept --
-- Whether a pipeline and its bounded runs have kept no record and written no row, and have nothing half written. A sink's
-- own database is not asked, and what was pulled is acknowledged: false for both. Nobody asks whether a folder or a broker
-- still has the input. `invalid`: how many invalid records they have received.
SELECT NOT EXISTS (SELECT FROM onlyonce.totals t WHERE t.pipeline = :pipeline AND (t.kept > 0 OR t.begun > 0))
   AND NOT EXISTS (SELECT FROM onlyonce_private.incarnations l JOIN onlyonce_private.pipelines p USING (instance)
                   WHERE p.pipeline = :pipeline
                     AND (p.log_kept_from IS NOT NULL
                          OR EXISTS (SELECT FROM onlyonce_private.units u WHERE u.incarnation = l.incarnation AND u.kind <> 'reference' AND u.rows > 0)
                          OR EXISTS (SELECT FROM onlyonce_private.authorities a WHERE a.incarnation = l.incarnation)))
   AND NOT EXISTS (SELECT FROM onlyonce_private.subscriptions s WHERE s.pipeline = :pipeline) AS nothing_kept,
       (SELECT coalesce(sum(t.invalid), 0)::bigint FROM onlyonce.totals t WHERE t.pipeline = :pipeline) AS invalid

-- rows --
-- How many rows of the log would be deleted, and how many invalid records with `events`.
SELECT (SELECT count(*) FROM onlyonce_private.batches WHERE incarnation = ANY (:incarnations)) AS batches,
       (SELECT count(*) FROM onlyonce_private.units WHERE incarnation = ANY (:incarnations)) AS units,
       (SELECT count(*) FROM onlyonce_private.panes WHERE incarnation = ANY (:incarnations)) AS windows,
       (SELECT count(*) FROM onlyonce_private.backfills WHERE incarnation = ANY (:incarnations)) AS backfills,
       (SELECT count(*) FROM onlyonce_private.files WHERE incarnation = ANY (:incarnations)) AS files,
       (SELECT count(*) FROM onlyonce_private.outbox o JOIN onlyonce_private.units u ON u.unique_id = o.unit
        WHERE u.incarnation = ANY (:incarnations) AND o.state IN ('waiting', 'sending')) AS "not sent",
       (SELECT coalesce(sum(t.invalid), 0)::bigint FROM onlyonce.totals t WHERE t.incarnation = ANY (:incarnations)) AS "invalid records"

-- forget_outbox --
-- What their units have put into the outbox, sent or not.
DELETE FROM onlyonce_private.outbox WHERE EXISTS (SELECT 1 FROM unnest(CAST(:incarnations AS text[])) AS l (incarnation)
                                                  WHERE starts_with(outbox.unit, l.incarnation || '/'))

-- forget_files --
-- The entries of their files. The files themselves stay; a file without its final name gets none.
DELETE FROM onlyonce_private.files WHERE incarnation = ANY (:incarnations)

-- forget_units --
-- The units of some incarnations, in the database of the connection.
DELETE FROM onlyonce_private.units WHERE incarnation = ANY (:incarnations)

-- owned_by_others --
-- The incarnations of these that are another platform's in a sink's own database.
SELECT incarnation FROM onlyonce_private.owners WHERE incarnation = ANY (:incarnations) AND platform <> CAST(:platform AS uuid)

-- forget_owners --
-- The owner of each of these incarnations there.
DELETE FROM onlyonce_private.owners WHERE incarnation = ANY (:incarnations)

-- forget_epochs --
-- Their epochs: a driver of them can commit nothing any more.
DELETE FROM onlyonce_private.epochs WHERE incarnation = ANY (:incarnations)

-- forget_window_counts --
-- What their batches met of each window.
DELETE FROM onlyonce_private.window_counts WHERE incarnation = ANY (:incarnations)

-- forget_panes --
-- The windows that they wrote.
DELETE FROM onlyonce_private.panes WHERE incarnation = ANY (:incarnations)

-- forget_backfills --
-- Their backfills.
DELETE FROM onlyonce_private.backfills WHERE incarnation = ANY (:incarnations)

-- forget_markers --
-- Their watermark markers.
DELETE FROM onlyonce_private.watermark_markers WHERE incarnation = ANY (:incarnations)

-- forget_batches --
-- Their batches.
DELETE FROM onlyonce_private.batches WHERE incarnation = ANY (:incarnations)

-- forget_authorities --
-- The databases in which they may have units: these are noted as places by now.
DELETE FROM onlyonce_private.authorities WHERE incarnation = ANY (:incarnations)

-- forget_incarnations --
-- The incarnations themselves.
DELETE FROM onlyonce_private.incarnations WHERE incarnation = ANY (:incarnations)

-- forget_declarations --
-- What the queries ran under.
DELETE FROM onlyonce_private.declarations
WHERE instance = ANY (:instances) AND (CAST(:query AS text) IS NULL OR query = :query)

-- forget_reprocessed_sets --
-- Which rows of whole instances were reprocessed.
DELETE FROM onlyonce_private.reprocessed_sets WHERE instance = ANY (:instances)

-- forget_reprocessings --
-- Their reprocessings.
DELETE FROM onlyonce_private.reprocessings WHERE instance = ANY (:instances)

-- forget_long_runs --
-- Their continuous runs: a living driver finds that it was superseded.
DELETE FROM onlyonce_private.long_runs WHERE instance = ANY (:instances)

-- forget_chunk_list --
-- Which chunks their catalogs had.
DELETE FROM onlyonce_private.chunk_list WHERE instance = ANY (:instances)

-- forget_unacknowledged --
-- What their subscriptions may deliver again.
DELETE FROM onlyonce_private.unacknowledged WHERE pipeline = ANY (:instances)

-- forget_answers --
-- What their sources answered.
DELETE FROM onlyonce_private.source_answers WHERE pipeline = ANY (:instances)

-- forget_subscriptions --
-- Whose the subscriptions were.
DELETE FROM onlyonce_private.subscriptions WHERE pipeline = ANY (:instances)

-- forget_deliverers --
-- The epochs of the deliverers of these instances.
DELETE FROM onlyonce_private.epochs WHERE EXISTS (SELECT 1 FROM unnest(CAST(:instances AS text[])) AS i (instance)
                                                  WHERE starts_with(epochs.incarnation, i.instance || '/') AND right(epochs.incarnation, 8) = '/deliver')

-- forget_instances --
-- The instances themselves, last.
DELETE FROM onlyonce_private.pipelines WHERE instance = ANY (:instances)

-- leave --
-- Places outside the log: to be removed, or left. A second drop with --tables removes what was left.
INSERT INTO onlyonce_private.leftovers AS known (place, instance, query, incarnations, state)
VALUES (:place, :instance, :query, :incarnations, :state)
ON CONFLICT (place) DO UPDATE SET state = excluded.state, incarnations = known.incarnations || excluded.incarnations

-- left --
-- What drops of a pipeline, a bounded run or one output have left behind so far.
SELECT place, instance, query, incarnations, state FROM onlyonce_private.leftovers
WHERE (instance = :name OR starts_with(instance, :name || '@')) AND (CAST(:query AS text) IS NULL OR query = :query)
ORDER BY state, place

-- unsettled --
-- What prevents a run: places of its instance or targets that must still be removed, and rows left at its targets.
SELECT place, instance, query, state FROM onlyonce_private.leftovers
WHERE place = ANY (:places) OR (state = 'going' AND instance = :instance) ORDER BY state, place

-- begun --
-- The drops that were killed, with the places that they still have to remove.
SELECT instance, query, array_agg(place ORDER BY place) AS places
FROM onlyonce_private.leftovers WHERE state = 'going' GROUP BY 1, 2 ORDER BY 1, 2

-- settle --
-- The place is done.
DELETE FROM onlyonce_private.leftovers WHERE place = :place
