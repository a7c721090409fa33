-- add_chunk --
-- What one receive unit kept, in the transaction of its claim.
COPY onlyonce_private.catalog_chunks
    (instance, bucket, incarnation, batch_id, partition, partitions, ids, id_count, filter, ids_hash)
FROM STDIN (FORMAT binary)

-- chunks --
-- The chunks that batch `batch_id` of an incarnation may see: chunks of its earlier batches, and of all the pipeline's other
-- incarnations. Only chunks that can hold an id of this partition, in all live buckets. Without the ids.
SELECT bucket, incarnation, batch_id, partition, id_count, ids_hash
FROM onlyonce_private.chunk_list
WHERE instance = :instance AND bucket >= :floor AND id_count > 0
  AND (incarnation <> :incarnation OR batch_id < :batch_id)
  AND mod(partition, gcd(partitions, :partitions)) = mod(:partition, gcd(partitions, :partitions))

-- ids --
-- The packed ids of one chunk.
SELECT ids FROM onlyonce_private.catalog_chunks
WHERE instance = :instance AND bucket = :bucket AND incarnation = :incarnation AND batch_id = :batch_id AND partition = :partition

-- slices --
-- Some of the packed ids of one chunk, 16 bytes each, in the requested order. The number of all ids distinguishes the
-- chunk from a merged one under the same key.
SELECT substring(c.ids FROM 16 * s.start + 1 FOR 16 * (s.upto - s.start)) AS part
FROM onlyonce_private.catalog_chunks c
CROSS JOIN unnest(CAST(:starts AS int[]), CAST(:ends AS int[])) WITH ORDINALITY AS s (start, upto, n)
WHERE c.instance = :instance AND c.bucket = :bucket AND c.incarnation = :incarnation AND c.batch_id = :batch_id AND c.partition = :partition
  AND c.id_count = :id_count
ORDER BY s.n

-- filters --
-- The Bloom filters of some chunks, a few at a time.
SELECT bucket, incarnation, batch_id, partition, filter FROM onlyonce_private.catalog_chunks
WHERE instance = :instance AND bucket = ANY (:buckets) AND (bucket, incarnation, batch_id, partition) IN (
    SELECT * FROM unnest(CAST(:buckets AS bigint[]), CAST(:incarnations AS text[]), CAST(:batch_ids AS bigint[]),
                         CAST(:chosen AS int[])))

-- repair_filter --
-- A filter that was missing or damaged, made again from the ids.
UPDATE onlyonce_private.catalog_chunks SET filter = :filter
WHERE instance = :instance AND bucket = :bucket AND incarnation = :incarnation AND batch_id = :batch_id AND partition = :partition

-- replace_ids --
-- The remaining ids of a chunk from which ids were erased.
UPDATE onlyonce_private.catalog_chunks SET ids = :ids, id_count = :id_count, filter = :filter, ids_hash = :ids_hash
WHERE instance = :instance AND bucket = :bucket AND incarnation = :incarnation AND batch_id = :batch_id AND partition = :partition

-- note_look_ups --
-- The figures of a unit's look-ups, and its duplicates that were caught near the edge of the dedup horizon.
UPDATE onlyonce_private.units
SET lookups_spared = :spared, false_positives = :false_positives, near_horizon = nullif(CAST(:near AS bigint), 0)
WHERE unique_id = :unique_id

-- floor --
-- The number of an instance, and the bucket below which its ids are removed. FOR SHARE: the update of a gc run waits
-- until this batch has begun, and then sees the floor that it began with.
SELECT instance_no, gc_floor FROM onlyonce_private.pipelines WHERE instance = :instance FOR SHARE

-- without_ids --
-- The at-least-once batches of an instance whose ids a look-up needs and the id catalog does not have.
SELECT b.incarnation, b.batch_id, b.bucket, b.partitions, b.kept - coalesce((
    SELECT sum(r.rows) FROM onlyonce_private.removed_rows r WHERE (r.incarnation, r.batch_id, r.fate) = (b.incarnation, b.batch_id, 'kept')), 0)::bigint AS kept
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
JOIN onlyonce_private.pipelines p USING (instance)
WHERE l.instance = :instance AND l.query = 'receive' AND b.mode = 'at_least_once' AND b.ids_added_at IS NULL
  AND b.state = 'committed' AND b.bucket >= p.gc_floor
ORDER BY b.incarnation, b.batch_id

-- ids_added --
-- If two drivers add the ids of a batch at once, one waits here and then finds that it is done.
UPDATE onlyonce_private.batches SET ids_added_at = clock_timestamp()
WHERE incarnation = :incarnation AND batch_id = :batch_id AND ids_added_at IS NULL
RETURNING batch_id

-- in_bucket --
-- The packed ids of an incarnation in a bucket, chunk by chunk.
SELECT ids FROM onlyonce_private.catalog_chunks
WHERE instance = :instance AND bucket = :bucket AND incarnation = :incarnation AND id_count > 0
