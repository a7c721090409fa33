-- Duplicates caught near the edge of the dedup horizon, and how long the log keeps the units of what is long committed.
ALTER TABLE onlyonce_private.units ADD COLUMN near_horizon bigint;
COMMENT ON COLUMN onlyonce_private.units.near_horizon IS
    'receive: duplicates whose first delivery was in the oldest tenth of the dedup horizon; NULL when there were none';

ALTER TABLE onlyonce_private.batches ADD COLUMN near_horizon bigint, ADD COLUMN units_removed int,
    ADD CONSTRAINT batches_only_committed_loses_units CHECK (units_removed IS NULL OR state = 'committed');
COMMENT ON COLUMN onlyonce_private.batches.units_removed IS
    'how many units of the batch the collector has removed, long after it was committed; NULL while all are there';
COMMENT ON COLUMN onlyonce_private.batches.near_horizon IS
    'the sum over its units, kept when these are removed';
CREATE INDEX batches_with_units ON onlyonce_private.batches (committed_at) WHERE units_removed IS NULL AND state = 'committed';
