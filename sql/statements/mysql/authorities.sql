-- is_there --
-- Whether this database has one of our tables.
SELECT COUNT(*) AS there FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = CONCAT('onlyonce_', :table)

-- identity --
-- The id of this database.
SELECT id FROM onlyonce_this_database

-- own --
-- The platform that owns an incarnation in this database: the first one to claim it.
INSERT IGNORE INTO onlyonce_owners (incarnation, platform) VALUES (:incarnation, :platform)

-- owner --
-- The platform that owns an incarnation here.
SELECT platform FROM onlyonce_owners WHERE incarnation = :incarnation

-- newest --
-- The highest batch of an incarnation with a unit in this database.
SELECT MAX(batch_id) AS batch_id FROM onlyonce_units WHERE incarnation = :incarnation

-- remove_units --
-- The units of an incarnation's batches up to one, some at a time.
DELETE FROM onlyonce_units WHERE incarnation = :incarnation AND batch_id <= :upto LIMIT :at_once
