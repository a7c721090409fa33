-- A pipeline of several sources: how far each had come in event time before a batch, and has come after it or a close:
-- {"shop": {"tide": <microseconds, or null>, "seen": <microseconds>, "idle": false}}. Null: the pipeline has one source.
ALTER TABLE onlyonce_private.batches ADD COLUMN source_tides jsonb, ADD COLUMN source_tides_after jsonb;
COMMENT ON COLUMN onlyonce_private.batches.source_tides IS 'How far each of several sources had come, fixed when the batch begins: a replay sees the same.';
ALTER TABLE onlyonce_private.closes ADD COLUMN source_tides_after jsonb;

-- A close by which a source that is idle, or was retired, holds the watermark back no more.
ALTER TABLE onlyonce_private.closes DROP CONSTRAINT closes_kind_known,
    ADD CONSTRAINT closes_kind_known CHECK (kind IN ('ended', 'silent', 'idle'));
