-- What was removed from `events` for good. `onlyonce maintain` removes whole days (keep_events of a pipeline). The numbers stay, by batch and fate, so
-- that the log says what the table must have.
ALTER TABLE onlyonce_private.pipelines ADD COLUMN events_kept_from timestamptz;
COMMENT ON COLUMN onlyonce_private.pipelines.events_kept_from IS
    'Records of `events` from before this event time are removed, or are about to be: nothing that needs them begins any more. Null: all are kept.';

CREATE TABLE onlyonce_private.removals (
    instance       text        NOT NULL,
    removal_no     bigint      NOT NULL CONSTRAINT removals_count_from_1 CHECK (removal_no > 0),
    keep_events    interval    NOT NULL,
    before         timestamptz NOT NULL,
    upto           bigint      NOT NULL,
    state          text        NOT NULL DEFAULT 'begun' CONSTRAINT removals_state_known CHECK (state IN ('begun', 'done')),
    files          bigint,
    events_version bigint,
    begun_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at        timestamptz,
    CONSTRAINT removals_once PRIMARY KEY (instance, removal_no),
    CONSTRAINT removals_of_an_instance FOREIGN KEY (instance) REFERENCES onlyonce_private.pipelines (instance),
    CONSTRAINT removals_done_is_whole CHECK (state = 'begun' OR (files IS NOT NULL AND events_version IS NOT NULL AND done_at IS NOT NULL))
);
CREATE UNIQUE INDEX removals_one_at_a_time ON onlyonce_private.removals (instance) WHERE state = 'begun';
COMMENT ON TABLE onlyonce_private.removals IS
    'Each removal of old records from `events`: those from before an event time, of batches up to a version. Its number is that of its Delta transaction.';

CREATE TABLE onlyonce_private.removed_rows (
    instance   text   NOT NULL,
    removal_no bigint NOT NULL,
    lineage    text   NOT NULL,
    batch_id   bigint NOT NULL,
    fate       text   NOT NULL CONSTRAINT removed_rows_fate_known CHECK (fate IN ('kept', 'invalid', 'remnant')),
    rows       bigint NOT NULL CONSTRAINT removed_rows_some CHECK (rows > 0),
    CONSTRAINT removed_rows_once PRIMARY KEY (lineage, batch_id, fate, removal_no),
    CONSTRAINT removed_rows_of_a_removal FOREIGN KEY (instance, removal_no)
        REFERENCES onlyonce_private.removals (instance, removal_no) ON DELETE CASCADE
);
CREATE INDEX removed_rows_by_removal ON onlyonce_private.removed_rows (instance, removal_no);
COMMENT ON TABLE onlyonce_private.removed_rows IS 'How many rows of which batch and fate a removal has taken.';
