-- What the batches of each life came to, up to one: so nobody adds up the log of a year to say how much was received. A collection folds in
-- batches that were committed long ago, after it has compared each with its units and windows.
CREATE TABLE onlyonce_private.sums (
    lineage        text   NOT NULL CONSTRAINT sums_once PRIMARY KEY,
    upto           bigint NOT NULL,
    batches        bigint NOT NULL,
    read           bigint,
    kept           bigint,
    invalid        bigint,
    remnant        bigint,
    duplicate      bigint,
    in_time        bigint,
    late           bigint,
    unknown_fields bigint,
    written_again  bigint,
    declarations   text[] NOT NULL,
    CONSTRAINT sums_of_a_lineage FOREIGN KEY (lineage) REFERENCES onlyonce_private.lineages ON DELETE CASCADE,
    CONSTRAINT sums_conserve_records CHECK (coalesce(read = kept + invalid + remnant + duplicate, true))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE onlyonce_private.sums IS
    'The sums over the batches of a lineage up to `upto`, each of them committed and found to be conserved. Later batches are added to them by who asks.';

-- The first batch that has read a version of `events` (`onlyonce trace`): offsets never move back in a lineage.
CREATE INDEX batches_by_offset ON onlyonce_private.batches (lineage, ((source_to->>'reservoirVersion')::bigint), batch_id)
    WHERE state = 'committed';

-- How long a window of an output may be, so that those which hold a time are looked for in a short range; and the newest files.
CREATE INDEX panes_by_length ON onlyonce_private.panes (instance, output, (window_end - window_start));
CREATE INDEX window_counts_by_length ON onlyonce_private.window_counts (output, (window_end - window_start));
CREATE INDEX files_by_window ON onlyonce_private.files (instance, window_start);

-- Rows that are only added: the visibility map is kept up, so that an index alone answers.
ALTER TABLE onlyonce_private.window_counts SET (autovacuum_vacuum_insert_threshold = 20000, autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE onlyonce_private.files SET
    (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
ALTER TABLE onlyonce_private.closes SET
    (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
