-- lacking_grants --
-- What the role lacks to make a table in a schema, and the schema if there is none: CREATE SCHEMA IF NOT EXISTS asks for
-- the privilege of the database, and CREATE TABLE IF NOT EXISTS for that of the schema, whether they are there or not.
SELECT format('CREATE ON DATABASE %I', current_database()) AS missing, format('%I', current_user) AS role
WHERE NOT has_database_privilege(current_database(), 'CREATE')
UNION ALL
SELECT format('USAGE, CREATE ON SCHEMA %I', nspname), format('%I', current_user) FROM pg_namespace
WHERE nspname = :schema AND NOT (has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE'))

-- kind --
-- What a table is: r an ordinary table, p a partitioned one, v a view, m a materialized view, f a foreign table. No row if there is none.
SELECT relkind::text AS kind FROM pg_class WHERE oid = to_regclass(:table)

-- computed_columns --
-- The columns whose values only PostgreSQL may give: generated ones (s), and identities that are GENERATED ALWAYS (a).
SELECT attname::text AS name, CASE WHEN attgenerated <> '' THEN 's' ELSE 'a' END AS kind
FROM pg_attribute
WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped AND (attgenerated <> '' OR attidentity = 'a')

-- required_columns --
-- The columns that take no null and get no value from the table: no default, not generated. None if a trigger may fill
-- them before a row is checked.
SELECT attname::text AS name
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped AND (attnotnull OR typnotnull)
  AND NOT atthasdef AND attidentity = '' AND typdefault IS NULL
  AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = attrelid AND tgtype & 7 = 7 AND NOT tgisinternal AND tgenabled <> 'D')
ORDER BY attnum

-- unique_indexes --
-- The unique indexes over all rows of a table and plain columns. For each: whether it is checked immediately, and whether
-- two nulls may be two keys. Also whether different strings may be one key (a collation that is not deterministic: 'a'
-- and 'A').
SELECT index.relname::text AS name, indimmediate AS at_once, NOT indnullsnotdistinct AND NOT bool_and(attnotnull) AS nulls_differ,
       bool_or(NOT coalesce(collisdeterministic, true)) AS strings_merge, array_agg(attname::text) AS columns
FROM pg_index
JOIN pg_class AS index ON index.oid = indexrelid
CROSS JOIN LATERAL unnest(indkey, indcollation) WITH ORDINALITY AS key (number, rules, place)
JOIN pg_attribute ON attrelid = indrelid AND attnum = key.number
LEFT JOIN pg_collation ON pg_collation.oid = key.rules
WHERE indrelid = to_regclass(:table) AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL AND place <= indnkeyatts
GROUP BY index.relname, indimmediate, indnullsnotdistinct
ORDER BY index.relname
