-- Where units of a lineage may be beside the platform's own database.
CREATE TABLE onlyonce_private.authorities (
    lineage     text NOT NULL REFERENCES onlyonce_private.lineages,
    authority   text NOT NULL,
    database_id uuid,
    CONSTRAINT authorities_once PRIMARY KEY (lineage, authority),
    CONSTRAINT authorities_are_other_databases CHECK (authority NOT IN ('', 'platform'))
);
COMMENT ON TABLE onlyonce_private.authorities IS
    'The connections of the databases in which a lineage may have units, noted before its first epoch is told there; and which database each was.';

-- Lineages from before this table: by all that they were declared as, and by the units that were copied.
INSERT INTO onlyonce_private.authorities (lineage, authority)
SELECT l.lineage, split_part(o.value->>'target', ':', 2)
FROM onlyonce_private.lineages l
JOIN onlyonce_private.declarations d ON d.instance = l.instance AND d.query = split_part(l.query, '@', 1)
CROSS JOIN LATERAL jsonb_each(CASE WHEN jsonb_typeof(d.parts->'outputs') = 'object' THEN d.parts->'outputs' ELSE '{}' END) o
WHERE o.value->>'target' LIKE 'postgres:_%:%' AND split_part(o.value->>'target', ':', 2) <> ''
UNION
SELECT u.lineage, u.authority FROM onlyonce_private.units u JOIN onlyonce_private.lineages l USING (lineage)
WHERE u.authority <> 'platform';
