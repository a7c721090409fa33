-- is_there --
-- Whether this database has one of our tables.
SELECT to_regclass('onlyonce_private.' || CAST(:table AS text)) IS NOT NULL AS there

-- identity --
-- The id of this database.
SELECT id FROM onlyonce_private.this_database

-- own --
-- The platform that owns an incarnation in this database: the first one to claim it.
INSERT INTO onlyonce_private.owners (incarnation, platform) VALUES (:incarnation, CAST(:platform AS uuid))
ON CONFLICT ON CONSTRAINT owners_one_for_each_incarnation DO NOTHING

-- owner --
-- The platform that an incarnation belongs to in this database.
SELECT platform FROM onlyonce_private.owners WHERE incarnation = :incarnation

-- remember --
-- Note a database in which an incarnation may have units from now on. The database's id is kept from the first time.
INSERT INTO onlyonce_private.authorities AS known (incarnation, authority, database_id)
VALUES (:incarnation, :authority, :database_id)
ON CONFLICT ON CONSTRAINT authorities_once DO UPDATE SET database_id = coalesce(known.database_id, excluded.database_id)
RETURNING database_id

-- remembered --
-- The databases, other than the platform's own, in which some incarnations may have units.
SELECT incarnation, authority, database_id FROM onlyonce_private.authorities
WHERE incarnation = ANY (:incarnations) ORDER BY authority, incarnation

-- settled --
-- The databases with units of batches whose units in the platform's log were removed, each with the last such batch. An
-- incarnation's batches are committed in order.
SELECT a.incarnation, a.authority, a.database_id, last.batch_id AS upto
FROM onlyonce_private.authorities a
CROSS JOIN LATERAL (
    SELECT b.batch_id FROM onlyonce_private.batches b
    WHERE b.incarnation = a.incarnation AND b.units_removed IS NOT NULL ORDER BY b.batch_id DESC LIMIT 1) last
ORDER BY a.authority, a.incarnation

-- newest --
-- The highest batch of an incarnation with a unit in this database.
SELECT max(batch_id) AS batch_id FROM onlyonce_private.units WHERE incarnation = :incarnation

-- remove_units --
-- The units of an incarnation's batches up to one, some at a time.
DELETE FROM onlyonce_private.units WHERE unique_id = ANY (ARRAY(
    SELECT unique_id FROM onlyonce_private.units WHERE incarnation = :incarnation AND batch_id <= :upto LIMIT :at_once))
