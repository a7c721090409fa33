-- Whose table is whose: a table or folder has the rows of one output of one instance. Who wrote before this was kept takes its
-- targets at its next run.
CREATE TABLE onlyonce_private.targets (
    identity   text NOT NULL,
    place      text NOT NULL,
    instance   text NOT NULL,
    output     text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_at    timestamptz,
    CONSTRAINT targets_of_one_output PRIMARY KEY (identity)
);
COMMENT ON TABLE onlyonce_private.targets IS
    'The tables and folders that outputs write to, each by one output alone: a backfill of another one would remove its rows.';
COMMENT ON COLUMN onlyonce_private.targets.identity IS
    'the same for all spellings of a target: folder:<path, from the home if it is below>, or postgres:<cluster>/<database>:<table>';
COMMENT ON COLUMN onlyonce_private.targets.place IS 'as it is declared (jobs/model/dropping.py)';
COMMENT ON COLUMN onlyonce_private.targets.made_at IS
    'when a run first had made the table, or found it there: from then on one that is missing was deleted';
