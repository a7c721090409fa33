-- Backfills: recomputations of closed windows. Each interval of an output has a lineage of its own, without a checkpoint.
ALTER TABLE onlyonce_private.lineages ADD COLUMN kind text NOT NULL DEFAULT 'stream',
    ADD CONSTRAINT lineages_kind_known CHECK (kind IN ('stream', 'backfill'));

CREATE TABLE onlyonce_private.backfills (
    lineage          text NOT NULL REFERENCES onlyonce_private.lineages,
    batch_id         bigint NOT NULL,
    instance         text NOT NULL REFERENCES onlyonce_private.pipelines,
    output           text NOT NULL,
    epoch            bigint NOT NULL,
    state            text NOT NULL DEFAULT 'begun',
    run_id           text NOT NULL,
    asked_by         text NOT NULL,
    window_from      timestamptz NOT NULL,
    window_to        timestamptz NOT NULL,
    events_version   bigint NOT NULL,
    declaration_hash text NOT NULL,
    windows          bigint,
    rows             bigint,
    in_time          bigint,
    late             bigint,
    begun_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_at     timestamptz,
    CONSTRAINT backfills_once PRIMARY KEY (lineage, batch_id),
    CONSTRAINT backfills_state_known CHECK (state IN ('begun', 'committed', 'replaced')),
    CONSTRAINT backfills_asked_by_known CHECK (asked_by IN ('person', 'late rows')),
    CONSTRAINT backfills_interval_is_not_empty CHECK (window_from < window_to),
    CONSTRAINT backfills_committed_has_its_time CHECK ((state = 'committed') = (committed_at IS NOT NULL))
);
CREATE UNIQUE INDEX backfills_one_begun ON onlyonce_private.backfills (lineage) WHERE state = 'begun';
CREATE INDEX backfills_by_output ON onlyonce_private.backfills (instance, output, window_from);
COMMENT ON TABLE onlyonce_private.backfills IS
    'One row for each recomputation of the windows of an output that start in [window_from, window_to).';
COMMENT ON COLUMN onlyonce_private.backfills.batch_id IS 'counts the recomputations of this interval; its Delta txnVersion';
COMMENT ON COLUMN onlyonce_private.backfills.state IS
    'begun; committed; replaced: its driver ended before it committed, and a later one did the interval again';
