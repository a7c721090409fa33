-- The ids that were seen.

CREATE OR REPLACE VIEW onlyonce.record_ids AS
SELECT p.pipeline, c.instance, to_timestamp(c.bucket * 600) AS bucket_start, count(*) AS chunks,
       sum(c.id_count)::bigint AS ids, sum(octet_length(c.ids) + coalesce(octet_length(c.filter), 0))::bigint AS bytes
FROM onlyonce_private.catalog_chunks c JOIN onlyonce_private.pipelines p USING (instance)
GROUP BY p.pipeline, c.instance, c.bucket;
COMMENT ON VIEW onlyonce.record_ids IS 'How many record ids are remembered to know duplicates by, by bucket of ingestion time. Older ids are removed.';
COMMENT ON COLUMN onlyonce.record_ids.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.record_ids.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.record_ids.bucket_start IS 'the ten minutes of ingestion time that begin then';
COMMENT ON COLUMN onlyonce.record_ids.chunks IS 'in how many chunks, each with a Bloom filter';
COMMENT ON COLUMN onlyonce.record_ids.ids IS 'record ids';
COMMENT ON COLUMN onlyonce.record_ids.bytes IS 'ids and the filters of chunks, without the filters of onlyonce.range_filters';

-- A left join, so that a query for the keys alone reads no ids.
CREATE OR REPLACE VIEW onlyonce.id_chunks AS
SELECT p.pipeline, k.instance, k.bucket, k.incarnation, k.batch_id AS batch, k.partition, k.partitions, k.id_count, c.filter, c.ids
FROM onlyonce_private.chunk_list k JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.catalog_chunks c USING (instance, bucket, incarnation, batch_id, partition);
COMMENT ON VIEW onlyonce.id_chunks IS 'The id catalog: hashes of the record ids by which duplicates are known, in chunks. `onlyonce trace` looks up one id.';
COMMENT ON COLUMN onlyonce.id_chunks.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.id_chunks.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.id_chunks.bucket IS 'the ten minutes of ingestion time in which the ids were first seen, counted from 1970';
COMMENT ON COLUMN onlyonce.id_chunks.incarnation IS 'the incarnation of receive that kept the records';
COMMENT ON COLUMN onlyonce.id_chunks.batch IS 'its batch, or the first of several merged ones';
COMMENT ON COLUMN onlyonce.id_chunks.partition IS 'the partition that the ids fall into';
COMMENT ON COLUMN onlyonce.id_chunks.partitions IS 'of how many';
COMMENT ON COLUMN onlyonce.id_chunks.id_count IS 'how many ids';
COMMENT ON COLUMN onlyonce.id_chunks.filter IS 'the Bloom filter of the ids; NULL: none';
COMMENT ON COLUMN onlyonce.id_chunks.ids IS 'the sorted ids, 16 bytes each: hashes, from which no value can be read';

CREATE OR REPLACE VIEW onlyonce.range_filters AS
SELECT p.pipeline, f.instance, to_timestamp(f.first_bucket * 600) AS range_start, to_timestamp((f.last_bucket + 1) * 600) AS range_end,
       count(*) AS filters, sum(cardinality(f.chunk_hashes))::bigint AS chunks, sum(f.id_count)::bigint AS ids,
       sum(octet_length(f.filter))::bigint AS bytes
FROM onlyonce_private.range_filters f JOIN onlyonce_private.pipelines p USING (instance)
GROUP BY p.pipeline, f.instance, f.first_bucket, f.last_bucket;
COMMENT ON VIEW onlyonce.range_filters IS 'The Bloom filters over the ids of several closed buckets, which a gc run makes: a look-up asks them before the filters of the chunks.';
COMMENT ON COLUMN onlyonce.range_filters.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.range_filters.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.range_filters.range_start IS 'the ingestion time with which the range begins';
COMMENT ON COLUMN onlyonce.range_filters.range_end IS 'the ingestion time with which it ends';
COMMENT ON COLUMN onlyonce.range_filters.filters IS 'how many there are, one for each partition';
COMMENT ON COLUMN onlyonce.range_filters.chunks IS 'chunks that were in the range when they were made';
COMMENT ON COLUMN onlyonce.range_filters.ids IS 'their record ids';
COMMENT ON COLUMN onlyonce.range_filters.bytes IS 'the filters';
