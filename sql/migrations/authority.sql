-- In every database where data commits: who may commit (epochs) and what has committed (units).
-- The platform's own database has them too; a Postgres sink elsewhere brings them there.
CREATE SCHEMA IF NOT EXISTS onlyonce_private;

-- Rows that are written again and again: pages keep room for it, and are cleaned before the table has doubled. The defaults wait
-- for 50 dead rows and a fifth of the table, which of a table of a year is a month.
CREATE TABLE onlyonce_private.epochs (
    incarnation text PRIMARY KEY,
    epoch   bigint NOT NULL,
    CONSTRAINT epoch_counts_from_one CHECK (epoch >= 1)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE onlyonce_private.epochs IS
    'The number of the driver that may commit for an incarnation. Each commit reads it FOR SHARE; a starting driver bumps it.';

CREATE TABLE onlyonce_private.units (
    unique_id      text NOT NULL,
    incarnation        text NOT NULL,
    batch_id       bigint NOT NULL,
    sink           text NOT NULL,
    partition      int NOT NULL,
    epoch          bigint NOT NULL,
    attempt        text NOT NULL,
    kind           text NOT NULL,
    rows           bigint,
    content_hash   text,
    float_sums     jsonb,
    kept           bigint,
    invalid        bigint,
    expired        bigint,
    duplicate      bigint,
    unknown_fields bigint,
    largest        timestamptz,
    committed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    authority      text NOT NULL DEFAULT 'platform',
    -- At-least-once mode: rows that no claim guards, noted in the transaction that writes them.
    writes int NOT NULL DEFAULT 1,
    -- Duplicates caught near the edge of the dedup horizon, and how long the log keeps the units of what is long committed.
    near_horizon bigint,
    -- What the Bloom filters spare and what they ask for in vain, counted by the units that ask: so the rate of false positives is a
    -- measured one. A look-up is one (id, chunk) pair.
    lookups_spared bigint,
    false_positives bigint,
    -- Which snapshot of an Iceberg table has the rows of a unit.
    snapshot_id bigint,
    CONSTRAINT units_unique_id PRIMARY KEY (unique_id),
    CONSTRAINT units_identity_is_the_unique_id
        CHECK (unique_id = incarnation || '/' || batch_id || '/' || sink || '/' || partition),
    CONSTRAINT units_kind_known CHECK (kind IN ('data', 'reference', 'plain')),
    CONSTRAINT units_only_plain_is_written_again CHECK (writes = 1 OR kind = 'plain'),
    CONSTRAINT units_count_look_ups CHECK (lookups_spared >= 0 AND false_positives >= 0)
) WITH (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX units_by_batch ON onlyonce_private.units (incarnation, batch_id);
COMMENT ON TABLE onlyonce_private.units IS
    'One row for each committed unit, inserted as the first statement of the transaction that holds its rows.';
COMMENT ON COLUMN onlyonce_private.units.writes IS
    'plain: how often rows were written under this id; rows is the sum over all of these times';
COMMENT ON COLUMN onlyonce_private.units.near_horizon IS
    'receive: duplicates whose first delivery was in the oldest tenth of the dedup horizon; NULL when there were none';
COMMENT ON COLUMN onlyonce_private.units.lookups_spared IS
    'receive: look-ups of an id in a chunk that its filter spared; NULL when no chunk was asked';
COMMENT ON COLUMN onlyonce_private.units.false_positives IS
    'receive: look-ups that a filter asked for and that found nothing; NULL when no chunk was asked';
COMMENT ON COLUMN onlyonce_private.units.snapshot_id IS 'Iceberg: the snapshot that added the rows. NULL: none did, or it was not looked up.';

-- Who this database is: a variable that names another database from now on is noticed, however alike the two are.
CREATE TABLE onlyonce_private.this_database (
    one boolean NOT NULL DEFAULT true,
    id  uuid NOT NULL DEFAULT gen_random_uuid(),
    CONSTRAINT this_database_is_one PRIMARY KEY (one),
    CONSTRAINT this_database_one_is_true CHECK (one)
);
INSERT INTO onlyonce_private.this_database DEFAULT VALUES;
COMMENT ON TABLE onlyonce_private.this_database IS
    'The one id of this database, which goes with it into backups. A platform remembers it for each incarnation that writes here.';

-- Whose an incarnation is here: two platforms may have pipelines of the same name and one database for their sinks.
CREATE TABLE onlyonce_private.owners (
    incarnation  text NOT NULL,
    platform uuid NOT NULL,
    CONSTRAINT owners_one_for_each_incarnation PRIMARY KEY (incarnation)
);
COMMENT ON TABLE onlyonce_private.owners IS
    'The platform (the id of its database) that was first to write its epoch of an incarnation here. Another one may not write under that name.';

-- Any role may take any advisory lock. A row is locked only by a role that may write it, so every lock of ours is a row.
CREATE TABLE onlyonce_private.locks (
    name     text PRIMARY KEY,
    pid      int,
    began_at timestamptz,
    CONSTRAINT locks_session_is_whole CHECK ((pid IS NULL) = (began_at IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE onlyonce_private.locks IS
    'One row for each lock. A short lock is the lock of its row, for one transaction. A lock for hours is the session that the row names, as long as it lives.';

-- A transaction of hours would keep VACUUM from removing dead rows, so a long lock is noted and committed.
CREATE FUNCTION onlyonce_private.lives(process int, began timestamptz) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    -- PostgreSQL keeps the list of sessions for a transaction; a lock may have waited since it was read.
    PERFORM pg_stat_clear_snapshot();
    -- When the session of another role began is hidden: such a session counts if its role may write here.
    RETURN EXISTS (
        SELECT 1 FROM pg_stat_activity a
        WHERE a.pid = process AND (a.backend_start = began OR (a.backend_start IS NULL AND has_table_privilege(a.usesysid, 'onlyonce_private.locks', 'UPDATE'))));
END
$$;
COMMENT ON FUNCTION onlyonce_private.lives(int, timestamptz) IS 'Whether the session of a server process that began at this time is still there';
