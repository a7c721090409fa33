-- one_at_a_time --
-- Claims are decided one after the other. A row lock can't decide: a folder and a folder inside it have different rows.
LOCK TABLE onlyonce_private.targets IN SHARE ROW EXCLUSIVE MODE

-- of_others --
-- Targets of other outputs that equal a target, contain it, or are inside it.
SELECT identity, place, instance, output FROM onlyonce_private.targets
WHERE (instance, output) <> (:instance, :output)
  AND (identity = :identity OR starts_with(identity, :identity || '/') OR starts_with(:identity, identity || '/'))
ORDER BY identity

-- release --
-- An output has the target that it is declared with, and no other.
DELETE FROM onlyonce_private.targets WHERE instance = :instance AND output = :output AND identity <> :identity

-- claim --
-- Reserves the target for the output. An existing claim of the same output is unchanged.
INSERT INTO onlyonce_private.targets (identity, place, instance, output) VALUES (:identity, :place, :instance, :output)
ON CONFLICT (identity) DO UPDATE SET place = excluded.place
RETURNING made_at, table_id

-- made --
-- The table exists, with this id if it has one.
UPDATE onlyonce_private.targets SET made_at = clock_timestamp(), table_id = :table_id
WHERE instance = :instance AND output = :output AND made_at IS NULL

-- has_kept --
-- Whether the last batch of an incarnation began under a declaration by which the platform keeps a table next to this
-- target: the keys of deleted rows, or what each window has added.
SELECT EXISTS (
    SELECT FROM onlyonce_private.incarnations i
    CROSS JOIN LATERAL (
        SELECT b.declaration_hash FROM onlyonce_private.batches b
        WHERE b.incarnation = i.incarnation ORDER BY b.batch_id DESC LIMIT 1) last
    JOIN onlyonce_private.declarations d ON (d.instance, d.query, d.hash) = (i.instance, i.query, last.declaration_hash)
    CROSS JOIN LATERAL (SELECT d.parts->'outputs'->CAST(:output AS text) AS parts) declared
    WHERE i.instance = :instance AND i.query = :query AND i.kind = 'stream' AND declared.parts->>'target' = :place
      AND (declared.parts ? 'delete_when' OR declared.parts->>'on_backfill' = 'correct')) AS kept

-- database --
-- The identity of this database, whichever address was used to reach it.
SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || oid AS identity
FROM pg_database WHERE datname = current_database()

-- claimed --
-- The place of each output.
SELECT place, instance, output FROM onlyonce_private.targets ORDER BY place

-- forget --
-- Dropped outputs have no targets; places that still have rows stay reserved.
DELETE FROM onlyonce_private.targets
WHERE instance = ANY (:instances) AND (CAST(:outputs AS text[]) IS NULL OR output = ANY (:outputs)) AND place <> ALL (:kept)

-- settle --
-- A table that was removed belongs to no output.
DELETE FROM onlyonce_private.targets WHERE place = :place AND instance = :instance
