-- forget_units --
-- The units of some lineages.
DELETE FROM onlyonce_units WHERE lineage IN :lineages

-- owned_by_others --
-- The lineages of these that are another platform's.
SELECT lineage FROM onlyonce_owners WHERE lineage IN :lineages AND platform <> :platform

-- forget_owners --
-- The owner of each of these lineages.
DELETE FROM onlyonce_owners WHERE lineage IN :lineages

-- forget_epochs --
-- Their epochs: a driver of them can commit nothing any more.
DELETE FROM onlyonce_epochs WHERE lineage IN :lineages
