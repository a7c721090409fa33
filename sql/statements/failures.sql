-- of_batch --
-- The failures of earlier attempts at a batch.
SELECT cause, times, refused FROM onlyonce_private.batch_failures WHERE incarnation = :incarnation AND batch_id = :batch_id

-- add --
-- An attempt has failed: again for the same cause, or for another cause for the first time.
INSERT INTO onlyonce_private.batch_failures AS known (incarnation, batch_id, cause, times)
VALUES (:incarnation, :batch_id, :cause, 1)
ON CONFLICT ON CONSTRAINT batch_failures_once DO UPDATE
SET times = CASE WHEN known.cause = excluded.cause THEN known.times + 1 ELSE 1 END, cause = excluded.cause
RETURNING cause, times, refused

-- refuse --
-- The records that the batch refuses from now on.
UPDATE onlyonce_private.batch_failures SET refused = CAST(:refused AS jsonb)
WHERE incarnation = :incarnation AND batch_id = :batch_id
