-- corrected --
-- The corrections of an instance.
SELECT manifest, batch_no, arrival FROM onlyonce_private.corrected_arrivals WHERE instance = :instance

-- now --
-- The floor of an instance, this clock, its bucket, and the bucket after the last one below the floor that a batch has
-- used. The lock keeps a batch from beginning and a gc of ids from raising the floor.
SELECT p.gc_floor, clock_timestamp() AS now, floor(extract(epoch FROM clock_timestamp()) / 600)::bigint AS bucket,
       (SELECT coalesce(max(b.bucket) + 1, 0) FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
        WHERE l.instance = p.instance AND l.query = 'receive' AND b.bucket < p.gc_floor) AS free_from
FROM onlyonce_private.pipelines p WHERE p.instance = :instance FOR NO KEY UPDATE OF p

-- begun --
-- The receive batches of an instance that have not ended.
SELECT b.incarnation, b.batch_id FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'begun' ORDER BY 1, 2

-- forget --
-- A correction replaces the previous one.
DELETE FROM onlyonce_private.corrected_arrivals WHERE instance = :instance

-- correct --
-- What a manifest has now counts as arrived at this time at the latest.
INSERT INTO onlyonce_private.corrected_arrivals (instance, manifest, batch_no, arrival) VALUES (:instance, :manifest, :batch_no, :arrival)

-- lower_floor --
-- Only over buckets that no batch has used, so that no removed id counts as live again.
UPDATE onlyonce_private.pipelines SET gc_floor = :floor WHERE instance = :instance AND gc_floor > :floor

-- correct_batches --
-- With several sources: limit each source's last arrival to this time.
UPDATE onlyonce_private.batches b SET source_progress_after = (
    SELECT jsonb_object_agg(name, CASE WHEN (told->>'seen')::bigint > :micros THEN jsonb_set(told, '{seen}', to_jsonb(CAST(:micros AS bigint))) ELSE told END)
    FROM jsonb_each(b.source_progress_after) each (name, told))
FROM onlyonce_private.incarnations l
WHERE l.incarnation = b.incarnation AND l.instance = :instance AND l.query = 'receive' AND b.source_progress_after <> '{}' AND b.ingestion_time > :arrival

-- correct_markers --
-- Watermark markers repeat these times, so correct them too.
UPDATE onlyonce_private.watermark_markers b SET source_progress_after = (
    SELECT jsonb_object_agg(name, CASE WHEN (told->>'seen')::bigint > :micros THEN jsonb_set(told, '{seen}', to_jsonb(CAST(:micros AS bigint))) ELSE told END)
    FROM jsonb_each(b.source_progress_after) each (name, told))
FROM onlyonce_private.incarnations l
WHERE l.incarnation = b.incarnation AND l.instance = :instance AND l.query = 'receive' AND b.source_progress_after <> '{}'
