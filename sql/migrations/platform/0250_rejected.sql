-- Rows that an output's function for rejections has rejected: a fate beside in time and late. NULL: the batch's output has no such function.
ALTER TABLE onlyonce_private.batches ADD COLUMN rejected bigint;
ALTER TABLE onlyonce_private.sums ADD COLUMN rejected bigint;
ALTER TABLE onlyonce_private.backfills ADD COLUMN rejected bigint;
ALTER TABLE onlyonce_private.window_counts ADD COLUMN rejected bigint NOT NULL DEFAULT 0;
ALTER TABLE onlyonce_private.window_sums ADD COLUMN rejected bigint NOT NULL DEFAULT 0;
COMMENT ON TABLE onlyonce_private.window_sums IS
    'What the batches of a life that are cut from the log had met of each window, all of it in time or rejected: a batch that met a late record stays.';

CREATE TABLE onlyonce_private.rejected (
    instance     text   NOT NULL,
    output       text   NOT NULL,
    window_start timestamptz,
    window_end   timestamptz,
    event_time   timestamptz NOT NULL,
    oo_high      bigint NOT NULL,
    oo_low       bigint NOT NULL,
    received_as  text   NOT NULL,
    received_in  bigint NOT NULL,
    reason       text   NOT NULL,
    rows         bigint NOT NULL,
    lineage      text   NOT NULL,
    batch_id     bigint NOT NULL,
    CONSTRAINT rejected_of_a_pipeline FOREIGN KEY (instance) REFERENCES onlyonce_private.pipelines ON DELETE CASCADE,
    CONSTRAINT rejected_by_a_lineage FOREIGN KEY (lineage) REFERENCES onlyonce_private.lineages ON DELETE CASCADE
);
CREATE INDEX rejected_by_window ON onlyonce_private.rejected (instance, output, window_start);
CREATE INDEX rejected_by_batch ON onlyonce_private.rejected (lineage, batch_id);
CREATE INDEX rejected_by_id ON onlyonce_private.rejected (instance, oo_high);
CREATE INDEX rejected_by_time ON onlyonce_private.rejected (instance, event_time);
COMMENT ON TABLE onlyonce_private.rejected IS
    'Each (record, window) pair that an output rejected: by the batch that met it, or by the last backfill of its window. Its values are in `events`.';
