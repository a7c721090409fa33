-- At-least-once mode: rows that no claim guards, noted in the transaction that writes them.
ALTER TABLE onlyonce_private.units ADD COLUMN writes int NOT NULL DEFAULT 1,
    DROP CONSTRAINT units_kind_known,
    ADD CONSTRAINT units_kind_known CHECK (kind IN ('data', 'witness', 'plain')),
    ADD CONSTRAINT units_only_plain_is_written_again CHECK (writes = 1 OR kind = 'plain');
COMMENT ON COLUMN onlyonce_private.units.writes IS
    'plain: how often rows were written under this id; rows is the sum over all of these times';
