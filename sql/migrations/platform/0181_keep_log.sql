-- The log of an output's old batches goes, where its pipeline says so (keep_log). What they met of each window is added up, by window, and what
-- they came to is in the sums of their life already.
ALTER TABLE onlyonce_private.pipelines ADD COLUMN keep_log interval, ADD COLUMN log_kept_from timestamptz;
COMMENT ON COLUMN onlyonce_private.pipelines.keep_log IS 'What keep_log of the declaration was when the log was last cut.';
COMMENT ON COLUMN onlyonce_private.pipelines.log_kept_from IS
    'Batches of outputs that were committed before this moment may be gone, or are about to be; their sums stay. Null: all are there.';

CREATE TABLE onlyonce_private.window_sums (
    lineage      text   NOT NULL,
    output       text   NOT NULL,
    window_start timestamptz,
    window_end   timestamptz,
    in_time      bigint NOT NULL,
    CONSTRAINT window_sums_once UNIQUE NULLS NOT DISTINCT (lineage, output, window_start, window_end),
    CONSTRAINT window_sums_of_a_lineage FOREIGN KEY (lineage) REFERENCES onlyonce_private.lineages ON DELETE CASCADE
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01,
        autovacuum_vacuum_insert_threshold = 20000, autovacuum_vacuum_insert_scale_factor = 0.02);
CREATE INDEX window_sums_by_window ON onlyonce_private.window_sums (output, window_start);
CREATE INDEX window_sums_by_length ON onlyonce_private.window_sums (output, (window_end - window_start));
COMMENT ON TABLE onlyonce_private.window_sums IS
    'What the batches of a life that are cut from the log had met of each window, all of it in time: a batch that met a late record stays.';
