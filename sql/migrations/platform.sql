-- The commit log: pipelines, incarnations, batches, watermark markers, and what the outputs made of them.
--
-- Keys are names (incarnation, unique_id) and not the number that an incarnation has too: the same names are in the result tables, in commits to Delta and
-- Iceberg, in messages and in logs, and a sink's own database has no table of incarnations to look a number up in. incarnation_no is short enough for the
-- name of a session. Names cost some 30 bytes a row; a join by them needs no other table.
--
-- Columns named read, rows, partition, before and every are no reserved words in PostgreSQL. The views, which people query, have other names where
-- a word would mislead. A column has a comment if its name and its constraints do not say what is in it.
--
-- JSON is read where it is used: source_to is Spark's, and its form differs by source. What is looked for has an index on the expression.
CREATE TABLE onlyonce_private.pipelines (
    instance    text PRIMARY KEY,
    instance_no int GENERATED ALWAYS AS IDENTITY UNIQUE,
    pipeline    text NOT NULL,
    gc_floor    bigint NOT NULL DEFAULT 0,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Up to which version of `events` its files may have been rewritten (`onlyonce maintain`): a reader of the rows of those commits asks the table
    -- as it is now, and not the files that the commits name.
    events_compacted bigint NOT NULL DEFAULT -1,
    -- What was removed from `events` for good. `onlyonce maintain` removes whole days (keep_events of a pipeline). The numbers stay, by batch and fate, so
    -- that the log says what the table must have.
    events_kept_from timestamptz,
    -- The log of an output's old batches goes, where its pipeline says so (keep_log). What they met of each window is added up, by window, and what
    -- they came to is in the sums of their incarnation already.
    keep_log interval,
    log_kept_from timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE onlyonce_private.pipelines IS
    'A pipeline on its stream (flights), or one of its bounded runs (flights@3). gc_floor: buckets below it are collected.';
COMMENT ON COLUMN onlyonce_private.pipelines.gc_floor IS
    'Buckets below it are collected. It is stored before they are dropped. It moves down only over buckets that no batch has used, when arrivals are corrected.';
COMMENT ON COLUMN onlyonce_private.pipelines.events_compacted IS
    'The files of commits to `events` up to this version may be others by now, and the commits themselves gone from the log of the table; -1: none.';
COMMENT ON COLUMN onlyonce_private.pipelines.events_kept_from IS
    'Records of `events` from before this event time are removed, or are about to be: nothing that needs them begins any more. Null: all are kept.';
COMMENT ON COLUMN onlyonce_private.pipelines.keep_log IS 'What keep_log of the declaration was when the log was last cut.';
COMMENT ON COLUMN onlyonce_private.pipelines.log_kept_from IS
    'Batches of outputs that were committed before this moment may be gone, or are about to be; their sums stay. Null: all are there.';

CREATE TABLE onlyonce_private.incarnations (
    incarnation       text PRIMARY KEY,
    incarnation_no    int GENERATED ALWAYS AS IDENTITY UNIQUE,
    instance      text NOT NULL REFERENCES onlyonce_private.pipelines,
    query         text NOT NULL,
    ordinal          int NOT NULL,
    checkpoint_id uuid NOT NULL UNIQUE,
    state         text NOT NULL DEFAULT 'live',
    start_from    jsonb,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at    timestamptz,
    -- Backfills: recomputations of closed windows. Each interval of an output has an incarnation of its own, without a checkpoint.
    kind text NOT NULL DEFAULT 'stream',
    CONSTRAINT incarnations_state_known CHECK (state IN ('live', 'closed', 'damaged')),
    CONSTRAINT incarnations_ordinal_is_once UNIQUE (instance, query, ordinal),
    CONSTRAINT incarnations_kind_known CHECK (kind IN ('stream', 'backfill'))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
CREATE UNIQUE INDEX incarnations_one_live ON onlyonce_private.incarnations (instance, query) WHERE state <> 'closed';
COMMENT ON TABLE onlyonce_private.incarnations IS 'One lifetime of one streaming query, bound to one checkpoint.';

CREATE TABLE onlyonce_private.batches (
    incarnation          text NOT NULL REFERENCES onlyonce_private.incarnations,
    batch_id         bigint NOT NULL,
    epoch            bigint NOT NULL,
    state            text NOT NULL DEFAULT 'begun',
    run_id           text NOT NULL,
    source_from      jsonb,
    source_to        jsonb NOT NULL,
    offsets_hash     text NOT NULL,
    partitions       int NOT NULL,
    max_event_time             timestamptz,
    ended            timestamptz,
    silent_max_event_time      timestamptz,
    silent_clock     timestamptz,
    ingestion_time      timestamptz NOT NULL,
    bucket           bigint NOT NULL,
    gc_floor         bigint NOT NULL,
    settings         jsonb NOT NULL,
    mode             text NOT NULL,
    declaration_hash text NOT NULL,
    facts            jsonb NOT NULL DEFAULT '{}',
    read             bigint,
    kept             bigint,
    invalid          bigint,
    expired          bigint,
    duplicate        bigint,
    unknown_fields   bigint,
    in_time          bigint,
    late             bigint,
    max_event_time_after       timestamptz,
    delta_version    bigint,
    conserved        boolean,
    begun_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_at     timestamptz,
    near_horizon bigint,
    units_removed int,
    -- At-least-once mode: what was written twice, and which batches have no ids in the catalog.
    written_again bigint,
    ids_added_at timestamptz,
    lookups_spared bigint,
    false_positives bigint,
    -- Which version of each lookup a batch of an output sees: {"customers": {"version": 17, "table": "<the id of the Delta table>"}}.
    lookups jsonb NOT NULL DEFAULT '{}',
    -- Rows that an output's function for rejections has rejected: a fate next to in time and late. NULL: the batch's output has no such function.
    rejected bigint,
    -- A pipeline of several sources: how far each had come in event time before a batch, and has come after it or a watermark marker:
    -- {"shop": {"max_event_time": <microseconds, or null>, "seen": <microseconds>, "idle": false}}. Null: the pipeline has one source.
    source_progress jsonb,
    source_progress_after jsonb,
    CONSTRAINT batches_once PRIMARY KEY (incarnation, batch_id),
    CONSTRAINT batches_state_known CHECK (state IN ('begun', 'committed')),
    CONSTRAINT batches_committed_has_its_time CHECK ((state = 'committed') = (committed_at IS NOT NULL)),
    CONSTRAINT batches_committed_is_conserved CHECK (state <> 'committed' OR conserved IS TRUE),
    CONSTRAINT batches_max_event_time_never_moves_back CHECK (max_event_time_after >= max_event_time),
    CONSTRAINT batches_only_committed_loses_units CHECK (units_removed IS NULL OR state = 'committed'),
    CONSTRAINT batches_only_at_least_once_writes_again CHECK (mode = 'at_least_once' OR written_again IS NULL),
    -- Ids by position: a receive batch that is exactly once without units and without a catalog.
    CONSTRAINT batches_mode_known CHECK (mode IN ('exactly_once', 'at_least_once', 'by_position'))
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
CREATE INDEX batches_with_units ON onlyonce_private.batches (committed_at) WHERE units_removed IS NULL AND state = 'committed';
CREATE INDEX batches_without_ids ON onlyonce_private.batches (bucket)
    WHERE mode = 'at_least_once' AND ids_added_at IS NULL;
-- What the page in Airflow asks must stay quick with a million commits: a run's batches, what a stage has still to read,
-- what a window met, and the sums of all batches without their wide rows.
CREATE INDEX batches_by_run ON onlyonce_private.batches (run_id);
CREATE INDEX batches_begun ON onlyonce_private.batches (incarnation, batch_id) WHERE state = 'begun';
CREATE INDEX batches_by_version ON onlyonce_private.batches (incarnation, delta_version) INCLUDE (kept, ingestion_time, max_event_time_after)
    WHERE state = 'committed' AND delta_version IS NOT NULL;
CREATE INDEX batches_sums ON onlyonce_private.batches (incarnation)
    INCLUDE (state, batch_id, read, kept, invalid, expired, duplicate, late, max_event_time_after, committed_at);
CREATE INDEX batches_by_bucket ON onlyonce_private.batches (incarnation, bucket);
-- The first batch that has read a version of `events` (`onlyonce trace`): offsets never move back in an incarnation.
CREATE INDEX batches_by_offset ON onlyonce_private.batches (incarnation, ((source_to->>'reservoirVersion')::bigint), batch_id)
    WHERE state = 'committed';
-- Whether a cut of an inbox is committed (`onlyonce gc`, where input is archived; an erasure): asked of the files that are there, not of all that
-- ever came. Each of several sources numbers its own cuts.
CREATE INDEX batches_by_cut ON onlyonce_private.batches (incarnation, coalesce(source_to->>'source', ''),
    (coalesce(source_to->>'source_batch_no', source_to->>'batch_no')::bigint), batch_id)
    WHERE state = 'committed' AND source_to ? 'batch_no';
COMMENT ON TABLE onlyonce_private.batches IS
    'One row for each batch: what a replay must repeat (fixed when it began) and what came of it (set when it committed).';
COMMENT ON COLUMN onlyonce_private.batches.units_removed IS
    'how many units of the batch the collector has removed, long after it was committed; NULL while all are there';
COMMENT ON COLUMN onlyonce_private.batches.near_horizon IS
    'the sum over its units, kept when these are removed';
COMMENT ON COLUMN onlyonce_private.batches.written_again IS
    'at_least_once, an output: rows that a replay or a task that was tried again wrote to PostgreSQL once more';
COMMENT ON COLUMN onlyonce_private.batches.ids_added_at IS
    'at_least_once, receive: when its ids were put into the catalog for exactly-once batches after it; NULL: not there';
COMMENT ON COLUMN onlyonce_private.batches.lookups_spared IS 'the sum over its units, kept when these are removed';
COMMENT ON COLUMN onlyonce_private.batches.false_positives IS 'the sum over its units, kept when these are removed';
COMMENT ON COLUMN onlyonce_private.batches.lookups IS 'The version of each lookup, fixed when the batch begins: a replay sees the same.';
COMMENT ON COLUMN onlyonce_private.batches.source_progress IS 'How far each of several sources had come, fixed when the batch begins: a replay sees the same.';

CREATE TABLE onlyonce_private.watermark_markers (
    incarnation       text NOT NULL REFERENCES onlyonce_private.incarnations,
    marker_no      bigint NOT NULL,
    epoch         bigint NOT NULL,
    kind          text NOT NULL,
    state         text NOT NULL DEFAULT 'begun',
    run_id        text NOT NULL,
    max_event_time          timestamptz,
    ended         timestamptz,
    silent_max_event_time   timestamptz,
    silent_clock  timestamptz,
    delta_version bigint,
    begun_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    committed_at  timestamptz,
    source_progress_after jsonb,
    CONSTRAINT watermark_markers_once PRIMARY KEY (incarnation, marker_no),
    CONSTRAINT watermark_markers_committed_has_its_time CHECK ((state = 'committed') = (committed_at IS NOT NULL)),
    -- A watermark marker by which a source that is idle, or was retired, holds the watermark back no more.
    CONSTRAINT watermark_markers_kind_known CHECK (kind IN ('ended', 'silent', 'idle'))
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
-- What each batch, each start and each collection asks, whatever the length of the log.
CREATE INDEX watermark_markers_by_version ON onlyonce_private.watermark_markers (incarnation, delta_version) WHERE state = 'committed';
CREATE INDEX watermark_markers_begun ON onlyonce_private.watermark_markers (incarnation) WHERE state = 'begun';
COMMENT ON TABLE onlyonce_private.watermark_markers IS
    'Control rows that the receive driver wrote between batches: the input ended, or the source fell silent.';

-- Rows that are only added: the visibility map is kept up, so that an index alone answers.
CREATE TABLE onlyonce_private.window_counts (
    incarnation      text NOT NULL,
    batch_id     bigint NOT NULL,
    output       text NOT NULL,
    window_start timestamptz,
    window_end   timestamptz,
    in_time      bigint NOT NULL,
    late         bigint NOT NULL,
    -- A late row has no session of its own, so it is counted by the hour of its event. A backfill has folded the rows of an hour in when it
    -- holds the first and the last of them, not the hour's start.
    late_from timestamptz,
    late_to timestamptz,
    rejected bigint NOT NULL DEFAULT 0,
    CONSTRAINT window_counts_once UNIQUE NULLS NOT DISTINCT (incarnation, batch_id, output, window_start, window_end),
    CONSTRAINT window_counts_of_a_batch FOREIGN KEY (incarnation, batch_id) REFERENCES onlyonce_private.batches
) WITH (autovacuum_vacuum_insert_threshold = 20000, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.01);
-- They begin with the output: a query names one, and its instance follows by the incarnation. The instance as a column of its own would be stored
-- once more in each row of the table that has the most. Outputs of one name in several pipelines share a range of these indexes.
CREATE INDEX window_counts_by_window ON onlyonce_private.window_counts (output, window_start);
CREATE INDEX window_counts_late ON onlyonce_private.window_counts (output, window_start, window_end) WHERE late > 0;
CREATE INDEX window_counts_by_length ON onlyonce_private.window_counts (output, (window_end - window_start));
COMMENT ON TABLE onlyonce_private.window_counts IS
    '(record, window) pairs that an output batch met, by window: in time and late.';
COMMENT ON COLUMN onlyonce_private.window_counts.late_from IS 'of sessions: the first event time of the late rows; late_to: the last';

CREATE TABLE onlyonce_private.panes (
    instance         text NOT NULL,
    output           text NOT NULL,
    window_start     timestamptz NOT NULL,
    window_end       timestamptz NOT NULL,
    generation       int NOT NULL,
    final            boolean NOT NULL,
    rows             bigint NOT NULL,
    incarnation          text NOT NULL,
    batch_id         bigint NOT NULL,
    declaration_hash text NOT NULL,
    committed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The same for what was written of a window last; null: its output has no lookups.
    lookups jsonb,
    -- Of an output whose panes have a trigger: the records of an open window that no pane has.
    held bigint,
    held_since timestamptz,
    -- Of an output that numbers its panes in a column of its rows.
    pane int,
    rows_of_all_panes bigint,
    CONSTRAINT panes_once PRIMARY KEY (instance, output, window_start, window_end, generation)
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
CREATE INDEX panes_open ON onlyonce_private.panes (instance, output, window_end) WHERE NOT final;
CREATE INDEX panes_by_end ON onlyonce_private.panes (instance, output, window_end);
-- How long a window of an output may be, so that those which hold a time are looked for in a short range; and the newest files.
CREATE INDEX panes_by_length ON onlyonce_private.panes (instance, output, (window_end - window_start));
CREATE INDEX panes_held ON onlyonce_private.panes (instance, output) WHERE held IS NOT NULL;
COMMENT ON TABLE onlyonce_private.panes IS
    'The windows that an output has written, with the generation: 0 by the stream, then one for each backfill.';
COMMENT ON COLUMN onlyonce_private.panes.held IS 'How many records in time came since its last pane; NULL: none, or its output has no trigger.';
COMMENT ON COLUMN onlyonce_private.panes.held_since IS 'When the batch began that brought the first of them.';
COMMENT ON COLUMN onlyonce_private.panes.pane IS 'The number of its last pane, as its rows have it; NULL: its output has no pane_column, or no pane of it has rows.';
COMMENT ON COLUMN onlyonce_private.panes.rows_of_all_panes IS 'How many rows all its panes have that are next to each other; NULL: it has one pane, or its output has no pane_column.';

-- The record catalog: packed ids by chunk, partitioned by pipeline, then by bucket of ingestion time. A bucket is ten minutes, so an instance has up to
-- 144 partitions a day: what is older than the horizon goes by dropping them, without a dead row, and a look-up never plans over all
-- of them, since it reads the chunks' keys from chunk_list first.
CREATE TABLE onlyonce_private.catalog_chunks (
    instance   text NOT NULL,
    bucket     bigint NOT NULL,
    incarnation    text NOT NULL,
    batch_id   bigint NOT NULL,
    partition  int NOT NULL,
    partitions int NOT NULL,
    ids        bytea NOT NULL,
    id_count   int NOT NULL,
    filter     bytea,
    -- A chunk is known by what it holds: one that was taken back and made again under the same key may hold as many other ids.
    ids_hash bigint,
    CONSTRAINT catalog_chunks_once PRIMARY KEY (instance, bucket, incarnation, batch_id, partition),
    CONSTRAINT catalog_ids_are_packed CHECK (octet_length(ids) = 16 * id_count),
    CONSTRAINT catalog_partition_in_range CHECK (partition >= 0 AND partition < partitions)
) PARTITION BY LIST (instance);
ALTER TABLE onlyonce_private.catalog_chunks ALTER COLUMN ids SET STORAGE EXTERNAL;
-- Filters are random bits: compressing them costs time and saves nothing.
ALTER TABLE onlyonce_private.catalog_chunks ALTER COLUMN filter SET STORAGE EXTERNAL;
COMMENT ON TABLE onlyonce_private.catalog_chunks IS
    'What one receive unit kept: its ids as packed, sorted 128-bit hashes (big-endian, 16 bytes each).';
COMMENT ON COLUMN onlyonce_private.catalog_chunks.filter IS
    'The Bloom filter of the ids, with its checksum; NULL or damaged, it is made again from them.';
COMMENT ON COLUMN onlyonce_private.catalog_chunks.ids_hash IS
    'A hash of the ids, by which a worker knows whether it has the chunk already.';

CREATE TABLE onlyonce_private.backfills (
    incarnation          text NOT NULL REFERENCES onlyonce_private.incarnations,
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
    -- Which version a backfill was to see: that of then, or the newest; null: its output has no lookups.
    lookups text CONSTRAINT backfills_know_their_lookups CHECK (lookups IN ('then', 'now')),
    rejected bigint,
    CONSTRAINT backfills_once PRIMARY KEY (incarnation, batch_id),
    CONSTRAINT backfills_state_known CHECK (state IN ('begun', 'committed', 'replaced')),
    CONSTRAINT backfills_asked_by_known CHECK (asked_by IN ('person', 'late rows')),
    CONSTRAINT backfills_interval_is_not_empty CHECK (window_from < window_to),
    CONSTRAINT backfills_committed_has_its_time CHECK ((state = 'committed') = (committed_at IS NOT NULL))
);
CREATE UNIQUE INDEX backfills_one_begun ON onlyonce_private.backfills (incarnation) WHERE state = 'begun';
CREATE INDEX backfills_by_output ON onlyonce_private.backfills (instance, output, window_from);
CREATE INDEX backfills_by_run ON onlyonce_private.backfills (run_id);
COMMENT ON TABLE onlyonce_private.backfills IS
    'One row for each recomputation of the windows of an output that start in [window_from, window_to).';
COMMENT ON COLUMN onlyonce_private.backfills.batch_id IS 'counts the recomputations of this interval; its Delta txnVersion';
COMMENT ON COLUMN onlyonce_private.backfills.state IS
    'begun; committed; replaced: its driver ended before it committed, and a later one did the interval again';

-- What each query has run under, in readable parts; and what was reprocessed from invalid and expired rows.
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

CREATE TABLE onlyonce_private.reprocessings (
    reprocessing_no     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
    reprocessed_at    timestamptz,
    CONSTRAINT reprocessings_kind_known CHECK (kind IN ('invalid', 'expired')),
    CONSTRAINT reprocessings_state_known CHECK (state IN ('begun', 'reprocessed')),
    CONSTRAINT reprocessings_reprocessed_has_its_time CHECK ((state = 'reprocessed') = (reprocessed_at IS NOT NULL))
);
CREATE UNIQUE INDEX reprocessings_one_begun ON onlyonce_private.reprocessings (instance) WHERE state = 'begun';
COMMENT ON TABLE onlyonce_private.reprocessings IS
    'One row for each reprocessing: the input file that rows of invalid or expired were put into again.';

CREATE TABLE onlyonce_private.reprocessed_sets (
    instance   text NOT NULL,
    kind       text NOT NULL,
    incarnation    text NOT NULL,
    batch_id   bigint NOT NULL,
    reason     text NOT NULL,
    file       text NOT NULL DEFAULT '',
    reprocessing_no int NOT NULL REFERENCES onlyonce_private.reprocessings,
    rows       bigint NOT NULL,
    CONSTRAINT reprocessed_sets_once PRIMARY KEY (instance, kind, incarnation, batch_id, reason, file)
);
COMMENT ON TABLE onlyonce_private.reprocessed_sets IS
    'The rows of `events` of one batch, kind and reason (or one file that could not be read): reprocessed at most once, as a whole.';

-- Sharded files: which attempt's file is the one that counts, recorded in its unit's transaction, and when it got its name.
CREATE TABLE onlyonce_private.files (
    file_no      bigint GENERATED ALWAYS AS IDENTITY,
    instance     text NOT NULL REFERENCES onlyonce_private.pipelines,
    output       text NOT NULL,
    incarnation      text NOT NULL REFERENCES onlyonce_private.incarnations,
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
        UNIQUE NULLS NOT DISTINCT (incarnation, batch_id, output, window_start, window_end, shard),
    CONSTRAINT files_temporary_once UNIQUE (place, temporary),
    CONSTRAINT files_shard_in_range CHECK (shard >= 0 AND shard < shards),
    CONSTRAINT files_window_is_whole CHECK ((window_start IS NULL) = (window_end IS NULL)),
    CONSTRAINT files_pane_has_its_generation CHECK ((pane IS NULL) = (generation IS NULL)),
    CONSTRAINT files_name_has_its_pane CHECK ((pane IS NULL) = (position('{pane}' IN name) > 0)),
    CONSTRAINT files_only_a_pane_is_final CHECK (finalized_at IS NULL OR pane IS NOT NULL)
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01);
-- One winner for each shard of each pane, and one file for each final name.
CREATE UNIQUE INDEX files_one_winner ON onlyonce_private.files (instance, output, window_start, window_end, pane, shard)
    NULLS NOT DISTINCT WHERE pane IS NOT NULL;
CREATE UNIQUE INDEX files_one_of_a_name ON onlyonce_private.files (place, name) WHERE pane IS NOT NULL;
CREATE INDEX files_to_finalize ON onlyonce_private.files (instance, output, window_start, pane)
    WHERE pane IS NOT NULL AND finalized_at IS NULL;
CREATE INDEX files_by_window ON onlyonce_private.files (instance, window_start);
COMMENT ON TABLE onlyonce_private.files IS
    'One row for each file of a sharded sink that a unit has committed: its temporary, and the name that it has or gets.';
COMMENT ON COLUMN onlyonce_private.files.pane IS
    'counts the panes of a window; NULL until the batch is committed, and for ever when a backfill was given up';
COMMENT ON COLUMN onlyonce_private.files.name IS 'the final name in its place; {pane} stands in it until the pane is known';
COMMENT ON COLUMN onlyonce_private.files.place IS
    'the folder or URL as it is declared; one that is neither absolute nor a URL is under the platform''s own folder of files';

-- The outbox: rows for targets outside (webhooks, BigQuery), committed with their unit, then sent by `onlyonce deliver`.
CREATE TABLE onlyonce_private.outbox (
    row_no              bigint GENERATED ALWAYS AS IDENTITY,
    instance            text NOT NULL,
    output              text NOT NULL,
    unit                text NOT NULL,
    seq                 bigint NOT NULL,
    checkpoint_id       uuid NOT NULL,
    key                 text,
    payload             text NOT NULL,
    state               text NOT NULL DEFAULT 'waiting',
    attempts            int NOT NULL DEFAULT 0,
    unanswered          int NOT NULL DEFAULT 0,
    uncertain           boolean NOT NULL DEFAULT false,
    answer              text,
    -- All rows of a unit are written at one moment, that of its COPY. To ask the clock for each row took a tenth of what PostgreSQL does for it.
    committed_at        timestamptz NOT NULL DEFAULT statement_timestamp(),
    due_at              timestamptz,
    begun_at            timestamptz,
    first_unanswered_at timestamptz,
    answered_at         timestamptz,
    -- The write stream of BigQuery that a unit's rows go to: noted before the first of them is sent, so that a later driver continues with it.
    stream text,
    CONSTRAINT outbox_order PRIMARY KEY (row_no),
    CONSTRAINT outbox_row_is_once UNIQUE (unit, seq),
    CONSTRAINT outbox_state_known CHECK (state IN ('held', 'waiting', 'sending', 'delivered', 'dead', 'invalid')),
    CONSTRAINT outbox_sent_was_begun CHECK (state IN ('held', 'waiting', 'dead', 'invalid') OR attempts > 0),
    CONSTRAINT outbox_held_was_never_begun CHECK (state <> 'held' OR (attempts = 0 AND begun_at IS NULL)),
    CONSTRAINT outbox_ended_was_answered CHECK (state IN ('held', 'waiting', 'sending') OR answered_at IS NOT NULL),
    CONSTRAINT outbox_unanswered_since CHECK ((unanswered > 0) = (first_unanswered_at IS NOT NULL)),
    CONSTRAINT outbox_uncertain_was_unanswered CHECK (NOT uncertain OR unanswered > 0)
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);
-- What is delivered is in none of these, so they stay as small as what is left to do.
CREATE INDEX outbox_open ON onlyonce_private.outbox (instance, output, row_no) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_open_by_key ON onlyonce_private.outbox (instance, output, key, row_no)
    WHERE state IN ('waiting', 'sending') AND key IS NOT NULL;
CREATE INDEX outbox_due ON onlyonce_private.outbox (instance, output, due_at) WHERE state = 'waiting' AND attempts > 0;
CREATE INDEX outbox_given_up ON onlyonce_private.outbox (instance, output, row_no) WHERE state IN ('dead', 'invalid');
CREATE INDEX outbox_uncertain ON onlyonce_private.outbox (unit) WHERE uncertain;
-- Rows of backfills that have not ended.
CREATE INDEX outbox_held ON onlyonce_private.outbox (instance, unit) WHERE state = 'held';
-- Rows come in the order of their time, so a few blocks of this tell where the old ones are.
CREATE INDEX outbox_age ON onlyonce_private.outbox USING brin (committed_at);
-- Statistics would keep values of records after their rows are gone.
ALTER TABLE onlyonce_private.outbox ALTER key SET STATISTICS 0, ALTER payload SET STATISTICS 0, ALTER answer SET STATISTICS 0;
COMMENT ON TABLE onlyonce_private.outbox IS
    'Rows to be sent outside, in the transaction of their unit; then the state of their delivery. An attempt is written here before it is made.';
COMMENT ON COLUMN onlyonce_private.outbox.stream IS 'BigQueryStream: the write stream that has the rows of the unit, or will have them';

-- Pub/Sub: which subscription is whose, and which messages are pulled without it being known that they are acknowledged.
CREATE TABLE onlyonce_private.subscriptions (
    subscription  text NOT NULL,
    pipeline      text NOT NULL REFERENCES onlyonce_private.pipelines,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT subscriptions_of_one_pipeline PRIMARY KEY (subscription)
);
COMMENT ON TABLE onlyonce_private.subscriptions IS
    'The Pub/Sub subscriptions that were pulled from, each by one pipeline alone: two would share its messages.';

CREATE TABLE onlyonce_private.unacknowledged (
    path         text NOT NULL,
    subscription text NOT NULL REFERENCES onlyonce_private.subscriptions,
    pipeline     text NOT NULL REFERENCES onlyonce_private.pipelines,
    bucket       bigint NOT NULL,
    message_ids  text[] NOT NULL,
    pulled_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    lapses_at    timestamptz NOT NULL,
    CONSTRAINT unacknowledged_once PRIMARY KEY (path),
    CONSTRAINT unacknowledged_has_messages CHECK (cardinality(message_ids) > 0),
    CONSTRAINT unacknowledged_lapses_later CHECK (lapses_at > pulled_at)
);
COMMENT ON TABLE onlyonce_private.unacknowledged IS
    'The messages of a pulled file until their acknowledgement is known; meanwhile the gc floor stays at their bucket.';
COMMENT ON COLUMN onlyonce_private.unacknowledged.bucket IS
    'the newest bucket of the pipeline when they were pulled: their own ingestion time can''t be below it';
COMMENT ON COLUMN onlyonce_private.unacknowledged.lapses_at IS
    'when the subscription''s retention has passed: it can''t deliver them again after that';

-- What a drop has still to remove or leaves to its readers; and the alerts that were sent.
CREATE TABLE onlyonce_private.leftovers (
    place      text PRIMARY KEY,
    instance   text NOT NULL,
    query      text,
    incarnations   text[] NOT NULL,
    state      text NOT NULL,
    dropped_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT leftovers_state_known CHECK (state IN ('going', 'left'))
);
COMMENT ON TABLE onlyonce_private.leftovers IS
    'What existed outside the log when a pipeline or output was dropped: still to be removed, or left. No run writes there.';
COMMENT ON COLUMN onlyonce_private.leftovers.state IS
    'going: the drop has still to remove it. left: the rows of a sink that a reader may need, until a drop with --tables';

CREATE TABLE onlyonce_private.alerts (
    kind       text NOT NULL,
    subject    text NOT NULL,
    what       text NOT NULL,
    raised_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    told_at    timestamptz,
    CONSTRAINT alerts_once PRIMARY KEY (kind, subject)
);
COMMENT ON TABLE onlyonce_private.alerts IS
    'The causes of alerts that have not cleared. told_at: when the hook took the alert; NULL: it has failed, and is called again.';

-- What sources answered when they were last asked for unread input. No reference to pipelines: a pipeline that has never run is asked too.
CREATE TABLE onlyonce_private.source_answers (
    pipeline         text NOT NULL,
    source           text NOT NULL,
    asked_at         timestamptz NOT NULL,
    asked_every      interval NOT NULL,
    answered         boolean NOT NULL,
    records          bigint,
    bytes            bigint,
    oldest_unread_at timestamptz,
    detail           jsonb NOT NULL DEFAULT '{}',
    why_unknown      text,
    CONSTRAINT source_answers_once PRIMARY KEY (pipeline, source)
);
COMMENT ON TABLE onlyonce_private.source_answers IS 'The last answer of each source about its unread input, current for three intervals.';
COMMENT ON COLUMN onlyonce_private.source_answers.source IS 'one of several sources; empty: the pipeline has one';
COMMENT ON COLUMN onlyonce_private.source_answers.asked_every IS 'the interval at which sources were asked then';

-- The long-running mode: who drives a pipeline without end, whether it is alive, and whether it was asked to stop. A table
-- of its own: commits hold the rows of epochs and pipelines FOR SHARE, and a heartbeat must not wait for them.
CREATE TABLE onlyonce_private.long_runs (
    instance      text PRIMARY KEY REFERENCES onlyonce_private.pipelines,
    attempt       bigint NOT NULL DEFAULT 0,
    run_id        text NOT NULL DEFAULT '',
    driver        text NOT NULL DEFAULT '',
    every         interval NOT NULL DEFAULT interval '0',
    lost_after    interval NOT NULL DEFAULT interval '0',
    rounds        bigint NOT NULL DEFAULT 0,
    round_at       timestamptz,
    started_at    timestamptz,
    heartbeat_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    stop_asked_at timestamptz,
    ended_at      timestamptz DEFAULT clock_timestamp(),
    exit_code     int DEFAULT 0,
    why           text,
    supervisor    text,
    -- Which outputs of a long run stand still, and by what: the others stay up.
    down jsonb NOT NULL DEFAULT '{}',
    -- A driver that runs long holds a lock by a session of its own, so that its end is known at once.
    locked boolean NOT NULL DEFAULT false,
    CONSTRAINT long_runs_ended_has_its_code CHECK ((ended_at IS NULL) = (exit_code IS NULL)),
    CONSTRAINT long_runs_driver_has_started CHECK (attempt = 0 OR started_at IS NOT NULL)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE onlyonce_private.long_runs IS
    'The last long run of each pipeline: its driver, its heartbeat and how it ended. Attempt 0: there was none yet.';
COMMENT ON COLUMN onlyonce_private.long_runs.locked IS 'Whether its driver holds the lock of the pipeline''s long run for as long as it lives';

-- What the doctor's last look has found, for the page and for SQL readers: it looks at disks too, which no view can.
CREATE TABLE onlyonce_private.looks (
    last      boolean PRIMARY KEY DEFAULT true,
    looked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    found     jsonb NOT NULL,
    CONSTRAINT looks_keep_the_last CHECK (last),
    CONSTRAINT looks_found_a_list CHECK (jsonb_typeof(found) = 'array')
);
COMMENT ON TABLE onlyonce_private.looks IS 'The last look of the doctor: one row, and none before the first.';

-- Where units of an incarnation may be outside the platform's own database.
CREATE TABLE onlyonce_private.authorities (
    incarnation     text NOT NULL REFERENCES onlyonce_private.incarnations,
    authority   text NOT NULL,
    database_id uuid,
    CONSTRAINT authorities_once PRIMARY KEY (incarnation, authority),
    CONSTRAINT authorities_are_other_databases CHECK (authority NOT IN ('', 'platform'))
);
COMMENT ON TABLE onlyonce_private.authorities IS
    'The connections of the databases in which an incarnation may have units, noted before its first epoch is written there; and which database each was.';

-- Whose table is whose: a table or folder has the rows of one output of one instance.
CREATE TABLE onlyonce_private.targets (
    identity   text NOT NULL,
    place      text NOT NULL,
    instance   text NOT NULL,
    output     text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    made_at    timestamptz,
    table_id   text,
    CONSTRAINT targets_of_one_output PRIMARY KEY (identity)
);
COMMENT ON TABLE onlyonce_private.targets IS
    'The tables and folders that outputs write to, each by one output alone: a backfill of another one would remove its rows.';
COMMENT ON COLUMN onlyonce_private.targets.identity IS
    'the same for all spellings of a target: folder:<path, from the home if it is below>, or postgres:<cluster>/<database>:<table>';
COMMENT ON COLUMN onlyonce_private.targets.place IS 'as it is declared (jobs/model/dropping.py)';
COMMENT ON COLUMN onlyonce_private.targets.made_at IS
    'when a run first had made the table, or found it there: from then on one that is missing was deleted';
COMMENT ON COLUMN onlyonce_private.targets.table_id IS
    'the id that a Delta or Iceberg table had then: from then on a table of another id was dropped and made again. Null for tables without an id';

-- Which run of which DAG has driven a pipeline, and how its last driver ended: so that a run is known whatever its DAG is called.
CREATE TABLE onlyonce_private.driver_runs (
    dag_id text NOT NULL,
    run_id text NOT NULL,
    pipeline text NOT NULL,
    attempt int NOT NULL DEFAULT 1,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz,
    exit_code int,
    why text,
    CONSTRAINT driver_runs_pkey PRIMARY KEY (dag_id, run_id, pipeline),
    CONSTRAINT driver_runs_ended CHECK ((ended_at IS NULL) = (exit_code IS NULL))
);
CREATE INDEX driver_runs_begun_at ON onlyonce_private.driver_runs (begun_at);
COMMENT ON TABLE onlyonce_private.driver_runs IS 'One row for each run of an Airflow DAG that has driven a pipeline: how many drivers it had, and how the last one ended.';

-- How often receive has failed at a batch, of the same cause; and the records that were found to be it, which the batch refuses.
CREATE TABLE onlyonce_private.batch_failures (
    incarnation  text   NOT NULL,
    batch_id bigint NOT NULL,
    cause    text   NOT NULL,
    times    int    NOT NULL CONSTRAINT batch_failures_times_some CHECK (times > 0),
    refused  jsonb  NOT NULL DEFAULT '[]',
    CONSTRAINT batch_failures_once PRIMARY KEY (incarnation, batch_id),
    CONSTRAINT batch_failures_of_a_batch FOREIGN KEY (incarnation, batch_id)
        REFERENCES onlyonce_private.batches (incarnation, batch_id) ON DELETE CASCADE
);
COMMENT ON TABLE onlyonce_private.batch_failures IS
    'Receive batches that failed, how often in a row of one cause, and the records that were found to be it and are refused since.';

CREATE TABLE onlyonce_private.removals (
    instance       text        NOT NULL,
    removal_no     bigint      NOT NULL CONSTRAINT removals_count_from_1 CHECK (removal_no > 0),
    -- Records that a person has asked to be forgotten (`onlyonce forget`): a removal as by age, chosen by values of columns. The values are never stored.
    keep_events    interval   ,
    before         timestamptz,
    upto           bigint      NOT NULL,
    state          text        NOT NULL DEFAULT 'begun' CONSTRAINT removals_state_known CHECK (state IN ('begun', 'done')),
    files          bigint,
    events_version bigint,
    begun_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at        timestamptz,
    kind text NOT NULL DEFAULT 'retention' CONSTRAINT removals_kind_known CHECK (kind IN ('retention', 'erasure')),
    CONSTRAINT removals_once PRIMARY KEY (instance, removal_no),
    CONSTRAINT removals_of_an_instance FOREIGN KEY (instance) REFERENCES onlyonce_private.pipelines (instance),
    CONSTRAINT removals_done_is_whole CHECK (state = 'begun' OR (files IS NOT NULL AND events_version IS NOT NULL AND done_at IS NOT NULL)),
    CONSTRAINT removals_by_age_say_it CHECK (kind <> 'retention' OR (keep_events IS NOT NULL AND before IS NOT NULL))
);
CREATE UNIQUE INDEX removals_one_at_a_time ON onlyonce_private.removals (instance) WHERE state = 'begun';
COMMENT ON TABLE onlyonce_private.removals IS
    'Each removal of old records from `events`: those from before an event time, of batches up to a version. Its number is that of its Delta transaction.';

CREATE TABLE onlyonce_private.removed_rows (
    instance   text   NOT NULL,
    removal_no bigint NOT NULL,
    incarnation    text   NOT NULL,
    batch_id   bigint NOT NULL,
    fate       text   NOT NULL CONSTRAINT removed_rows_fate_known CHECK (fate IN ('kept', 'invalid', 'expired')),
    rows       bigint NOT NULL CONSTRAINT removed_rows_some CHECK (rows > 0),
    CONSTRAINT removed_rows_once PRIMARY KEY (incarnation, batch_id, fate, removal_no),
    CONSTRAINT removed_rows_of_a_removal FOREIGN KEY (instance, removal_no)
        REFERENCES onlyonce_private.removals (instance, removal_no) ON DELETE CASCADE
);
CREATE INDEX removed_rows_by_removal ON onlyonce_private.removed_rows (instance, removal_no);
COMMENT ON TABLE onlyonce_private.removed_rows IS 'How many rows of each batch and fate a removal has taken.';

CREATE TABLE onlyonce_private.erasures (
    instance     text    NOT NULL,
    removal_no   bigint  NOT NULL,
    columns      text[]  NOT NULL,
    salt         text    NOT NULL,
    fingerprint  text    NOT NULL,
    asked_by     text    NOT NULL,
    ids_too      boolean NOT NULL,
    todo         jsonb,
    ids          bytea,
    lines        bigint,
    windows      bigint,
    left_alone   text[],
    CONSTRAINT erasures_once PRIMARY KEY (instance, removal_no),
    CONSTRAINT erasures_of_a_removal FOREIGN KEY (instance, removal_no)
        REFERENCES onlyonce_private.removals (instance, removal_no) ON DELETE CASCADE
);
COMMENT ON TABLE onlyonce_private.erasures IS
    'The receipt of each erasure: which columns were asked for, never their values; and, while it is under way, the places that it has still to clear.';

-- What the batches of each incarnation came to, up to one: so no query adds up the log of a year to say how much was received. A collection folds in
-- batches that were committed long ago, after it has compared each with its units and windows.
CREATE TABLE onlyonce_private.sums (
    incarnation        text   NOT NULL CONSTRAINT sums_once PRIMARY KEY,
    upto           bigint NOT NULL,
    batches        bigint NOT NULL,
    read           bigint,
    kept           bigint,
    invalid        bigint,
    expired        bigint,
    duplicate      bigint,
    in_time        bigint,
    late           bigint,
    unknown_fields bigint,
    written_again  bigint,
    declarations   text[] NOT NULL,
    -- Up to which batch all windows that an incarnation of an output has met in time are final: a new incarnation does not begin before that (`onlyonce reset`,
    -- `onlyonce maintain`), and no query reads each window of years to know it. The hourly gc run moves it on.
    final_upto bigint NOT NULL DEFAULT -1,
    rejected bigint,
    CONSTRAINT sums_of_an_incarnation FOREIGN KEY (incarnation) REFERENCES onlyonce_private.incarnations ON DELETE CASCADE,
    CONSTRAINT sums_conserve_records CHECK (coalesce(read = kept + invalid + expired + duplicate, true))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE onlyonce_private.sums IS
    'The sums over the batches of an incarnation up to `upto`, each of them committed and found to be conserved. Later batches are added to them by who asks.';
COMMENT ON COLUMN onlyonce_private.sums.final_upto IS
    'All windows for which batches up to this one met rows in time are final. It never moves back: a window stays final, and a committed batch meets no other.';

-- The list of the catalog's chunks is a table of its own: PostgreSQL plans a question over all buckets of a day in 50 ms, and each batch asks it
-- once for each partition. Triggers keep it, so what changes a chunk in whatever way changes its entry in the same transaction. A bucket that
-- goes whole takes its entries along (`unlist`): a drop has no rows.
CREATE TABLE onlyonce_private.chunk_list (
    instance   text   NOT NULL,
    bucket     bigint NOT NULL,
    incarnation    text   NOT NULL,
    batch_id   bigint NOT NULL,
    partition  int    NOT NULL,
    partitions int    NOT NULL,
    id_count   int    NOT NULL,
    ids_hash   bigint,
    CONSTRAINT chunk_list_once PRIMARY KEY (instance, bucket, incarnation, batch_id, partition)
) WITH (autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1);
COMMENT ON TABLE onlyonce_private.chunk_list IS
    'Which chunks there are in catalog_chunks, without their ids and filters. Triggers keep it; a look-up reads it first.';

CREATE FUNCTION onlyonce_private.list_chunk() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND (OLD.instance, OLD.bucket, OLD.incarnation, OLD.batch_id, OLD.partition)
                                              <> (NEW.instance, NEW.bucket, NEW.incarnation, NEW.batch_id, NEW.partition)) THEN
        DELETE FROM onlyonce_private.chunk_list l
        WHERE (l.instance, l.bucket, l.incarnation, l.batch_id, l.partition) = (OLD.instance, OLD.bucket, OLD.incarnation, OLD.batch_id, OLD.partition);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO onlyonce_private.chunk_list (instance, bucket, incarnation, batch_id, partition, partitions, id_count, ids_hash)
        VALUES (NEW.instance, NEW.bucket, NEW.incarnation, NEW.batch_id, NEW.partition, NEW.partitions, NEW.id_count, NEW.ids_hash)
        ON CONFLICT ON CONSTRAINT chunk_list_once DO UPDATE
        SET partitions = excluded.partitions, id_count = excluded.id_count, ids_hash = excluded.ids_hash;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER chunks_come_and_go AFTER INSERT OR DELETE ON onlyonce_private.catalog_chunks
    FOR EACH ROW EXECUTE FUNCTION onlyonce_private.list_chunk();

-- A filter that is made again changes nothing that the list tells.
CREATE TRIGGER chunks_change AFTER UPDATE OF instance, bucket, incarnation, batch_id, partition, partitions, id_count, ids_hash
    ON onlyonce_private.catalog_chunks FOR EACH ROW EXECUTE FUNCTION onlyonce_private.list_chunk();

-- One Bloom filter over the chunks of several closed buckets, so that a look-up asks few filters however many buckets are live. It says which
-- chunks are in it by the hash of their ids, and answers for these and no others: it is a help, and the chunks have filters of their own.
CREATE TABLE onlyonce_private.range_filters (
    instance     text     NOT NULL CONSTRAINT range_filters_of_an_instance REFERENCES onlyonce_private.pipelines ON DELETE CASCADE,
    partitions   int      NOT NULL,
    partition    int      NOT NULL,
    first_bucket bigint   NOT NULL,
    last_bucket  bigint   NOT NULL,
    chunk_hashes bigint[] NOT NULL,
    id_count     int      NOT NULL,
    filter       bytea    NOT NULL,
    CONSTRAINT range_filters_once PRIMARY KEY (instance, partitions, partition, first_bucket, last_bucket),
    CONSTRAINT range_filters_are_over_several CHECK (first_bucket < last_bucket AND cardinality(chunk_hashes) > 1)
) WITH (autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
ALTER TABLE onlyonce_private.range_filters ALTER COLUMN filter SET STORAGE EXTERNAL;
COMMENT ON TABLE onlyonce_private.range_filters IS
    'A Bloom filter over the ids of several chunks of one partition, of closed buckets. chunk_hashes: the ids_hash of each chunk that is in it.';

CREATE TABLE onlyonce_private.window_sums (
    incarnation      text   NOT NULL,
    output       text   NOT NULL,
    window_start timestamptz,
    window_end   timestamptz,
    in_time      bigint NOT NULL,
    rejected bigint NOT NULL DEFAULT 0,
    CONSTRAINT window_sums_once UNIQUE NULLS NOT DISTINCT (incarnation, output, window_start, window_end),
    CONSTRAINT window_sums_of_an_incarnation FOREIGN KEY (incarnation) REFERENCES onlyonce_private.incarnations ON DELETE CASCADE
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.01,
        autovacuum_vacuum_insert_threshold = 20000, autovacuum_vacuum_insert_scale_factor = 0.02);
CREATE INDEX window_sums_by_window ON onlyonce_private.window_sums (output, window_start);
CREATE INDEX window_sums_by_length ON onlyonce_private.window_sums (output, (window_end - window_start));
COMMENT ON TABLE onlyonce_private.window_sums IS
    'What the batches of an incarnation that are cut from the log had met of each window, all of it in time or rejected: a batch that met a late record stays.';

CREATE TABLE onlyonce_private.rejected (
    -- A pair may be rejected in several rows, so none of its columns is a key. With this one the table can be replicated, and a row be named.
    rejected_no  bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT rejected_once PRIMARY KEY,
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
    incarnation      text   NOT NULL,
    batch_id     bigint NOT NULL,
    CONSTRAINT rejected_of_a_pipeline FOREIGN KEY (instance) REFERENCES onlyonce_private.pipelines ON DELETE CASCADE,
    CONSTRAINT rejected_by_an_incarnation FOREIGN KEY (incarnation) REFERENCES onlyonce_private.incarnations ON DELETE CASCADE
);
CREATE INDEX rejected_by_window ON onlyonce_private.rejected (instance, output, window_start);
CREATE INDEX rejected_by_batch ON onlyonce_private.rejected (incarnation, batch_id);
CREATE INDEX rejected_by_id ON onlyonce_private.rejected (instance, oo_high);
CREATE INDEX rejected_by_time ON onlyonce_private.rejected (instance, event_time);
ALTER TABLE onlyonce_private.rejected ALTER reason SET STATISTICS 0;
COMMENT ON TABLE onlyonce_private.rejected IS
    'Each (record, window) pair that an output rejected: by the batch that met it, or by the last backfill of its window. Its values are in `events`.';

-- The sessions of a driver have its name; those of its tasks have more behind it, the unit and the attempt.
CREATE FUNCTION onlyonce_private.at_work(incarnation_no bigint, epoch bigint) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    -- A pooler keeps a task's session open under its name: that one counts only while it has a transaction. Any role may give its session
    -- any name: a role that may not write the log is no driver.
    SELECT EXISTS (
        SELECT 1 FROM pg_stat_activity a, pg_class log
        WHERE a.datname = current_database() AND log.relname = 'batches' AND log.relkind = 'r'
          AND log.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'onlyonce_private')
          AND has_table_privilege(a.usesysid, log.oid, 'UPDATE')
          AND CASE WHEN $2 IS NULL THEN starts_with(a.application_name, 'onlyonce/' || $1 || '/')
                   ELSE starts_with(a.application_name || '/', 'onlyonce/' || $1 || '/' || $2 || '/') END
          AND (a.application_name ~ '^onlyonce/[0-9]+/[0-9]+$' OR a.xact_start IS NOT NULL))
$$;

COMMENT ON FUNCTION onlyonce_private.at_work(bigint, bigint) IS
    'Whether a driver of an incarnation, of one epoch or (null) of any, has a session in this database, or one of its tasks a transaction';

-- What Spark tells of the state of an output, as of the last batch that was looked at: one row for each operator that keeps state.
CREATE TABLE onlyonce_private.states (
    incarnation      text    NOT NULL,
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
    CONSTRAINT states_once PRIMARY KEY (incarnation, operator),
    CONSTRAINT states_of_an_incarnation FOREIGN KEY (incarnation) REFERENCES onlyonce_private.incarnations ON DELETE CASCADE
);
COMMENT ON TABLE onlyonce_private.states IS 'What Spark told of the state of an incarnation of an output with its last batch. For people: nothing is decided by it.';
COMMENT ON COLUMN onlyonce_private.states.rows IS
    'Of a join: the rows that came less those that went, over all batches of the incarnation. NULL once a batch was not looked at, since a driver was killed behind it.';

-- Manifests are append-only, so the correction of what a driver with a wrong clock has registered is a fact of the log. Each correction of an instance
-- replaces the one before.
CREATE TABLE onlyonce_private.corrected_arrivals (
    instance     text        NOT NULL,
    manifest     text        NOT NULL,
    batch_no     bigint      NOT NULL,
    arrival      timestamptz NOT NULL,
    corrected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT corrected_arrivals_once PRIMARY KEY (instance, manifest),
    CONSTRAINT corrected_arrivals_of_an_instance FOREIGN KEY (instance) REFERENCES onlyonce_private.pipelines ON DELETE CASCADE
) WITH (autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE onlyonce_private.corrected_arrivals IS
    'Registered input whose arrival was ahead of the clock: the batches of a manifest up to this number count as arrived at this time at the latest.';

-- When the last committed input of each instance arrived. Within an incarnation arrivals do not move back, so its last batch has the latest.
CREATE VIEW onlyonce_private.last_arrivals AS
SELECT l.instance, max(CASE WHEN last.begun_at <= c.corrected_at THEN least(last.ingestion_time, c.arrival) ELSE last.ingestion_time END) AS seen_at
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (
    SELECT b.ingestion_time, b.begun_at FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' ORDER BY b.batch_id DESC LIMIT 1) last
LEFT JOIN LATERAL (
    SELECT max(a.corrected_at) AS corrected_at, max(a.arrival) AS arrival FROM onlyonce_private.corrected_arrivals a
    WHERE a.instance = l.instance) c ON true
WHERE l.query = 'receive'
GROUP BY l.instance;
COMMENT ON VIEW onlyonce_private.last_arrivals IS 'When the last committed input of each instance arrived, as corrected.';
