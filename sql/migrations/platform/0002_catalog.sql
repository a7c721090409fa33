-- The record catalog: packed ids by chunk, partitioned by pipeline, then by bucket of system time.
CREATE TABLE onlyonce_private.catalog_chunks (
    instance   text NOT NULL,
    bucket     bigint NOT NULL,
    lineage    text NOT NULL,
    batch_id   bigint NOT NULL,
    partition  int NOT NULL,
    partitions int NOT NULL,
    ids        bytea NOT NULL,
    id_count   int NOT NULL,
    filter     bytea,
    CONSTRAINT catalog_chunks_once PRIMARY KEY (instance, bucket, lineage, batch_id, partition),
    CONSTRAINT catalog_ids_are_packed CHECK (octet_length(ids) = 16 * id_count),
    CONSTRAINT catalog_partition_in_range CHECK (partition >= 0 AND partition < partitions)
) PARTITION BY LIST (instance);
ALTER TABLE onlyonce_private.catalog_chunks ALTER COLUMN ids SET STORAGE EXTERNAL;
COMMENT ON TABLE onlyonce_private.catalog_chunks IS
    'What one receive unit kept: its ids as packed, sorted 128-bit hashes (big-endian, 16 bytes each).';
