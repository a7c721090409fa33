-- of_view --
-- What is lost if a view is dropped: views of others that read it, and grants on it to roles other than the reader.
SELECT DISTINCT 'the view ' || c.oid::regclass AS dependent
FROM pg_depend d
JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
JOIN pg_class c ON c.oid = r.ev_class
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = to_regclass(:view) AND c.relnamespace NOT IN ('onlyonce'::regnamespace, 'onlyonce_private'::regnamespace)
UNION
SELECT 'the grant to ' || coalesce(g.rolname, 'PUBLIC')
FROM pg_class c
CROSS JOIN LATERAL aclexplode(c.relacl) a
LEFT JOIN pg_roles g ON g.oid = a.grantee
WHERE c.oid = to_regclass(:view) AND a.grantee <> c.relowner AND g.rolname IS DISTINCT FROM 'onlyonce_reader'
ORDER BY dependent
