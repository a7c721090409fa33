-- Which version of each lookup a batch of an output sees: {"customers": {"version": 17, "table": "<the id of the Delta table>"}}.
ALTER TABLE onlyonce_private.batches ADD COLUMN lookups jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN onlyonce_private.batches.lookups IS 'The version of each lookup, fixed when the batch begins: a replay sees the same.';

-- The same for what was written of a window last; null: before there were lookups, or without one.
ALTER TABLE onlyonce_private.panes ADD COLUMN lookups jsonb;

-- Which version a backfill was to see: that of then, or the newest; null: its output has no lookups.
ALTER TABLE onlyonce_private.backfills ADD COLUMN lookups text
    CONSTRAINT backfills_know_their_lookups CHECK (lookups IN ('then', 'now'));
