-- In every database where data commits: who may commit (epochs) and what has committed (units).
-- The platform's own database has them too; a Postgres sink elsewhere brings them there.
CREATE SCHEMA IF NOT EXISTS onlyonce_private;

CREATE TABLE onlyonce_private.epochs (
    lineage text PRIMARY KEY,
    epoch   bigint NOT NULL,
    CONSTRAINT epoch_counts_from_one CHECK (epoch >= 1)
);
COMMENT ON TABLE onlyonce_private.epochs IS
    'The number of the driver that may commit for a lineage. Each commit reads it FOR SHARE; a starting driver bumps it.';

CREATE TABLE onlyonce_private.units (
    unique_id      text NOT NULL,
    lineage        text NOT NULL,
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
    remnant        bigint,
    duplicate      bigint,
    unknown_fields bigint,
    largest        timestamptz,
    committed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    authority      text NOT NULL DEFAULT 'platform',
    CONSTRAINT units_unique_id PRIMARY KEY (unique_id),
    CONSTRAINT units_identity_is_the_unique_id
        CHECK (unique_id = lineage || '/' || batch_id || '/' || sink || '/' || partition),
    CONSTRAINT units_kind_known CHECK (kind IN ('data', 'witness'))
);
CREATE INDEX units_by_batch ON onlyonce_private.units (lineage, batch_id);
COMMENT ON TABLE onlyonce_private.units IS
    'One row for each committed unit, inserted as the first statement of the transaction that holds its rows.';
