-- Sharded files: which attempt's file is the one that counts, recorded in its unit's transaction, and when it got its name.
CREATE TABLE onlyonce_private.files (
    file_no      bigint GENERATED ALWAYS AS IDENTITY,
    instance     text NOT NULL REFERENCES onlyonce_private.pipelines,
    output       text NOT NULL,
    lineage      text NOT NULL REFERENCES onlyonce_private.lineages,
    batch_id     bigint NOT NULL,
    partition    int NOT NULL,
    window_start timestamptz,
    window_end   timestamptz,
    shard        int NOT NULL,
    shards       int NOT NULL,
    generation   int,
    pane         int,
    place        text NOT NULL,
    temporary    text NOT NULL,
    name         text NOT NULL,
    rows         bigint NOT NULL,
    bytes        bigint NOT NULL,
    checksum     text NOT NULL,
    recorded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    finalized_at timestamptz,
    CONSTRAINT files_pkey PRIMARY KEY (file_no),
    CONSTRAINT files_one_winner_in_a_batch
        UNIQUE NULLS NOT DISTINCT (lineage, batch_id, output, window_start, window_end, shard),
    CONSTRAINT files_temporary_once UNIQUE (place, temporary),
    CONSTRAINT files_shard_in_range CHECK (shard >= 0 AND shard < shards),
    CONSTRAINT files_window_is_whole CHECK ((window_start IS NULL) = (window_end IS NULL)),
    CONSTRAINT files_pane_has_its_generation CHECK ((pane IS NULL) = (generation IS NULL)),
    CONSTRAINT files_name_has_its_pane CHECK ((pane IS NULL) = (position('{pane}' IN name) > 0)),
    CONSTRAINT files_only_a_pane_is_final CHECK (finalized_at IS NULL OR pane IS NOT NULL)
);
-- One winner for each shard of each pane, and one file for each final name, whoever asks.
CREATE UNIQUE INDEX files_one_winner ON onlyonce_private.files (instance, output, window_start, window_end, pane, shard)
    NULLS NOT DISTINCT WHERE pane IS NOT NULL;
CREATE UNIQUE INDEX files_one_of_a_name ON onlyonce_private.files (place, name) WHERE pane IS NOT NULL;
CREATE INDEX files_to_finalize ON onlyonce_private.files (instance, output, window_start, pane)
    WHERE pane IS NOT NULL AND finalized_at IS NULL;
COMMENT ON TABLE onlyonce_private.files IS
    'One row for each file of a sharded sink that a unit has committed: its temporary, and the name that it has or gets.';
COMMENT ON COLUMN onlyonce_private.files.pane IS
    'counts the panes of a window; NULL until the batch is committed, and for ever when a backfill was given up';
COMMENT ON COLUMN onlyonce_private.files.name IS 'the final name in its place; {pane} stands in it until the pane is known';
COMMENT ON COLUMN onlyonce_private.files.place IS
    'the folder or URL as it is declared; one that is neither absolute nor a URL is under the platform''s own folder of files';
