-- The reader's grants: the role may read each view, and call two functions.

-- For `onlyonce trace` as the reader: it uses an index, which a view of all windows can't.
CREATE OR REPLACE FUNCTION onlyonce.longest_window(of_instance text, of_output text) RETURNS interval
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT greatest(
        (SELECT n.window_end - n.window_start FROM onlyonce_private.panes n
         WHERE n.instance = of_instance AND n.output = of_output ORDER BY n.window_end - n.window_start DESC LIMIT 1),
        (SELECT c.window_end - c.window_start FROM onlyonce_private.window_counts c
         WHERE c.output = of_output AND c.window_end - c.window_start IS NOT NULL ORDER BY c.window_end - c.window_start DESC LIMIT 1),
        (SELECT c.window_end - c.window_start FROM onlyonce_private.window_sums c
         WHERE c.output = of_output AND c.window_end - c.window_start IS NOT NULL ORDER BY c.window_end - c.window_start DESC LIMIT 1))
$$;
COMMENT ON FUNCTION onlyonce.longest_window(text, text) IS 'The length of the longest window of an output. Another pipeline''s output of that name may count too';

-- Airflow's triggerer has the reader's password only. It knows the name of the supervisor, which no view shows and whose random part
-- can't be guessed: the name is the permission.
CREATE OR REPLACE FUNCTION onlyonce.ask_stop(of_supervisor text) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE onlyonce_private.long_runs SET stop_asked_at = coalesce(stop_asked_at, clock_timestamp())
    WHERE supervisor = of_supervisor AND ended_at IS NULL RETURNING attempt
$$;
COMMENT ON FUNCTION onlyonce.ask_stop(text) IS 'Ask the driver that a supervisor watches to stop between two batches. NULL: no such driver is running';
REVOKE EXECUTE ON FUNCTION onlyonce.longest_window(text, text), onlyonce.ask_stop(text) FROM PUBLIC;

DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'onlyonce_reader') THEN
        GRANT USAGE ON SCHEMA onlyonce TO onlyonce_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA onlyonce TO onlyonce_reader;
        GRANT EXECUTE ON FUNCTION onlyonce.longest_window(text, text), onlyonce.ask_stop(text) TO onlyonce_reader;
    END IF;
END $$;
