-- is_there --
-- Whether this database has one of our tables.
SELECT COUNT(*) AS there FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = CONCAT('onlyonce_', :table)

-- identity --
-- The id of this database.
SELECT id FROM onlyonce_this_database

-- own --
-- The platform that owns a lineage in this database: the first one to claim it.
INSERT IGNORE INTO onlyonce_owners (lineage, platform) VALUES (:lineage, :platform)

-- owner --
-- The platform that owns a lineage here.
SELECT platform FROM onlyonce_owners WHERE lineage = :lineage

-- newest --
-- The highest batch of a lineage with a unit in this database.
SELECT MAX(batch_id) AS batch_id FROM onlyonce_units WHERE lineage = :lineage

-- remove_units --
-- The units of a lineage's batches up to one, some at a time.
DELETE FROM onlyonce_units WHERE lineage = :lineage AND batch_id <= :upto LIMIT :at_once
