-- What the page in Airflow asks must stay quick with a million commits: a run's batches, what a stage has still to read,
-- what a window met, and the sums of all batches without their wide rows.
CREATE INDEX batches_by_run ON onlyonce_private.batches (run_id);
CREATE INDEX backfills_by_run ON onlyonce_private.backfills (run_id);
CREATE INDEX batches_begun ON onlyonce_private.batches (lineage, batch_id) WHERE state = 'begun';
CREATE INDEX batches_by_version ON onlyonce_private.batches (lineage, delta_version) INCLUDE (kept, system_time, tide_after)
    WHERE state = 'committed' AND delta_version IS NOT NULL;
CREATE INDEX batches_sums ON onlyonce_private.batches (lineage)
    INCLUDE (state, batch_id, read, kept, invalid, remnant, duplicate, late, tide_after, committed_at);
CREATE INDEX window_counts_by_window ON onlyonce_private.window_counts (output, window_start);
CREATE INDEX window_counts_late ON onlyonce_private.window_counts (output, window_start, window_end) WHERE late > 0;
