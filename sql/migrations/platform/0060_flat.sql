-- What each batch, each start and each collection asks, whatever the length of the log.
CREATE INDEX closes_by_version ON onlyonce_private.closes (lineage, delta_version) WHERE state = 'committed';
CREATE INDEX closes_begun ON onlyonce_private.closes (lineage) WHERE state = 'begun';
CREATE INDEX batches_by_bucket ON onlyonce_private.batches (lineage, bucket);
CREATE INDEX panes_by_end ON onlyonce_private.panes (instance, output, window_end);

-- Rows that are written again and again: pages keep room for it, and are cleaned before the table has doubled. The defaults wait
-- for 50 dead rows and a fifth of the table, which of a table of a year is a month.
ALTER TABLE onlyonce_private.epochs SET (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE onlyonce_private.pipelines SET (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE onlyonce_private.lineages SET (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE onlyonce_private.long_runs SET (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE onlyonce_private.batches SET
    (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE onlyonce_private.units SET
    (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE onlyonce_private.panes SET
    (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE onlyonce_private.outbox SET
    (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);

-- Filters are bits at random: to try to compress each is time for nothing.
ALTER TABLE onlyonce_private.catalog_chunks ALTER COLUMN filter SET STORAGE EXTERNAL;
