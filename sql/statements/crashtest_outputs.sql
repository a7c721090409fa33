-- The results of outputs that are not tables, in the log of a scratch platform, which has one pipeline.

-- files --
-- The files that count, where their rows are and what they will be called.
SELECT output, temporary, name, rows FROM onlyonce_private.files WHERE pane IS NOT NULL

-- requests --
-- What waits to be sent. Nothing delivers there, so it is all that was ever written.
SELECT output, key, payload FROM onlyonce.outbox
