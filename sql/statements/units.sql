-- claim --
-- The first statement of every unit's transaction: the unique index makes a twin wait here.
INSERT INTO onlyonce_private.units (unique_id, incarnation, batch_id, sink, partition, epoch, attempt, kind)
VALUES (:unique_id, :incarnation, :batch_id, :sink, :partition, :epoch, :attempt, :kind)
ON CONFLICT ON CONSTRAINT units_unique_id DO NOTHING
RETURNING unique_id

-- claim_all --
-- Several units of one sink, in the order in which every driver claims them.
INSERT INTO onlyonce_private.units (unique_id, incarnation, batch_id, sink, partition, epoch, attempt, kind)
SELECT unique_id, :incarnation, :batch_id, :sink, partition, :epoch, 'driver', 'data'
FROM unnest(CAST(:unique_ids AS text[]), CAST(:partitions AS integer[])) AS wanted (unique_id, partition)
ORDER BY partition
ON CONFLICT ON CONSTRAINT units_unique_id DO NOTHING
RETURNING partition

-- fill_all --
-- Several units with the same content.
UPDATE onlyonce_private.units
SET rows = :rows, content_hash = :content_hash, float_sums = CAST(:float_sums AS jsonb)
WHERE unique_id = ANY (CAST(:unique_ids AS text[]))

-- check_epoch --
-- FOR SHARE conflicts with a bump of the epoch, so no bump can come between this check and the commit.
SELECT epoch FROM onlyonce_private.epochs WHERE incarnation = :incarnation FOR SHARE

-- fill --
-- What the unit holds, set in the transaction of its claim.
UPDATE onlyonce_private.units
SET rows = :rows, content_hash = :content_hash, float_sums = CAST(:float_sums AS jsonb),
    kept = :kept, invalid = :invalid, expired = :expired, duplicate = :duplicate,
    unknown_fields = :unknown_fields, largest = :largest
WHERE unique_id = :unique_id

-- find --
-- The content of a unit.
SELECT rows, content_hash, float_sums FROM onlyonce_private.units WHERE unique_id = :unique_id

-- of_batch --
-- All units of a batch.
SELECT unique_id, sink, partition, epoch, attempt, kind, rows, content_hash, float_sums,
       kept, invalid, expired, duplicate, unknown_fields, largest, committed_at, writes
FROM onlyonce_private.units WHERE incarnation = :incarnation AND batch_id = :batch_id

-- note_snapshot --
-- Which snapshot of an Iceberg table has the rows of a unit, for people.
UPDATE onlyonce_private.units SET snapshot_id = :snapshot_id WHERE unique_id = :unique_id

-- known_epoch --
-- The epoch as a sink's own database knows it, without a lock: an early answer, never the check before a commit.
SELECT epoch FROM onlyonce_private.epochs WHERE incarnation = :incarnation

-- set_epoch --
-- A sink's own database stores the platform's epoch; it never moves back.
INSERT INTO onlyonce_private.epochs AS known (incarnation, epoch) VALUES (:incarnation, :epoch)
ON CONFLICT (incarnation) DO UPDATE SET epoch = greatest(known.epoch, excluded.epoch)
RETURNING epoch

-- copy_to_log --
-- A unit that committed in a sink's own database, copied to the platform's log at the end of its batch.
INSERT INTO onlyonce_private.units
    (unique_id, incarnation, batch_id, sink, partition, epoch, attempt, kind, rows, content_hash, float_sums, committed_at,
     authority, writes)
VALUES (:unique_id, :incarnation, :batch_id, :sink, :partition, :epoch, :attempt, :kind, :rows, :content_hash,
        CAST(:float_sums AS jsonb), :committed_at, :authority, :writes)
ON CONFLICT ON CONSTRAINT units_unique_id DO NOTHING

-- note --
-- Rows that were written without a claim, in their transaction. If they are written again under the same id, the
-- numbers add up.
INSERT INTO onlyonce_private.units AS known
    (unique_id, incarnation, batch_id, sink, partition, epoch, attempt, kind, rows)
VALUES (:unique_id, :incarnation, :batch_id, :sink, :partition, :epoch, :attempt, 'plain', :rows)
ON CONFLICT ON CONSTRAINT units_unique_id DO UPDATE
SET rows = known.rows + excluded.rows, writes = known.writes + 1, epoch = excluded.epoch, attempt = excluded.attempt,
    committed_at = clock_timestamp()

-- noted --
-- How many rows were written without a claim to a sink, over all attempts at a batch.
SELECT coalesce(sum(rows), 0)::bigint AS rows FROM onlyonce_private.units
WHERE incarnation = :incarnation AND batch_id = :batch_id AND sink = :sink AND kind = 'plain'
