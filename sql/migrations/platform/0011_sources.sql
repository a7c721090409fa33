-- Ids by position: a receive batch that is exactly once without units and without a catalog.
ALTER TABLE onlyonce_private.batches DROP CONSTRAINT batches_mode_known,
    ADD CONSTRAINT batches_mode_known CHECK (mode IN ('exactly_once', 'at_least_once', 'by_position'));
