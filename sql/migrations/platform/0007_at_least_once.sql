-- At-least-once mode: what was written twice, and which batches have no ids in the catalog.
ALTER TABLE onlyonce_private.batches ADD COLUMN written_again bigint, ADD COLUMN ids_added_at timestamptz,
    ADD CONSTRAINT batches_only_at_least_once_writes_again CHECK (mode = 'at_least_once' OR written_again IS NULL);
COMMENT ON COLUMN onlyonce_private.batches.written_again IS
    'at_least_once, an output: rows that a replay or a task that was tried again wrote to PostgreSQL once more';
COMMENT ON COLUMN onlyonce_private.batches.ids_added_at IS
    'at_least_once, receive: when its ids were put into the catalog for exactly-once batches after it; NULL: not there';
CREATE INDEX batches_without_ids ON onlyonce_private.batches (bucket)
    WHERE mode = 'at_least_once' AND ids_added_at IS NULL;
