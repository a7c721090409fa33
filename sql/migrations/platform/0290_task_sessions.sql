-- The sessions of a driver have its name; those of its tasks have more behind it, the unit and the attempt.

CREATE FUNCTION onlyonce_private.at_work(lineage_no bigint, epoch bigint) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    -- A pooler keeps a task's session open under its name: that one counts only while it has a transaction.
    SELECT EXISTS (
        SELECT 1 FROM pg_stat_activity a
        WHERE a.datname = current_database()
          AND CASE WHEN $2 IS NULL THEN starts_with(a.application_name, 'onlyonce/' || $1 || '/')
                   ELSE starts_with(a.application_name || '/', 'onlyonce/' || $1 || '/' || $2 || '/') END
          AND (a.application_name ~ '^onlyonce/[0-9]+/[0-9]+$' OR a.xact_start IS NOT NULL))
$$;
COMMENT ON FUNCTION onlyonce_private.at_work(bigint, bigint) IS
    'Whether a driver of a lineage, of one epoch or (null) of any, has a session in this database, or one of its tasks a transaction';
