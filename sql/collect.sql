-- instances --
-- All pipelines and bounded runs.
SELECT instance, pipeline FROM onlyonce_private.pipelines ORDER BY instance

-- lock_floor --
-- The floor as it is stored. The lock conflicts with the FOR SHARE of a batch that begins: no batch of the instance begins between this look and the new floor.
SELECT instance_no, gc_floor FROM onlyonce_private.pipelines WHERE instance = :instance FOR NO KEY UPDATE

-- known --
-- The receive batches that bear on the floor: by bucket, and for those that are begun the least floor they began with.
SELECT b.bucket, b.state, min(b.gc_floor) AS begun_with
FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage)
WHERE l.instance = :instance AND l.query = 'receive' AND (b.bucket >= :floor OR b.state = 'begun')
GROUP BY b.bucket, b.state

-- raise_floor --
-- It never moves back, whoever else collects.
UPDATE onlyonce_private.pipelines SET gc_floor = :floor WHERE instance = :instance AND gc_floor < :floor

-- buckets_below --
-- The tables of an instance's buckets below the floor, also one that somebody detached, or was about to.
SELECT c.relname AS name, b.bucket, coalesce(i.inhdetachpending, false) AS detaching
FROM pg_class c
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
CROSS JOIN LATERAL (SELECT CAST(substring(c.relname FROM '^catalog_[0-9]+_([0-9]+)$') AS bigint) AS bucket) b
WHERE c.relnamespace = CAST('onlyonce_private' AS regnamespace) AND c.relkind = 'r'
  AND c.relname ~ ('^' || :parent || '_[0-9]+$') AND b.bucket < :floor
ORDER BY b.bucket

-- lock_instance --
-- One collector at a time drops the buckets of an instance.
SELECT pg_advisory_xact_lock(hashtextextended('collect ' || :instance, 0))

-- short_wait --
-- New readers queue behind a DROP that waits for a running one, so it waits shortly (experiments, A10).
SELECT set_config('lock_timeout', :wait, true)

-- size --
-- The bytes of a table with its index and what is stored beside it; NULL when it is gone.
SELECT pg_total_relation_size(to_regclass(:name)) AS bytes

-- crowded --
-- The buckets in which some lineage and partition has several chunks that are not full, with the newest bucket that is
-- committed. Below that one a bucket is closed: system time does not move back.
SELECT c.bucket, n.newest
FROM onlyonce_private.catalog_chunks c
CROSS JOIN (SELECT max(b.bucket) AS newest FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage)
            WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed') n
WHERE c.instance = :instance AND c.bucket >= :floor AND c.id_count <= :half
GROUP BY c.bucket, n.newest
HAVING count(*) > count(DISTINCT (c.lineage, c.partitions, c.partition))
ORDER BY c.bucket

-- parts --
-- The chunks of a bucket that are not full, of committed batches only: these are never replayed, so nobody asks for less
-- than all of them.
SELECT c.lineage, c.partitions, c.partition, c.batch_id, c.id_count AS ids
FROM onlyonce_private.catalog_chunks c JOIN onlyonce_private.batches b USING (lineage, batch_id)
WHERE c.instance = :instance AND c.bucket = :bucket AND c.id_count <= :half AND b.state = 'committed'

-- take_parts --
-- Parts that are to become one chunk: read, locked and deleted at once.
DELETE FROM onlyonce_private.catalog_chunks
WHERE instance = :instance AND bucket = :bucket AND lineage = :lineage AND partitions = :partitions
  AND partition = :partition AND batch_id = ANY (:batch_ids)
RETURNING ids

-- wasteful --
-- The closed buckets whose tables take much more on disk than their chunks need, with the index to write them anew by.
SELECT k.bucket, t.relname AS name, x.relname AS by_index, pg_total_relation_size(t.oid) AS held
FROM (SELECT c.bucket, c.tableoid, sum(octet_length(c.ids) + coalesce(octet_length(c.filter), 0)) AS needed
      FROM onlyonce_private.catalog_chunks c WHERE c.instance = :instance AND c.bucket >= :floor
      GROUP BY c.bucket, c.tableoid) k
JOIN pg_class t ON t.oid = k.tableoid
JOIN pg_index i ON i.indrelid = t.oid AND i.indisprimary
JOIN pg_class x ON x.oid = i.indexrelid
WHERE pg_total_relation_size(t.oid) > :waste * k.needed + :worth_it
  AND k.bucket < (SELECT max(b.bucket) FROM onlyonce_private.batches b JOIN onlyonce_private.lineages l USING (lineage)
                  WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed')
ORDER BY k.bucket
