"""Mutants of `sql` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    DELIVER,
    EPOCHS,
    LAYOUTS,
    LONG_LOG,
    RECEIVE,
    SAMPLE,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import ReplaceSql

WITHOUT_ROWS = "tests/spark/outputs/test_windows_without_rows.py::"
REPLACED = (
    "tests/contract/commitlog/test_final_windows.py::"
    "test_a_window_that_others_have_replaced_holds_nothing_once_a_later_one_is_closed"
)
MUTANTS = (
    Mutant(
        "epoch-without-lock",
        "the epoch is read by a plain SELECT",
        "sql/statements/units.sql",
        ReplaceSql("check_epoch", "WHERE incarnation = :incarnation FOR SHARE", "WHERE incarnation = :incarnation"),
        tests=(EPOCHS + "test_a_bump_waits_for_a_commit_that_has_checked_where_it_may_not_end_its_session",),
    ),
    Mutant(
        "closed-incarnation-goes-on",
        "a driver that has looked up its incarnation takes an epoch of it though it was closed since",
        "sql/statements/incarnations.sql",
        ReplaceSql(
            "started", "WHERE incarnation = :incarnation AND state <> 'closed'", "WHERE incarnation = :incarnation"
        ),
        tests=(EPOCHS + "test_a_driver_gets_no_epoch_of_an_incarnation_that_was_closed_since_it_looked",),
    ),
    Mutant(
        "end-of-another-driver",
        "a driver's end is noted though another has begun since",
        "sql/statements/driver_runs.sql",
        ReplaceSql("end", "AND pipeline = :pipeline AND attempt = :attempt", "AND pipeline = :pipeline"),
        tests=(
            "tests/contract/commitlog/test_driver_runs.py::test_a_driver_that_ends_after_another_has_begun_says_nothing_of_it",
        ),
    ),
    Mutant(
        "cleared-run-as-a-retry",
        "a run that was cleared after it had ended well is taken for a retry, and leaves out what it has done before",
        "sql/statements/driver_runs.sql",
        ReplaceSql(
            "begin",
            "CASE WHEN driver_runs.exit_code = 0 THEN clock_timestamp() ELSE driver_runs.begun_at END",
            "driver_runs.begun_at",
        ),
        tests=(
            "tests/contract/commitlog/test_driver_runs.py::test_a_driver_continues_what_one_that_has_not_ended_well_has_begun",
        ),
    ),
    Mutant(
        "failed-runs-untold",
        "what a failed run has committed is never told to Airflow's assets: what follows the tables stands still",
        "sql/statements/views.sql",
        ReplaceSql("run_outputs", "d.exit_code IS DISTINCT FROM 0", "false"),
        tests=(
            "tests/contract/operate/test_outlets.py::test_what_a_failed_run_has_committed_is_told_with_the_next_good_end",
        ),
    ),
    Mutant(
        "own-layout-only",
        "a look-up asks chunks of batches with its own number of partitions only",
        "sql/statements/catalog.sql",
        ReplaceSql(
            "chunks",
            "AND mod(partition, gcd(partitions, :partitions)) = mod(:partition, gcd(partitions, :partitions))",
            "AND partitions = :partitions AND partition = :partition",
        ),
        tests=(LAYOUTS + "test_each_record_is_kept_once_whatever_the_layouts_of_its_deliveries",),
    ),
    Mutant(
        "unlisted-chunk-passes",
        "the doctor counts a chunk that no look-up can see",
        "sql/statements/doctor.sql",
        ReplaceSql(
            "uneven_buckets",
            "AND x.id_count = c.id_count)) AS ids,",
            "AND x.id_count = c.id_count) OR true) AS ids,",
        ),
        tests=("tests/contract/operate/test_doctor.py::test_lost_chunks_are_made_again_from_events",),
    ),
    Mutant(
        "closing-by-this-incarnation",
        "records that an earlier incarnation has met are left out of the windows that this one closes",
        "sql/statements/batches.sql",
        ReplaceSql("met_first", "w.incarnation = :incarnation AS told", "true AS told"),
        tests=(
            "tests/contract/commitlog/test_final_windows.py::test_the_first_batch_with_records_of_closing_windows_is_told_and_whether_the_log_has_all",
        ),
    ),
    Mutant(
        "frontier-from-all",
        "the frontier is asked of every batch there ever was",
        "sql/statements/batches.sql",
        ReplaceSql(
            "frontier",
            "ORDER BY b.delta_version DESC LIMIT 1) batch ON true",
            "ORDER BY b.delta_version DESC) batch ON true",
        ),
        tests=(LONG_LOG + "test_what_is_asked_all_the_time_visits_no_more_rows_in_a_long_log",),
    ),
    Mutant(
        "sums-of-the-unequal",
        "a batch that does not add up is folded into the sums, where no audit looks",
        "sql/statements/gc.sql",
        ReplaceSql("fold", "WHERE state <> 'committed' OR adds_up IS NOT TRUE OR", "WHERE state <> 'committed' OR"),
        tests=(LONG_LOG + "test_the_sums_are_those_of_every_row_and_a_batch_that_does_not_add_up_is_told_for_ever",),
    ),
    Mutant(
        "final-though-open",
        "windows that are open are noted as final, and a new incarnation begins after their first rows",
        "sql/statements/gc.sql",
        ReplaceSql("note_final", "IS NOT NULL AND NOT closed.final", "IS NOT NULL AND false"),
        tests=(
            "tests/contract/commitlog/test_final_windows.py::test_a_new_incarnation_begins_at_the_first_window_that_is_open",
        ),
    ),
    Mutant(
        "replaced-windows-stay-open",
        "after a change of an output's windows the old ones that were open hold the log for ever",
        "sql/statements/gc.sql",
        ReplaceSql("close_replaced", "WHERE w.in_time > 0", "WHERE w.in_time < 0"),
        tests=(REPLACED + "[fixed-sliding-True]",),
    ),
    Mutant(
        "sessions-close-in-order",
        "an hour of open sessions counts as closed, since some later session is",
        "sql/statements/gc.sql",
        ReplaceSql("close_replaced", "AND d.parts->'outputs'->w.output->'window'->>'kind' IN ('fixed', 'sliding')", ""),
        tests=(REPLACED + "[session-fixed-False]",),
    ),
    Mutant(
        "backfill-of-rows-only",
        "the plan of a changed function leaves out the windows for which the old one returned no row",
        "sql/statements/plan.sql",
        ReplaceSql("made_under", "WHERE p.final", "WHERE p.final AND p.rows > 0"),
        tests=(WITHOUT_ROWS + "test_another_function_is_computed_for_them_too",),
        spark=True,
    ),
    Mutant(
        "empty-windows-stay-outdated",
        "a window without rows before and after a backfill keeps the old declaration, so the plan never ends",
        "sql/statements/backfills.sql",
        ReplaceSql(
            "add_empty_panes", "AND (last.rows > 0 OR last.declaration_hash <> :declaration_hash)", "AND last.rows > 0"
        ),
        tests=(WITHOUT_ROWS + "test_another_function_is_computed_for_them_too",),
        spark=True,
    ),
    Mutant(
        "cuts-what-is-open",
        "batches of windows that are not final are cut from the log",
        "sql/statements/keep_log.sql",
        ReplaceSql("incarnations", "ELSE least(s.upto, s.final_upto) END", "ELSE s.upto END"),
        tests=("tests/contract/operate/test_keep_log.py::test_what_may_be_asked_for_stays",),
    ),
    Mutant(
        "cuts-what-is-late",
        "batches that met late records are cut from the log",
        "sql/statements/keep_log.sql",
        ReplaceSql("cut", "WHERE o.late = 0 AND", "WHERE"),
        tests=(
            "tests/contract/operate/test_keep_log.py::test_old_batches_go_and_every_total_and_window_has_its_numbers",
        ),
    ),
    Mutant(
        "waiting-by-its-name",
        "files that wait are looked for among all files there ever were",
        "sql/statements/views.sql",
        ReplaceSql(
            "files_waiting",
            "WHERE pane IS NOT NULL AND finalized_at IS NULL AND state = 'waiting' GROUP BY",
            "WHERE state = 'waiting' GROUP BY",
        ),
        tests=(LONG_LOG + "test_no_query_reads_a_table_that_grows_as_a_whole",),
    ),
    Mutant(
        "own-ids-seen",
        "a replay sees the ids that its first attempt has added",
        "sql/statements/catalog.sql",
        ReplaceSql(
            "chunks",
            "(incarnation <> :incarnation OR batch_id < :batch_id)",
            "(incarnation <> :incarnation OR batch_id <= :batch_id)",
        ),
        tests=(RECEIVE + "test_a_replay_gives_the_same_fates_again_in_any_order_and_cut", SAMPLE),
    ),
    Mutant(
        "later-ids-seen",
        "a replay sees the ids of later batches",
        "sql/statements/catalog.sql",
        ReplaceSql(
            "chunks",
            "(incarnation <> :incarnation OR batch_id < :batch_id)",
            "(incarnation <> :incarnation OR batch_id <> :batch_id)",
        ),
        tests=(RECEIVE + "test_a_batch_sees_the_chunks_of_earlier_batches_and_not_of_later_ones",),
    ),
    Mutant(
        "earlier-incarnations-forgotten",
        "a new incarnation does not see the ids of the incarnations before it",
        "sql/statements/catalog.sql",
        ReplaceSql(
            "chunks",
            "(incarnation <> :incarnation OR batch_id < :batch_id)",
            "(incarnation = :incarnation AND batch_id < :batch_id)",
        ),
        tests=(RECEIVE + "test_an_earlier_incarnation_is_seen_whatever_its_batch_ids",),
    ),
    Mutant(
        "unanswered-is-delivered",
        "a row whose deliverer was killed before an answer counts as delivered",
        "sql/statements/outbox.sql",
        ReplaceSql(
            "recover",
            "SET state = CASE WHEN attempts < :most THEN 'waiting' ELSE 'dead' END, due_at = NULL,",
            "SET state = 'delivered', due_at = NULL,",
        ),
        tests=(DELIVER + "test_a_kill_does_not_show",),
    ),
    Mutant(
        "control-row-foretold",
        "a batch without a catalog tells of event time before its control row",
        "sql/statements/backfills.sql",
        ReplaceSql("frontier_at", "CASE WHEN near.mode = 'exactly_once' THEN 0 ELSE 1 END", "0"),
        tests=("tests/contract/commitlog/test_backfills.py::test_a_batch_tells_of_event_time_from_its_control_row_on",),
    ),
    Mutant(
        "final-at-first-row",
        "a window whose rows are written as they come is final with the first of them",
        "sql/statements/batches.sql",
        ReplaceSql("add_to_panes", "0, false, rows, :incarnation", "0, true, rows, :incarnation"),
        tests=("tests/contract/commitlog/test_open_windows.py::test_rows_of_a_window_add_up_until_it_closes",),
    ),
    Mutant(
        "a-tasks-session-is-nobodys",
        "a newer driver ends the sessions of an older one, and not those of its tasks",
        "sql/statements/incarnations.sql",
        ReplaceSql("end_older_sessions", "[0-9]{1,18}(/|$)'", "[0-9]{1,18}$'"),
        tests=(
            "tests/contract/database/test_task_sessions.py::test_a_newer_driver_ends_the_transactions_of_an_older_ones_tasks",
        ),
    ),
    Mutant(
        "deliverer-does-not-sleep",
        "a row that is due counts although an earlier row of its key is due later, so the deliverer asks without a pause",
        "sql/statements/outbox.sql",
        ReplaceSql("next_due", "NOT (:ordered AND", "NOT (false AND :ordered AND"),
        tests=("tests/contract/sinks/test_deliver_batches.py::test_row_behind_a_waiting_row_of_its_key_is_not_due",),
    ),
    Mutant(
        "payload-by-rows",
        "a deliverer reads as many rows as it may, whatever they weigh",
        "sql/statements/outbox.sql",
        ReplaceSql("next_rows", "WHERE s.before < :bytes),", "WHERE s.before < :bytes OR true),"),
        tests=(DELIVER + "test_rows_are_read_by_their_bytes_and_each_goes_once_in_order",),
    ),
    Mutant(
        "rows-of-batches-not-seen",
        "the rows that wait in a join are added up though Spark's word of a batch is missing",
        "sql/statements/states.sql",
        ReplaceSql(
            "note",
            "CASE WHEN excluded.batch_id = known.batch_id + 1 THEN known.rows + excluded.rows_in - "
            "excluded.rows_out END",
            "known.rows + excluded.rows_in - excluded.rows_out",
        ),
        tests=(
            "tests/contract/commitlog/test_states.py::test_rows_are_not_known_where_a_batch_is_missing_and_never_of_what_spark_does_not_count",
        ),
    ),
    Mutant(
        "replay-without-progress",
        "a driver that begins to replay an old batch is reported at once as one that hangs",
        "sql/statements/doctor.sql",
        ReplaceSql("begun_batches", "u.last, d.since", "u.last"),
        tests=(
            "tests/contract/operate/test_doctor.py::test_a_batch_without_progress_is_found_once_its_driver_is_as_old[begin]",
        ),
    ),
    Mutant(
        "panes-last-one-counted",
        "an audit counts the rows of a window's last pane alone, whatever panes the table has",
        "sql/statements/views.sql",
        ReplaceSql("written", "coalesce(rows_of_all_panes, rows) AS rows", "rows"),
        tests=("tests/spark/sinks/test_appended_panes.py::test_each_pane_is_appended_with_its_number",),
        spark=True,
    ),
)
