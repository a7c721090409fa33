-- claim --
-- The first statement of every unit's transaction: the primary key makes a twin wait here. IGNORE keeps an existing
-- row.
INSERT IGNORE INTO onlyonce_units (unique_id, incarnation, batch_id, sink, `partition`, epoch, attempt, kind)
VALUES (:unique_id, :incarnation, :batch_id, :sink, :partition, :epoch, :attempt, :kind)

-- check_epoch --
-- A shared lock conflicts with a bump of the epoch, so no bump can come between this check and the commit.
SELECT epoch FROM onlyonce_epochs WHERE incarnation = :incarnation LOCK IN SHARE MODE

-- fill --
-- The unit's content, set in the transaction of its claim. It has no fates: receive's units are in the log.
UPDATE onlyonce_units SET `rows` = :rows, content_hash = :content_hash, float_sums = :float_sums
WHERE unique_id = :unique_id

-- find --
-- The content of a unit.
SELECT `rows`, content_hash, float_sums FROM onlyonce_units WHERE unique_id = :unique_id

-- of_batch --
-- All units of a batch.
SELECT unique_id, sink, `partition`, epoch, attempt, kind, `rows`, content_hash, float_sums, committed_at, writes
FROM onlyonce_units WHERE incarnation = :incarnation AND batch_id = :batch_id

-- known_epoch --
-- The epoch as this database knows it, without a lock: an early answer, never the check before a commit.
SELECT epoch FROM onlyonce_epochs WHERE incarnation = :incarnation

-- set_epoch --
-- This database stores the platform's epoch; it never moves back.
INSERT INTO onlyonce_epochs (incarnation, epoch) VALUES (:incarnation, :epoch)
ON DUPLICATE KEY UPDATE epoch = GREATEST(epoch, VALUES(epoch))

-- note --
-- Rows that were written without a claim, in their transaction. If they are written again under the same id, the
-- numbers add up.
INSERT INTO onlyonce_units (unique_id, incarnation, batch_id, sink, `partition`, epoch, attempt, kind, `rows`)
VALUES (:unique_id, :incarnation, :batch_id, :sink, :partition, :epoch, :attempt, 'plain', :rows)
ON DUPLICATE KEY UPDATE `rows` = `rows` + VALUES(`rows`), writes = writes + 1, epoch = VALUES(epoch),
    attempt = VALUES(attempt), committed_at = CURRENT_TIMESTAMP(6)

-- noted --
-- How many rows were written without a claim to a sink, over all attempts at a batch.
SELECT COALESCE(SUM(`rows`), 0) AS `rows` FROM onlyonce_units
WHERE incarnation = :incarnation AND batch_id = :batch_id AND sink = :sink AND kind = 'plain'
