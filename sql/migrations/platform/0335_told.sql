-- What Spark tells of the state of an output, as of the last batch that was looked at: one row for each operator that keeps state.
CREATE TABLE onlyonce_private.states (
    lineage      text    NOT NULL,
    operator     integer NOT NULL,
    kind         text    NOT NULL,
    batch_id     bigint  NOT NULL,
    rows_in      bigint  NOT NULL,
    rows_out     bigint  NOT NULL,
    rows         bigint,
    timers_set   bigint,
    timers_ended bigint,
    disk_bytes   bigint,
    memory_bytes bigint  NOT NULL,
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT states_once PRIMARY KEY (lineage, operator),
    CONSTRAINT states_of_a_lineage FOREIGN KEY (lineage) REFERENCES onlyonce_private.lineages ON DELETE CASCADE
);
COMMENT ON TABLE onlyonce_private.states IS 'What Spark told of the state of a life of an output with its last batch. For people: nothing is decided by it.';
COMMENT ON COLUMN onlyonce_private.states.rows IS
    'Of a join: the rows that came less those that went, over all batches of the life. NULL once a batch was not looked at, since a driver was killed behind it.';

-- Which snapshot of an Iceberg table has the rows of a unit.
ALTER TABLE onlyonce_private.units ADD COLUMN snapshot_id bigint;
COMMENT ON COLUMN onlyonce_private.units.snapshot_id IS 'Iceberg: the snapshot that added the rows. NULL: none did, or it was not looked up.';
