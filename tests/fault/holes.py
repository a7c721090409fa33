"""The holes that a review of a sink in a second database found, by number, and the tests that each of them has.

The ledger writes them into its results.
"""

from __future__ import annotations

HOLES: dict[str, list[str]] = {
    "0": [
        "tests/spark/run/test_apart.py",
    ],
    "1": [
        "tests/contract/commitlog/test_authorities.py",
        "tests/fault/test_two_databases.py::test_a_kill_after_the_units_there_and_a_lost_checkpoint_write_nothing_twice",
    ],
    "2": [
        "tests/contract/commitlog/test_authorities.py",
    ],
    "3": [
        "tests/contract/commitlog/test_authorities.py",
        "tests/fault/test_two_databases.py::test_a_zombie_before_its_commit_there_adds_nothing_to_a_new_incarnation",
    ],
    "4": [
        "tests/contract/sinks/test_delta_once.py::test_a_replay_finds_its_commit_though_the_table_has_forgotten_the_transaction",
        "tests/contract/sinks/test_delta_once.py::test_a_table_that_forgets_its_transactions_is_refused",
    ],
    "5": [
        "tests/spark/sinks/test_sink_schema.py::test_an_upsert_without_the_window_among_its_keys_has_one_row_a_key_whatever_its_date",
    ],
    "6": [
        "tests/contract/commitlog/test_open_windows.py::test_a_new_incarnation_reads_what_was_written_as_it_came_no_more",
        "tests/spark/run/test_as_they_come.py::test_rows_written_as_they_come_are_all_there_through_a_new_incarnation",
    ],
    "7": [
        "tests/contract/sinks/test_targets.py",
    ],
    "8": [
        "tests/contract/commitlog/test_backfills.py::test_late_rows_of_sessions_are_folded_by_a_backfill_that_holds_them_all",
        "tests/spark/outputs/test_closing.py::test_late_rows_of_sessions_are_counted_with_where_in_their_hour_they_are",
        "tests/spark/outputs/test_backfilled_sessions.py::test_a_session_that_reaches_out_of_the_span_is_whole",
    ],
    "8a": [
        "tests/spark/sources/test_moved_home.py",
        "tests/unit/sources/test_moved_inboxes.py",
    ],
    "9": [
        "tests/spark/receive/test_input.py::test_each_line_has_the_fate_that_is_stated",
    ],
    "10": [
        "tests/spark/sinks/test_later_windows.py",
        "tests/contract/sinks/test_postgres_unit.py::test_an_upsert_without_the_window_keeps_the_row_of_the_later_one",
    ],
    "11": [
        "tests/contract/run/test_withdraw.py",
        "tests/spark/run/test_half_written.py::test_a_half_written_batch_without_a_checkpoint_is_withdrawn_or_finished",
    ],
    "12": [
        "tests/spark/receive/test_input.py::test_each_line_has_the_fate_that_is_stated",
        "tests/spark/receive/test_poison.py::test_no_line_stops_a_batch",
        "tests/unit/sources/test_line_reader.py::test_memory_does_not_grow_with_a_line",
        "tests/spark/receive/test_poison.py::test_a_record_at_which_three_attempts_fail_is_invalid_and_the_others_are_kept",
        "tests/unit/model/test_model_halves.py",
        "tests/contract/receive/test_poison.py",
        "tests/spark/receive/test_poison_stages.py",
    ],
    "13": [
        "tests/contract/sinks/test_targets.py::test_a_table_that_was_deleted_is_not_made_again_without_a_word",
    ],
    "14": [
        "tests/contract/sinks/test_delta_once.py::test_a_write_that_others_came_between_is_tried_again",
        "tests/contract/sinks/test_delta_once.py::test_others_that_come_between_for_ever_are_a_matter_of_time",
    ],
    "14a": [
        "tests/unit/sources/test_folders.py",
    ],
    "14b": [
        "tests/unit/test_spark_options.py",
        "tests/dags/test_spark_job.py::test_a_connection_that_cannot_work_fails_for_good_and_nothing_is_submitted",
    ],
    "14c": [
        "tests/unit/test_settings.py",
    ],
    "14d": [
        "tests/dags/test_spark_job.py::test_openlineages_parent_is_among_what_is_submitted",
        "tests/unit/session/test_failures.py::test_a_users_error_on_a_row_is_refused_since_a_retry_cannot_mend_it",
    ],
    "15": [
        "tests/contract/sinks/test_maintain.py::test_what_a_team_has_switched_on_is_told_with_the_way_out_and_the_table_left_alone",
    ],
    "16": [
        "tests/spark/run/test_as_they_come.py::test_rows_written_as_they_come_are_all_there_through_a_new_incarnation",
    ],
    "17": [
        "tests/unit/sources/test_listing.py::test_what_is_no_file_is_refused_once_by_name_and_nothing_waits_for_it",
    ],
    "18": [
        "tests/contract/commitlog/test_reader.py::test_a_statement_with_two_columns_of_one_name_gives_both",
        "tests/page/test_page.py::test_an_address_that_means_nothing_is_answered_with_a_page",
    ],
    "19": [
        "tests/contract/sinks/test_object_store.py::test_a_half_written_manifest_is_written_again",
        "tests/contract/sinks/test_object_store.py::test_after_an_error_in_its_block_no_file_is_there",
        "tests/contract/sinks/test_deliver.py::test_rows_are_read_by_their_bytes_and_each_goes_once_in_order",
        "tests/unit/sinks/test_kafka_transactions.py",
    ],
    "20": [
        "tests/contract/storage/test_own_tables.py::test_what_killed_attempts_have_left_is_swept_and_what_may_still_be_committed_stays",
    ],
    "21": [
        "tests/contract/commitlog/test_many_at_once.py",
        "tests/contract/database/test_sessions.py",
    ],
}
