-- A chunk is known by what it holds: one that was taken back and made again under the same key may hold as many other ids.
ALTER TABLE onlyonce_private.catalog_chunks ADD COLUMN ids_hash bigint;
COMMENT ON COLUMN onlyonce_private.catalog_chunks.ids_hash IS
    'A hash of the ids, by which a worker tells whether it has the chunk already; null in chunks of earlier versions.';
