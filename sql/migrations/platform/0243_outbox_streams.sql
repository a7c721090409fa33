-- The write stream of BigQuery that a unit's rows go to: noted before the first of them is sent, so that whoever comes after goes on with it.
ALTER TABLE onlyonce_private.outbox ADD COLUMN stream text;
COMMENT ON COLUMN onlyonce_private.outbox.stream IS 'BigQueryStream: the write stream that has the rows of the unit, or will have them';
