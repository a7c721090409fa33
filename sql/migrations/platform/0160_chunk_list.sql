-- The list of the catalog's chunks is a table of its own: PostgreSQL plans a question over all buckets of a day in 50 ms, and each batch asks it
-- once for each partition. Triggers keep it, so what changes a chunk in whatever way changes its entry in the same transaction. A bucket that
-- goes whole takes its entries along (`unlist`): a drop has no rows.
CREATE TABLE onlyonce_private.chunk_list (
    instance   text   NOT NULL,
    bucket     bigint NOT NULL,
    lineage    text   NOT NULL,
    batch_id   bigint NOT NULL,
    partition  int    NOT NULL,
    partitions int    NOT NULL,
    id_count   int    NOT NULL,
    ids_hash   bigint,
    CONSTRAINT chunk_list_once PRIMARY KEY (instance, bucket, lineage, batch_id, partition)
) WITH (autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1);
COMMENT ON TABLE onlyonce_private.chunk_list IS
    'Which chunks there are in catalog_chunks, without their ids and filters. Triggers keep it; a look-up reads it first.';

INSERT INTO onlyonce_private.chunk_list (instance, bucket, lineage, batch_id, partition, partitions, id_count, ids_hash)
SELECT instance, bucket, lineage, batch_id, partition, partitions, id_count, ids_hash FROM onlyonce_private.catalog_chunks;

CREATE FUNCTION onlyonce_private.list_chunk() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND (OLD.instance, OLD.bucket, OLD.lineage, OLD.batch_id, OLD.partition)
                                              <> (NEW.instance, NEW.bucket, NEW.lineage, NEW.batch_id, NEW.partition)) THEN
        DELETE FROM onlyonce_private.chunk_list l
        WHERE (l.instance, l.bucket, l.lineage, l.batch_id, l.partition) = (OLD.instance, OLD.bucket, OLD.lineage, OLD.batch_id, OLD.partition);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO onlyonce_private.chunk_list (instance, bucket, lineage, batch_id, partition, partitions, id_count, ids_hash)
        VALUES (NEW.instance, NEW.bucket, NEW.lineage, NEW.batch_id, NEW.partition, NEW.partitions, NEW.id_count, NEW.ids_hash)
        ON CONFLICT ON CONSTRAINT chunk_list_once DO UPDATE
        SET partitions = excluded.partitions, id_count = excluded.id_count, ids_hash = excluded.ids_hash;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER chunks_come_and_go AFTER INSERT OR DELETE ON onlyonce_private.catalog_chunks
    FOR EACH ROW EXECUTE FUNCTION onlyonce_private.list_chunk();
-- A filter that is made again changes nothing that the list tells.
CREATE TRIGGER chunks_change AFTER UPDATE OF instance, bucket, lineage, batch_id, partition, partitions, id_count, ids_hash
    ON onlyonce_private.catalog_chunks FOR EACH ROW EXECUTE FUNCTION onlyonce_private.list_chunk();
