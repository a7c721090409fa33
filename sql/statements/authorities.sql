-- is_there --
-- Whether this database has one of our tables.
SELECT to_regclass('onlyonce_private.' || CAST(:table AS text)) IS NOT NULL AS there

-- identity --
-- The id of this database.
SELECT id FROM onlyonce_private.this_database

-- own --
-- The platform that owns a lineage in this database: the first one to claim it.
INSERT INTO onlyonce_private.owners (lineage, platform) VALUES (:lineage, CAST(:platform AS uuid))
ON CONFLICT ON CONSTRAINT owners_one_for_each_lineage DO NOTHING

-- owner --
-- The platform that a lineage belongs to in this database.
SELECT platform FROM onlyonce_private.owners WHERE lineage = :lineage

-- remember --
-- Note a database in which a lineage may have units from now on. The database's id is kept from the first time.
INSERT INTO onlyonce_private.authorities AS known (lineage, authority, database_id)
VALUES (:lineage, :authority, :database_id)
ON CONFLICT ON CONSTRAINT authorities_once DO UPDATE SET database_id = coalesce(known.database_id, excluded.database_id)
RETURNING database_id

-- remembered --
-- The databases, other than the platform's own, in which some lineages may have units.
SELECT lineage, authority, database_id FROM onlyonce_private.authorities
WHERE lineage = ANY (:lineages) ORDER BY authority, lineage

-- settled --
-- The databases with units of batches whose units in the platform's log were removed, each with the last such batch. A
-- lineage's batches are committed in order.
SELECT a.lineage, a.authority, a.database_id, last.batch_id AS upto
FROM onlyonce_private.authorities a
CROSS JOIN LATERAL (
    SELECT b.batch_id FROM onlyonce_private.batches b
    WHERE b.lineage = a.lineage AND b.units_removed IS NOT NULL ORDER BY b.batch_id DESC LIMIT 1) last
ORDER BY a.authority, a.lineage

-- newest --
-- The highest batch of a lineage with a unit in this database.
SELECT max(batch_id) AS batch_id FROM onlyonce_private.units WHERE lineage = :lineage

-- remove_units --
-- The units of a lineage's batches up to one, some at a time.
DELETE FROM onlyonce_private.units WHERE unique_id = ANY (ARRAY(
    SELECT unique_id FROM onlyonce_private.units WHERE lineage = :lineage AND batch_id <= :upto LIMIT :at_once))
