-- What a drop has still to remove or leaves to its readers; and the alerts that somebody was told of.
CREATE TABLE onlyonce_private.leftovers (
    place      text PRIMARY KEY,
    instance   text NOT NULL,
    query      text,
    lineages   text[] NOT NULL,
    state      text NOT NULL,
    dropped_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT leftovers_state_known CHECK (state IN ('going', 'left'))
);
COMMENT ON TABLE onlyonce_private.leftovers IS
    'What was there beside the log when a pipeline or output was dropped: still to be removed, or left. No run writes there.';
COMMENT ON COLUMN onlyonce_private.leftovers.state IS
    'going: the drop has still to remove it. left: the rows of a sink that somebody may need, until a drop with --tables';

CREATE TABLE onlyonce_private.alerts (
    kind       text NOT NULL,
    subject    text NOT NULL,
    what       text NOT NULL,
    raised_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    told_at    timestamptz,
    CONSTRAINT alerts_once PRIMARY KEY (kind, subject)
);
COMMENT ON TABLE onlyonce_private.alerts IS
    'The causes of alerts that have not cleared. told_at: when the hook was told; NULL: it has failed, and is told again.';
