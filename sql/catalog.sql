-- add_chunk --
-- What one receive unit kept, in the transaction of its claim.
INSERT INTO onlyonce_private.catalog_chunks
    (instance, bucket, lineage, batch_id, partition, partitions, ids, id_count, filter)
VALUES (:instance, :bucket, :lineage, :batch_id, :partition, :partitions, :ids, :id_count, :filter)

-- chunks --
-- The chunks that batch `batch_id` of a lineage may see: earlier batches of it, and all of the pipeline's
-- other lineages; of them only those that can hold an id of this partition. No ids yet.
SELECT bucket, lineage, batch_id, partition, id_count
FROM onlyonce_private.catalog_chunks
WHERE instance = :instance AND bucket >= :floor AND id_count > 0
  AND (lineage <> :lineage OR batch_id < :batch_id)
  AND mod(partition, gcd(partitions, :partitions)) = mod(:partition, gcd(partitions, :partitions))

-- ids --
-- The packed ids of one chunk.
SELECT ids FROM onlyonce_private.catalog_chunks
WHERE instance = :instance AND bucket = :bucket AND lineage = :lineage AND batch_id = :batch_id AND partition = :partition

-- floor --
-- The number of an instance, and the bucket below which its ids are collected.
SELECT instance_no, gc_floor FROM onlyonce_private.pipelines WHERE instance = :instance
