-- store --
-- The last answer of a source. An answer to an earlier request, which came late, does not replace it.
INSERT INTO onlyonce_private.source_answers AS known
    (pipeline, source, asked_at, asked_every, answered, records, bytes, oldest_unread_at, detail, why_unknown)
VALUES (:pipeline, :source, :asked_at, :asked_every, :answered, :records, :bytes, :oldest_unread_at, CAST(:detail AS jsonb), :why_unknown)
ON CONFLICT (pipeline, source) DO UPDATE
    SET asked_at = excluded.asked_at, asked_every = excluded.asked_every, answered = excluded.answered, records = excluded.records,
        bytes = excluded.bytes, oldest_unread_at = excluded.oldest_unread_at, detail = excluded.detail, why_unknown = excluded.why_unknown
    WHERE known.asked_at <= excluded.asked_at

-- forget_old --
-- Answers of sources that are declared no more, or that no process asks any more.
DELETE FROM onlyonce_private.source_answers WHERE asked_at < clock_timestamp() - interval '1 day'
