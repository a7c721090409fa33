-- Pub/Sub: which subscription is whose, and which messages are landed without it being known that they are acknowledged.
CREATE TABLE onlyonce_private.subscriptions (
    subscription  text NOT NULL,
    pipeline      text NOT NULL REFERENCES onlyonce_private.pipelines,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT subscriptions_of_one_pipeline PRIMARY KEY (subscription)
);
COMMENT ON TABLE onlyonce_private.subscriptions IS
    'The Pub/Sub subscriptions that were landed from, each by one pipeline alone: two would share its messages.';

CREATE TABLE onlyonce_private.unacknowledged (
    path         text NOT NULL,
    subscription text NOT NULL REFERENCES onlyonce_private.subscriptions,
    pipeline     text NOT NULL REFERENCES onlyonce_private.pipelines,
    bucket       bigint NOT NULL,
    message_ids  text[] NOT NULL,
    landed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    lapses_at    timestamptz NOT NULL,
    CONSTRAINT unacknowledged_once PRIMARY KEY (path),
    CONSTRAINT unacknowledged_has_messages CHECK (cardinality(message_ids) > 0),
    CONSTRAINT unacknowledged_lapses_later CHECK (lapses_at > landed_at)
);
COMMENT ON TABLE onlyonce_private.unacknowledged IS
    'The messages of a landed file until their acknowledgement is known; meanwhile the collection floor stays at their bucket.';
COMMENT ON COLUMN onlyonce_private.unacknowledged.bucket IS
    'the newest bucket of the pipeline when they were landed: their own system time can''t be below it';
COMMENT ON COLUMN onlyonce_private.unacknowledged.lapses_at IS
    'when the subscription''s retention has passed: it can''t deliver them again after that';
