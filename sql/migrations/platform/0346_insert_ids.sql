-- BigQuery's insert id of a row is made of its unit, number and lineage's id when it is asked for. To make a random one for each row took a quarter of
-- what PostgreSQL does for it. Rows that have one keep it.
ALTER TABLE onlyonce_private.outbox ALTER COLUMN insert_id DROP NOT NULL, ALTER COLUMN insert_id DROP DEFAULT;
COMMENT ON COLUMN onlyonce_private.outbox.insert_id IS 'Of rows from before: the insert id that they may have been sent with';
