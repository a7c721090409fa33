-- One Bloom filter over the chunks of several closed buckets, so that a look-up asks few filters however many buckets are live. It says which
-- chunks are in it by the hash of their ids, and answers for these and no others: it is a help, and the chunks have filters of their own.
CREATE TABLE onlyonce_private.range_filters (
    instance     text     NOT NULL CONSTRAINT range_filters_of_an_instance REFERENCES onlyonce_private.pipelines ON DELETE CASCADE,
    partitions   int      NOT NULL,
    partition    int      NOT NULL,
    first_bucket bigint   NOT NULL,
    last_bucket  bigint   NOT NULL,
    chunk_hashes bigint[] NOT NULL,
    id_count     int      NOT NULL,
    filter       bytea    NOT NULL,
    CONSTRAINT range_filters_once PRIMARY KEY (instance, partitions, partition, first_bucket, last_bucket),
    CONSTRAINT range_filters_are_over_several CHECK (first_bucket < last_bucket AND cardinality(chunk_hashes) > 1)
) WITH (autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE onlyonce_private.range_filters ALTER COLUMN filter SET STORAGE EXTERNAL;
COMMENT ON TABLE onlyonce_private.range_filters IS
    'A Bloom filter over the ids of several chunks of one partition, of closed buckets. chunk_hashes: the ids_hash of each chunk that is in it.';
