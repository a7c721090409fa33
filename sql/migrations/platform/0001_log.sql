-- The commit log: pipelines, lineages, batches, closes, and what the outputs made of them.
CREATE TABLE onlyonce_private.pipelines (
    instance    text PRIMARY KEY,
    instance_no int GENERATED ALWAYS AS IDENTITY UNIQUE,
    pipeline    text NOT NULL,
    gc_floor    bigint NOT NULL DEFAULT 0,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE onlyonce_private.pipelines IS
    'A pipeline on its stream (flights), or one of its bounded runs (flights@3). gc_floor: buckets below it are collected.';

CREATE TABLE onlyonce_private.lineages (
    lineage       text PRIMARY KEY,
    lineage_no    int GENERATED ALWAYS AS IDENTITY UNIQUE,
    instance      text NOT NULL REFERENCES onlyonce_private.pipelines,
    query         text NOT NULL,
    life          int NOT NULL,
    checkpoint_id uuid NOT NULL UNIQUE,
    state         text NOT NULL DEFAULT 'live',
    start_from    jsonb,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at    timestamptz,
    CONSTRAINT lineages_state_known CHECK (state IN ('live', 'closed', 'damaged')),
    CONSTRAINT lineages_life_is_once UNIQUE (instance, query, life)
);
CREATE UNIQUE INDEX lineages_one_live ON onlyonce_private.lineages (instance, query) WHERE state <> 'closed';
COMMENT ON TABLE onlyonce_private.lineages IS 'One life of one streaming query, bound to one checkpoint.';

CREATE TABLE onlyonce_private.batches (
    lineage          text NOT NULL REFERENCES onlyonce_private.lineages,
    batch_id         bigint NOT NULL,
    epoch            bigint NOT NULL,
    state            text NOT NULL DEFAULT 'begun',
    run_id           text NOT NULL,
    source_from      jsonb,
    source_to        jsonb NOT NULL,
    offsets_hash     text NOT NULL,
    partitions       int NOT NULL,
    tide             timestamptz,
    ended            timestamptz,
    silent_tide      timestamptz,
    silent_clock     timestamptz,
    system_time      timestamptz NOT NULL,
    bucket           bigint NOT NULL,
    gc_floor         bigint NOT NULL,
    settings         jsonb NOT NULL,
    mode             text NOT NULL,
    declaration_hash text NOT NULL,
    facts            jsonb NOT NULL DEFAULT '{}',
    read             bigint,
    kept             bigint,
    invalid          bigint,
    remnant          bigint,
    duplicate        bigint,
    unknown_fields   bigint,
    in_time          bigint,
    late             bigint,
    tide_after       timestamptz,
    delta_version    bigint,
    conserved        boolean,
    begun_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_at     timestamptz,
    CONSTRAINT batches_once PRIMARY KEY (lineage, batch_id),
    CONSTRAINT batches_state_known CHECK (state IN ('begun', 'committed')),
    CONSTRAINT batches_mode_known CHECK (mode IN ('exactly_once', 'at_least_once')),
    CONSTRAINT batches_committed_has_its_time CHECK ((state = 'committed') = (committed_at IS NOT NULL)),
    CONSTRAINT batches_committed_is_conserved CHECK (state <> 'committed' OR conserved IS TRUE),
    CONSTRAINT batches_tide_never_moves_back CHECK (tide_after >= tide)
);
COMMENT ON TABLE onlyonce_private.batches IS
    'One row for each batch: what a replay must repeat (fixed when it began) and what came of it (set when it committed).';

CREATE TABLE onlyonce_private.closes (
    lineage       text NOT NULL REFERENCES onlyonce_private.lineages,
    close_no      bigint NOT NULL,
    epoch         bigint NOT NULL,
    kind          text NOT NULL,
    state         text NOT NULL DEFAULT 'begun',
    run_id        text NOT NULL,
    tide          timestamptz,
    ended         timestamptz,
    silent_tide   timestamptz,
    silent_clock  timestamptz,
    delta_version bigint,
    begun_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_at  timestamptz,
    CONSTRAINT closes_once PRIMARY KEY (lineage, close_no),
    CONSTRAINT closes_kind_known CHECK (kind IN ('ended', 'silent')),
    CONSTRAINT closes_committed_has_its_time CHECK ((state = 'committed') = (committed_at IS NOT NULL))
);
COMMENT ON TABLE onlyonce_private.closes IS
    'Control rows that the receive driver wrote between batches: the input ended, or the source fell silent.';

CREATE TABLE onlyonce_private.window_counts (
    lineage      text NOT NULL,
    batch_id     bigint NOT NULL,
    output       text NOT NULL,
    window_start timestamptz,
    window_end   timestamptz,
    in_time      bigint NOT NULL,
    late         bigint NOT NULL,
    CONSTRAINT window_counts_once UNIQUE NULLS NOT DISTINCT (lineage, batch_id, output, window_start, window_end),
    CONSTRAINT window_counts_of_a_batch FOREIGN KEY (lineage, batch_id) REFERENCES onlyonce_private.batches
);
COMMENT ON TABLE onlyonce_private.window_counts IS
    '(record, window) pairs that an output batch met, by window: in time and late.';

CREATE TABLE onlyonce_private.panes (
    instance         text NOT NULL,
    output           text NOT NULL,
    window_start     timestamptz NOT NULL,
    window_end       timestamptz NOT NULL,
    generation       int NOT NULL,
    final            boolean NOT NULL,
    rows             bigint NOT NULL,
    lineage          text NOT NULL,
    batch_id         bigint NOT NULL,
    declaration_hash text NOT NULL,
    committed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT panes_once PRIMARY KEY (instance, output, window_start, window_end, generation)
);
COMMENT ON TABLE onlyonce_private.panes IS
    'The windows that an output has written, with the generation: 0 by the stream, then one for each backfill.';
