-- The outbox: rows for targets outside (webhooks, BigQuery), committed with their unit, then sent by `onlyonce deliver`.
CREATE TABLE onlyonce_private.outbox (
    row_no              bigint GENERATED ALWAYS AS IDENTITY,
    instance            text NOT NULL,
    output              text NOT NULL,
    unit                text NOT NULL,
    seq                 bigint NOT NULL,
    life                uuid NOT NULL,
    key                 text,
    payload             text NOT NULL,
    insert_id           uuid NOT NULL DEFAULT gen_random_uuid(),
    state               text NOT NULL DEFAULT 'waiting',
    attempts            int NOT NULL DEFAULT 0,
    unanswered          int NOT NULL DEFAULT 0,
    uncertain           boolean NOT NULL DEFAULT false,
    answer              text,
    committed_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at              timestamptz,
    begun_at            timestamptz,
    first_unanswered_at timestamptz,
    answered_at         timestamptz,
    CONSTRAINT outbox_order PRIMARY KEY (row_no),
    CONSTRAINT outbox_row_is_once UNIQUE (unit, seq),
    CONSTRAINT outbox_state_known CHECK (state IN ('held', 'waiting', 'sending', 'delivered', 'dead', 'invalid')),
    CONSTRAINT outbox_sent_was_begun CHECK (state IN ('held', 'waiting', 'dead', 'invalid') OR attempts > 0),
    CONSTRAINT outbox_held_was_never_begun CHECK (state <> 'held' OR (attempts = 0 AND begun_at IS NULL)),
    CONSTRAINT outbox_ended_was_answered CHECK (state IN ('held', 'waiting', 'sending') OR answered_at IS NOT NULL),
    CONSTRAINT outbox_unanswered_since CHECK ((unanswered > 0) = (first_unanswered_at IS NOT NULL)),
    CONSTRAINT outbox_uncertain_was_unanswered CHECK (NOT uncertain OR unanswered > 0)
);
COMMENT ON TABLE onlyonce_private.outbox IS
    'Rows to be sent outside, in the transaction of their unit; then the state of their delivery. An attempt is written here before it is made.';
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
