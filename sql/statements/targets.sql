-- one_at_a_time --
-- Claims are judged one after the other: a folder inside another one has no row of its own that could be waited for.
LOCK TABLE onlyonce_private.targets IN SHARE ROW EXCLUSIVE MODE

-- of_others --
-- What other outputs have that is the same as a target, has it inside, or is inside it.
SELECT identity, place, instance, output FROM onlyonce_private.targets
WHERE (instance, output) <> (:instance, :output)
  AND (identity = :identity OR starts_with(identity, :identity || '/') OR starts_with(:identity, identity || '/'))
ORDER BY identity

-- release --
-- An output has the target that it is declared with, and no other.
DELETE FROM onlyonce_private.targets WHERE instance = :instance AND output = :output AND identity <> :identity

-- claim --
-- The target is the output's. A claim of its own is as it was.
INSERT INTO onlyonce_private.targets (identity, place, instance, output) VALUES (:identity, :place, :instance, :output)
ON CONFLICT (identity) DO UPDATE SET place = excluded.place
RETURNING made_at, table_id

-- made --
-- The table is there, under this id if it has one.
UPDATE onlyonce_private.targets SET made_at = clock_timestamp(), table_id = :table_id
WHERE instance = :instance AND output = :output AND made_at IS NULL

-- database --
-- Which database this is, by whatever address it was reached.
SELECT (SELECT system_identifier FROM pg_control_system()) || '/' || oid AS identity
FROM pg_database WHERE datname = current_database()

-- taken --
-- The places that other instances have.
SELECT place FROM onlyonce_private.targets WHERE instance <> ALL (:instances)

-- forget --
-- Dropped outputs have nothing any more; what keeps their rows stays theirs.
DELETE FROM onlyonce_private.targets
WHERE instance = ANY (:instances) AND (CAST(:outputs AS text[]) IS NULL OR output = ANY (:outputs)) AND place <> ALL (:kept)

-- settle --
-- A table that was removed is nobody's.
DELETE FROM onlyonce_private.targets WHERE place = :place AND instance = :instance
