-- note --
-- A batch's figures of its output's state. For a join the rows in it are added up, as long as no batch is missing.
INSERT INTO onlyonce_private.states AS known
    (incarnation, operator, kind, batch_id, rows_in, rows_out, rows, timers_set, timers_ended, disk_bytes, memory_bytes)
SELECT :incarnation, operator, kind, :batch_id, rows_in, rows_out, CASE WHEN kind = 'symmetricHashJoin' AND CAST(:batch_id AS bigint) = 0 THEN rows_in - rows_out END,
       timers_set, timers_ended, disk_bytes, memory_bytes
FROM unnest(
    CAST(:operator AS integer[]), CAST(:kind AS text[]), CAST(:rows_in AS bigint[]), CAST(:rows_out AS bigint[]), CAST(:timers_set AS bigint[]),
    CAST(:timers_ended AS bigint[]), CAST(:disk_bytes AS bigint[]), CAST(:memory_bytes AS bigint[])
) AS told (operator, kind, rows_in, rows_out, timers_set, timers_ended, disk_bytes, memory_bytes)
ON CONFLICT ON CONSTRAINT states_once DO UPDATE
SET batch_id = excluded.batch_id, rows_in = excluded.rows_in, rows_out = excluded.rows_out,
    rows = CASE WHEN excluded.batch_id = known.batch_id + 1 THEN known.rows + excluded.rows_in - excluded.rows_out END,
    timers_set = excluded.timers_set, timers_ended = excluded.timers_ended, disk_bytes = excluded.disk_bytes,
    memory_bytes = excluded.memory_bytes, seen_at = clock_timestamp()
WHERE known.batch_id < excluded.batch_id
