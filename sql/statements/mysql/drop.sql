-- forget_units --
-- The units of some incarnations.
DELETE FROM onlyonce_units WHERE incarnation IN :incarnations

-- owned_by_others --
-- The incarnations of these that are another platform's.
SELECT incarnation FROM onlyonce_owners WHERE incarnation IN :incarnations AND platform <> :platform

-- forget_owners --
-- The owner of each of these incarnations.
DELETE FROM onlyonce_owners WHERE incarnation IN :incarnations

-- forget_epochs --
-- Their epochs: a driver of them can commit nothing any more.
DELETE FROM onlyonce_epochs WHERE incarnation IN :incarnations
