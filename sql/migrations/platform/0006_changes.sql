-- What each query has run under, in readable parts; and what was released from invalid and remnant rows.
CREATE TABLE onlyonce_private.declarations (
    instance      text NOT NULL REFERENCES onlyonce_private.pipelines,
    query         text NOT NULL,
    hash          text NOT NULL,
    parts         jsonb NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT declarations_once PRIMARY KEY (instance, query, hash)
);
COMMENT ON TABLE onlyonce_private.declarations IS
    'What a query was declared as when it ran under a declaration_hash: options and the source of its functions.';

CREATE TABLE onlyonce_private.releases (
    release_no     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance       text NOT NULL REFERENCES onlyonce_private.pipelines,
    kind           text NOT NULL,
    state          text NOT NULL DEFAULT 'begun',
    run_id         text NOT NULL,
    events_version bigint NOT NULL,
    path           text,
    lines          bigint,
    left_out       bigint,
    still_invalid  bigint,
    begun_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    released_at    timestamptz,
    CONSTRAINT releases_kind_known CHECK (kind IN ('invalid', 'remnant')),
    CONSTRAINT releases_state_known CHECK (state IN ('begun', 'released')),
    CONSTRAINT releases_released_has_its_time CHECK ((state = 'released') = (released_at IS NOT NULL))
);
CREATE UNIQUE INDEX releases_one_begun ON onlyonce_private.releases (instance) WHERE state = 'begun';
COMMENT ON TABLE onlyonce_private.releases IS
    'One row for each release: the input file that rows of invalid or remnant were put into again.';

CREATE TABLE onlyonce_private.released_sets (
    instance   text NOT NULL,
    kind       text NOT NULL,
    lineage    text NOT NULL,
    batch_id   bigint NOT NULL,
    reason     text NOT NULL,
    file       text NOT NULL DEFAULT '',
    release_no int NOT NULL REFERENCES onlyonce_private.releases,
    rows       bigint NOT NULL,
    CONSTRAINT released_sets_once PRIMARY KEY (instance, kind, lineage, batch_id, reason, file)
);
COMMENT ON TABLE onlyonce_private.released_sets IS
    'The rows of `events` of one batch, kind and reason (or one file that could not be read): released at most once, as a whole.';
