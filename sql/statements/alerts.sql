-- raise --
-- A cause that is seen for the first time since it has cleared.
INSERT INTO onlyonce_private.alerts (kind, subject, what) VALUES (:kind, :subject, :what) ON CONFLICT DO NOTHING

-- clear --
-- Causes that are no longer seen. They are reported again if they come back.
DELETE FROM onlyonce_private.alerts a WHERE NOT EXISTS (
    SELECT 1 FROM unnest(CAST(:kinds AS text[]), CAST(:subjects AS text[])) AS s (kind, subject)
    WHERE (s.kind, s.subject) = (a.kind, a.subject))
RETURNING kind, subject, what

-- raised --
-- All that are raised, the oldest first.
SELECT kind, subject, what, raised_at, told_at FROM onlyonce_private.alerts ORDER BY raised_at, kind, subject

-- untold --
-- The next cause that was not reported, locked while it is reported. Another reporter takes the next one.
SELECT kind, subject, what FROM onlyonce_private.alerts
WHERE told_at IS NULL AND (kind, subject) > (:kind, :subject)
ORDER BY kind, subject LIMIT 1 FOR UPDATE SKIP LOCKED

-- told --
-- The hook has accepted a cause.
UPDATE onlyonce_private.alerts SET told_at = clock_timestamp() WHERE kind = :kind AND subject = :subject
