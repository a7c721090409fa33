-- What the Bloom filters spare and what they ask for in vain, counted by the units that ask: so the rate of false positives is a
-- measured one. A look-up is one (id, chunk) pair.
ALTER TABLE onlyonce_private.units ADD COLUMN lookups_spared bigint, ADD COLUMN false_positives bigint,
    ADD CONSTRAINT units_count_look_ups CHECK (lookups_spared >= 0 AND false_positives >= 0);
COMMENT ON COLUMN onlyonce_private.units.lookups_spared IS
    'receive: look-ups of an id in a chunk that its filter spared; NULL when no chunk was asked';
COMMENT ON COLUMN onlyonce_private.units.false_positives IS
    'receive: look-ups that a filter asked for and that found nothing; NULL when no chunk was asked';

ALTER TABLE onlyonce_private.batches ADD COLUMN lookups_spared bigint, ADD COLUMN false_positives bigint;
COMMENT ON COLUMN onlyonce_private.batches.lookups_spared IS 'the sum over its units, kept when these are removed';
COMMENT ON COLUMN onlyonce_private.batches.false_positives IS 'the sum over its units, kept when these are removed';
