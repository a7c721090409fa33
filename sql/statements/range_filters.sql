-- visible --
-- The filters that may answer for ids of a partition, the longest range first. Without their bytes.
SELECT partitions, partition, first_bucket, last_bucket, chunk_hashes, id_count FROM onlyonce_private.range_filters
WHERE instance = :instance AND last_bucket >= :floor
  AND mod(partition, gcd(partitions, :partitions)) = mod(:partition, gcd(partitions, :partitions))
ORDER BY last_bucket - first_bucket DESC, first_bucket, partitions, partition

-- all --
-- All filters of an instance, without their bytes.
SELECT partitions, partition, first_bucket, last_bucket, chunk_hashes, id_count FROM onlyonce_private.range_filters WHERE instance = :instance

-- filter --
-- One filter, if it is still of these chunks.
SELECT filter FROM onlyonce_private.range_filters
WHERE instance = :instance AND partitions = :partitions AND partition = :partition AND first_bucket = :first AND last_bucket = :last
  AND chunk_hashes = CAST(:chunk_hashes AS bigint[])

-- remove --
-- A damaged filter, unless it was made again.
DELETE FROM onlyonce_private.range_filters
WHERE instance = :instance AND partitions = :partitions AND partition = :partition AND first_bucket = :first AND last_bucket = :last
  AND chunk_hashes = CAST(:chunk_hashes AS bigint[])

-- remove_below --
-- The filters of buckets below the floor.
DELETE FROM onlyonce_private.range_filters WHERE instance = :instance AND last_bucket < :floor

-- forget --
-- The filters over a bucket from which ids were erased: such a filter would still show that they were there.
DELETE FROM onlyonce_private.range_filters WHERE instance = :instance AND first_bucket <= :bucket AND last_bucket >= :bucket

-- newest --
-- The newest bucket that is committed. Below it a bucket is closed: ingestion time does not move back.
SELECT max(last.bucket) AS bucket
FROM onlyonce_private.incarnations l CROSS JOIN LATERAL (
    SELECT b.bucket FROM onlyonce_private.batches b WHERE b.incarnation = l.incarnation AND b.state = 'committed'
    ORDER BY b.bucket DESC LIMIT 1) last
WHERE l.instance = :instance AND l.query = 'receive'

-- chunks --
-- The chunks of closed buckets, without their ids. Chunks of earlier versions have no hash, so no filter covers them.
SELECT partitions, partition, bucket, ids_hash, id_count FROM onlyonce_private.chunk_list
WHERE instance = :instance AND bucket >= :floor AND bucket < :newest AND id_count > 0 AND ids_hash IS NOT NULL

-- ids --
-- The ids of the chunks of one partition in a range of buckets.
SELECT ids, id_count, ids_hash FROM onlyonce_private.catalog_chunks
WHERE instance = :instance AND bucket >= :first AND bucket <= :last AND partitions = :partitions AND partition = :partition
  AND id_count > 0 AND ids_hash IS NOT NULL

-- add --
-- Stores a filter, and removes the filters over parts of its range.
WITH covered AS (
    DELETE FROM onlyonce_private.range_filters
    WHERE instance = :instance AND partitions = :partitions AND partition = :partition AND first_bucket >= :first AND last_bucket <= :last
      AND (first_bucket, last_bucket) <> (:first, :last))
INSERT INTO onlyonce_private.range_filters (instance, partitions, partition, first_bucket, last_bucket, chunk_hashes, id_count, filter)
VALUES (:instance, :partitions, :partition, :first, :last, CAST(:chunk_hashes AS bigint[]), :id_count, :filter)
ON CONFLICT ON CONSTRAINT range_filters_once DO UPDATE
SET chunk_hashes = excluded.chunk_hashes, id_count = excluded.id_count, filter = excluded.filter
