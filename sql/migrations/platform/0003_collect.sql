-- Filters are random bits: compressing them costs time and saves nothing.
ALTER TABLE onlyonce_private.catalog_chunks ALTER COLUMN filter SET STORAGE EXTERNAL;
COMMENT ON COLUMN onlyonce_private.catalog_chunks.filter IS
    'The Bloom filter of the ids, with its checksum; NULL or damaged, it is made again from them.';
COMMENT ON COLUMN onlyonce_private.pipelines.gc_floor IS
    'Buckets below it are collected. It is stored before they are dropped, and only ever moves up.';
