-- protect --
-- Rights that PostgreSQL gives to every role by default, and that only the owner needs in our database. With large
-- objects a role that only reads could fill the disk. Never run on a team's own server.
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN
        SELECT oid FROM pg_proc
        WHERE pronamespace = 'pg_catalog'::regnamespace AND proname ~ '^(lo_|loread$|lowrite$)'
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO onlyonce_writer', function);
    END LOOP;
END
$$
