"""Mutants of `onlyonce/operate` and what belongs to it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operators import Always, Delete, Negate, Never, Replace, ReplaceSql

MUTANTS = (
    Mutant(
        "earliest-control-row",
        "of folded control rows the one with the least event time stays",
        "onlyonce/operate/compact.py",
        Replace("folded_control_rows", "pc.max", "pc.min"),
        Replace("folded_control_rows", '"descending"', '"ascending"'),
        tests=(
            "tests/unit/operate/test_control_rows.py::test_folded_rows_close_the_windows_that_all_rows_close",
            "tests/contract/operate/test_compaction.py::test_control_rows_become_one_that_tells_the_latest_frontier",
        ),
    ),
    Mutant(
        "compacts-behind-a-first-batch",
        "commits are compacted behind a first batch that may be read again",
        "onlyonce/operate/compact.py",
        Replace("_tables", "((version, query) for query, version in first)", "()"),
        tests=(
            "tests/contract/operate/test_compaction.py::test_what_is_behind_a_first_batch_that_may_be_read_again_is_not_compacted",
        ),
    ),
    Mutant(
        "archived-over-a-new-name",
        "an input file on another file system goes to the archive over a name that was taken while it was copied",
        "onlyonce/operate/gc.py",
        Replace("_give_second_name", "os.link(part, target)", "part.rename(target)"),
        tests=("tests/contract/operate/test_archive.py::test_name_taken_while_a_file_is_copied_is_kept",),
    ),
    Mutant(
        "archived-over-others",
        "an input file goes to the archive in a store over the object that is there",
        "onlyonce/operate/gc.py",
        Replace(
            "_uploaded",
            "done = stores.of(move.target).put_new(move.target, move.source.read_bytes())",
            """
            done = True
            stores.of(move.target).put(move.target, move.source.read_bytes())
        """,
        ),
        tests=("tests/storage/test_archive.py::test_another_object_of_that_name_stays_and_so_does_the_file",),
    ),
    Mutant(
        "archived-before-another-has-read",
        "an input file goes to the archive although another pipeline, which reads it by a link, has not read it",
        "onlyonce/operate/gc.py",
        Never("_spelled_apart", "inbox not in theirs"),
        tests=(
            "tests/contract/operate/test_archive.py::test_files_stay_if_another_pipeline_reads_them_by_other_paths",
        ),
    ),
    Mutant(
        "erased-before-another-has-read",
        "records are erased from a file that another pipeline, which reads it by a link, has not read",
        "onlyonce/sources/folders.py",
        Replace("named_in", "(at.parent.resolve(), inbox.resolve())", "(at.parent, inbox)"),
        tests=("tests/contract/operate/test_forget.py::test_erasure_waits_for_a_pipeline_with_a_link_to_the_inbox",),
    ),
    Mutant(
        "erased-in-an-open-session",
        "a record is erased while its merged session is open: the session's result has the record",
        "onlyonce/operate/forget.py",
        Delete("main", "refuse_open_sessions(database, pipeline, found.records.times, todo, asked)"),
        tests=("tests/spark/operate/test_forget.py::test_an_erasure_waits_until_a_merged_session_is_closed",),
        spark=True,
    ),
    Mutant(
        "erased-first-of-a-session",
        "a session that loses its first record is left out when an erasure computes it again",
        "onlyonce/operate/erase_rows.py",
        Never("_stop", "isinstance(root.window, Session)"),
        tests=("tests/spark/operate/test_forget.py::test_an_erasure_waits_until_a_merged_session_is_closed",),
        spark=True,
    ),
    Mutant(
        "erased-from-its-own-window-alone",
        "a joined row stays if the erased record is in another window than the record that it was joined with",
        "onlyonce/operate/erase_rows.py",
        Replace("_moments", "Chained | Joined", "Chained"),
        tests=(
            "tests/contract/operate/test_forget.py::test_window_of_the_other_record_of_a_join_is_computed_again[the window before]",
        ),
    ),
    Mutant(
        "archive-waits-for-good",
        "an input file below a folder stays, since another pipeline that skips folders has not read it",
        "onlyonce/sources/folders.py",
        Always("named_in", "is_recursive(reader) or name.parent == inbox"),
        tests=(
            "tests/contract/operate/test_archive.py::test_files_below_folders_go_though_another_pipeline_skips_them",
            "tests/contract/operate/test_forget.py::test_erasure_waits_for_no_pipeline_that_skips_the_folder",
        ),
    ),
    Mutant(
        "erased-beside-a-new-driver",
        "an erasure begins without looking under its lock for drivers that have started",
        "onlyonce/commitlog/erasures.py",
        Delete("Erasures.begin", "self.refuse_in_use(instance)"),
        tests=("tests/contract/operate/test_forget.py::test_erasure_is_refused_if_a_driver_starts_before_it_begins",),
    ),
    Mutant(
        "first-batch-beside-an-erasure",
        "an incarnation that was registered before an erasure reads records while they are erased",
        "onlyonce/commitlog/batches.py",
        Never("Batches._insert", "plan.batch_id == 0"),
        tests=("tests/contract/operate/test_forget.py::test_no_first_batch_begins_until_an_erasure_has_ended",),
    ),
    Mutant(
        "erased-before-it-comes",
        "records are erased while an object in the inbox that holds them is not taken in",
        "onlyonce/operate/forget.py",
        Replace(
            "_not_taken_in",
            "[*(one.path for one in found.files), *found.objects]",
            "[*(one.path for one in found.files)]",
        ),
        tests=(
            "tests/storage/test_object_inbox_commands.py::test_an_erasure_names_the_objects_that_hold_the_records_and_writes_none",
        ),
    ),
    Mutant(
        "a-crash-test-at-work-is-left",
        "what a crash test that is at work has in a store is taken for what a killed one left",
        "onlyonce/operate/doctor.py",
        Replace("left_at_the_prefix", "all", "any"),
        tests=(
            "tests/storage/test_commands.py::test_the_doctor_finds_what_a_killed_start_and_a_killed_crash_test_left",
        ),
    ),
    Mutant(
        "crashtest-in-the-platform",
        "a crash test has its data at the prefix of the platform itself",
        "onlyonce/testing/crashtest.py",
        Replace("_prefix", 'root / f"crashtest-{uuid4().hex[:8]}"', "root"),
        tests=("tests/storage/test_crashtest_on_s3.py::test_kills_hold_and_the_prefix_of_the_platform_is_as_it_was",),
        spark=True,
    ),
    Mutant(
        "erased-files-stay",
        "files that had erased rows stay on the disk for a day",
        "onlyonce/operate/erase_rows.py",
        Delete(
            "remove_records",
            """
            attempt_files.sweep_attempts(instance, 0, [])
            _sweep(path)
        """,
        ),
        tests=(
            "tests/contract/operate/test_forget.py::test_records_go_from_everywhere_and_a_receipt_without_their_values_stays",
        ),
    ),
    Mutant(
        "erased-in-use",
        "records are erased that a stream is still to read",
        "onlyonce/operate/erase_rows.py",
        Negate("windows_upto", "records.batches & {(one.incarnation, one.batch_id) for one in later}"),
        tests=("tests/contract/operate/test_forget.py::test_records_that_are_still_in_use_are_not_erased_yet",),
    ),
    Mutant(
        "blanked-and-changed",
        "a file whose lines are blanked has another time, so it counts as replaced",
        "onlyonce/operate/erase_inputs.py",
        Delete("blank_files", "os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))"),
        tests=(
            "tests/contract/operate/test_forget.py::test_records_go_from_everywhere_and_a_receipt_without_their_values_stays",
        ),
    ),
    Mutant(
        "whatever-frontier-comes-first",
        "all records of a file are judged by the frontier of its first",
        "onlyonce/records/left_out.py",
        Replace("closed_by_row", "(columns[1:] != columns[:-1]).any(axis=1)", "np.zeros(len(columns) - 1, bool)"),
        tests=("tests/unit/outputs/test_counting.py::test_windows_are_counted_as_the_model_judges_each_record",),
    ),
    Mutant(
        "any-declared-pipeline-is-dropped",
        "a declared pipeline is dropped although it has kept records",
        "onlyonce/commitlog/dropping.py",
        Replace("Dropped.refuse_kept", "self.query is None and self.nothing_kept", "self.query is None"),
        tests=("tests/contract/operate/test_drop.py::test_what_may_have_kept_something_does_not_start_over[a record]",),
    ),
    Mutant(
        "nothing-kept-with-rows",
        "a pipeline whose output has written rows counts as one that has kept nothing",
        "sql/statements/drop.sql",
        ReplaceSql("nothing_kept", "u.rows > 0", "false"),
        tests=("tests/contract/operate/test_drop.py::test_what_may_have_kept_something_does_not_start_over[a row]",),
    ),
    Mutant(
        "lag-of-registered-input-only",
        "the lag of a stage whose source has old unread input is 0",
        "onlyonce/operate/unread.py",
        Replace(
            "_with_age",
            "max(float(row.get('system_lag_seconds') or 0), round(age, 1))",
            "row.get('system_lag_seconds')",
        ),
        tests=("tests/contract/operate/test_unread_input.py::test_files_that_no_run_has_read_wait",),
    ),
    Mutant(
        "plan-overlooks-the-half-written",
        "a plan is carried out although a batch has units under the declaration before",
        "onlyonce/operate/plan.py",
        Replace("_half_written_told", "under == declarations.fingerprint(pipeline, ran.query)", "under"),
        tests=(
            "tests/contract/operate/test_plan.py::test_a_batch_that_is_half_written_ends_as_it_was_declared_before_anything_is_done",
        ),
    ),
    Mutant(
        "settings-of-a-moment-ago",
        "a setting that was read once stays, whatever the environment says now",
        "onlyonce/configuration.py",
        Replace("current", "tuple(given)", "()"),
        tests=("tests/unit/test_settings.py::test_the_environment_wins_over_the_file_and_the_file_over_the_default",),
    ),
    Mutant(
        "alerts-of-stored-answers",
        "the command alerts takes the stored answers of sources and asks none",
        "onlyonce/cli/operate.py",
        Replace("alerts", "telling.ask_first(words)", "telling.main(words)"),
        tests=("tests/contract/operate/test_unread_input.py::test_command_alerts_asks_the_sources[unread input]",),
    ),
    Mutant(
        "lag-next-while-at-work",
        "lag says to run a pipeline while a driver of it is at work",
        "onlyonce/operate/unread.py",
        Always("in_words", "name not in at_work"),
        tests=("tests/contract/operate/test_unread_input.py::test_lag_says_unread_input_first",),
    ),
    Mutant(
        "trace-finds-names-only",
        "a trace finds an invalid line by the names of the id columns only",
        "onlyonce/records/trace.py",
        Replace("trace", "_holding(instance, pipeline, wanted)", "[]"),
        tests=("tests/contract/cli/test_trace.py::test_invalid_line_with_the_id_as_text_may_be_it",),
    ),
    Mutant(
        "late-included-too-early",
        "a late record counts as included by a backfill that read `events` before the record came",
        "sql/statements/trace.sql",
        ReplaceSql("included", "f.events_version >= b.delta_version", "true"),
        tests=("tests/contract/cli/test_trace.py::test_a_late_record_that_a_backfill_has_read_is_folded_in",),
    ),
    Mutant(
        "trials-not-forgotten",
        "an erasure leaves what a killed driver has tried of a batch",
        "onlyonce/operate/forget.py",
        Replace(
            "_erase",
            "(settings.blocks_dir(instance), settings.trials_location(instance))",
            "(settings.blocks_dir(instance),)",
        ),
        tests=(
            "tests/contract/operate/test_forget.py::test_records_go_from_everywhere_and_a_receipt_without_their_values_stays",
        ),
    ),
    Mutant(
        "audit-of-one-source",
        "the audit knows the ids of one source only, and calls sound rows of several wrong",
        "onlyonce/operate/audit.py",
        Replace(
            "_wrong_ids",
            "wrong += record_id.RecordId(row[OO_HIGH], row[OO_LOW]) not in record_id.of_any_source(pipeline, values)",
            "wrong += record_id.of_values(pipeline, values) != record_id.RecordId(row[OO_HIGH], row[OO_LOW])",
        ),
        tests=(
            "tests/unit/operate/test_audit_ids.py::test_a_row_of_any_source_has_an_id_of_its_columns_and_another_id_is_found[by_source]",
        ),
    ),
    Mutant(
        "dry-run-counts-nothing",
        "a dry run of keep_log says that no batch would go",
        "onlyonce/operate/compact.py",
        Replace("cut_log", "incarnations and not holds", "incarnations and not holds and not dry_run"),
        tests=(
            "tests/contract/operate/test_keep_log.py::test_old_batches_go_and_every_total_and_window_has_its_numbers",
        ),
    ),
    Mutant(
        "look-at-one-pipeline-is-kept",
        "the doctor's look at one pipeline replaces what the page shows of all",
        "onlyonce/operate/doctor.py",
        Always("visit", "only is None"),
        tests=("tests/contract/operate/test_unread_input.py::test_commands_take_one_pipeline",),
    ),
    Mutant(
        "page-shows-nothing-for-stored",
        "the page shows no stored answer if it can't ask a source",
        "onlyonce/airflow/page/unread.py",
        Never("_row", "stored and stored['asked_at']"),
        tests=("tests/page/test_unread.py::test_without_an_answer_the_stored_one_is_shown[fails]",),
    ),
    Mutant(
        "page-starts-each-process",
        "the page starts a process when it is called, which takes a second, instead of after the call before",
        "onlyonce/airflow/page/unread.py",
        Delete("_read_answers", "with suppress(OSError):\n    WAITING.renew(reader_url)"),
        tests=("tests/page/test_unread.py::test_source_is_asked_when_the_page_is_called",),
    ),
    Mutant(
        "page-waits-without-end",
        "the page waits for a source as long as it takes",
        "onlyonce/airflow/page/unread.py",
        Replace("Asker.ask", "request.ended.wait(request.seconds_left)", "request.ended.wait()"),
        tests=("tests/page/test_unread.py::test_answer_is_kept_and_asked_once_at_a_time",),
    ),
    Mutant(
        "page-waits-for-all-sources",
        "the page has the answers of the other sources only once a silent one has answered",
        "onlyonce/airflow/page/unread.py",
        Replace(
            "Asker.ask",
            "Asked(request.rows, goes_on=not ended)",
            "Asked(request.rows if ended else [], goes_on=not ended)",
        ),
        tests=("tests/page/test_unread.py::test_silent_source_is_named_and_holds_up_no_other",),
    ),
    Mutant(
        "page-makes-no-room",
        "processes that ask silent sources hold up the page of another pipeline",
        "onlyonce/airflow/page/unread.py",
        Delete("Asker.ask", "self._make_room()"),
        tests=("tests/page/test_unread.py::test_process_that_is_over_time_makes_room",),
    ),
    Mutant(
        "sum-names-no-source",
        "status does not say which of several sources did not answer",
        "onlyonce/operate/unread.py",
        Replace("by_stage", "_named(part)", "part.backlog"),
        tests=("tests/contract/operate/test_unread_input.py::test_silent_sources_are_named_and_hold_up_no_other",),
    ),
    Mutant(
        "status-hides-what-is-not-loaded",
        "status shows empty cells for a pipeline whose declaration is not loaded",
        "onlyonce/operate/unread.py",
        Replace("of_pipelines", "_undeclared(row, pipelines, not_loaded)", "{}"),
        tests=(
            "tests/contract/operate/test_unread_input.py::test_pipeline_that_is_not_loaded_is_named_with_the_reason",
        ),
    ),
    Mutant(
        "skipped-folders-not-in-the-answer",
        "the doctor does not know of the folders below an inbox that no run reads",
        "onlyonce/sources/backlog.py",
        Replace("_in_inbox", "frozenset(inbox.folders.skipped)", "frozenset()"),
        tests=("tests/unit/sources/test_input_folders.py::test_no_folder_below_an_inbox_is_skipped_silently",),
    ),
    Mutant(
        "dags-of-the-package",
        "the Airflow of an installed package looks for DAG files next to the package, where there are none",
        "onlyonce/local/airflow_server.py",
        Replace("dags_folder", '(own, settings.ROOT / "dags")', "(settings.ROOT / 'dags',)"),
        tests=("tests/dags/test_dags_folder.py::test_an_installed_package_serves_the_dags_of_the_project[True]",),
    ),
    Mutant(
        "an-end-that-a-commit-followed",
        "the doctor names the error of a run after which the pipeline has committed",
        "onlyonce/failed_runs.py",
        Replace("last_failed", "committed is None or committed < end.ended_at", "True"),
        tests=("tests/contract/operate/test_doctor.py::test_doctor_names_the_error_of_the_last_run_in_the_log",),
    ),
    Mutant(
        "an-error-remembered-for-ever",
        "the error of a run at a shell stays after one that has ended well",
        "onlyonce/failed_runs.py",
        Delete("remembered", "forget(pipeline)"),
        tests=("tests/contract/operate/test_doctor.py::test_doctor_names_the_error_of_the_last_run_at_a_shell",),
    ),
    Mutant(
        "any-line-is-a-header",
        "a record with one value that is the name of a column counts as a header",
        "onlyonce/records/left_out.py",
        Replace("_names_columns", "2 * known > len(cells)", "known > 0"),
        tests=("tests/unit/cli/test_cli_fates.py::test_header_that_was_read_as_a_record_is_recognised",),
    ),
    Mutant(
        "invalid-records-dropped-unsaid",
        "drop says nothing of the invalid records that it removes",
        "sql/statements/drop.sql",
        ReplaceSql("rows", "coalesce(sum(t.invalid), 0)::bigint", "0::bigint"),
        tests=("tests/contract/operate/test_drop.py::test_without_yes_it_only_says_what_goes_and_what_stays",),
    ),
    Mutant(
        "a-lost-table-of-events",
        "the audit of the data passes over a table `events` that is gone",
        "onlyonce/records/left_out.py",
        Replace("lost_events", "row[fate] or 0", "0"),
        tests=("tests/contract/operate/test_audit_data.py::test_each_disagreement_is_named_with_its_place",),
    ),
    Mutant(
        "windows-of-a-begun-backfill",
        "the audit of the data compares windows that an unfinished backfill may have replaced",
        "onlyonce/operate/audit.py",
        Delete("_output", "compared -= inside"),
        tests=("tests/contract/operate/test_audit_data.py::test_begun_backfill_leaves_out_its_own_windows_only",),
    ),
    Mutant(
        "stop-by-airflow-alone",
        "a continuous run that was started at a shell can't be stopped without Airflow",
        "onlyonce/local/airflow_api.py",
        Replace("stop_runs", "run is None or not run.alive", "True"),
        tests=("tests/contract/local/test_stop.py::test_a_continuous_run_at_a_shell_is_stopped_without_airflow",),
    ),
    Mutant(
        "digits-cut-in-sql",
        "onlyonce sql shows two digits of a fraction",
        "onlyonce/console.py",
        Replace("show_rows", "_exact if whole else plain", "plain"),
        tests=("tests/unit/cli/test_cli.py::test_sql_shows_all_digits",),
    ),
    Mutant(
        "a-table-of-anothers",
        "check is silent about a table that another pipeline has",
        "onlyonce/check.py",
        Replace("taken_tables", "Targets(database).claimed()", "[]"),
        tests=("tests/contract/operate/test_drop.py::test_check_says_which_table_is_anothers",),
    ),
    Mutant(
        "a-table-of-the-old-name",
        "check is silent about a table that an output of the same pipeline had under another name",
        "onlyonce/check.py",
        Replace("taken_tables", "(claim.instance, claim.output) not in moved", "claim.instance != pipeline.name"),
        tests=("tests/contract/operate/test_drop.py::test_check_says_which_table_is_anothers",),
    ),
    Mutant(
        "null-without-a-word",
        "the first run is silent about columns in which no record has a value",
        "onlyonce/run/stream.py",
        Always("_without_values", "not columns"),
        tests=(
            "tests/spark/run/test_columns_without_values.py::test_columns_without_a_value_are_named_by_the_first_run",
        ),
        spark=True,
    ),
    Mutant(
        "dropped-though-declared-elsewhere",
        "drop does not say that no file that was read declares the pipeline",
        "onlyonce/operate/drop.py",
        Replace("main", "found.incarnations and elsewhere", "False"),
        tests=("tests/contract/operate/test_drop.py::test_without_yes_it_only_says_what_goes_and_what_stays",),
    ),
    Mutant(
        "damaged-state-is-clean",
        "a table of Spark's state that can't be read has no record in it",
        "onlyonce/operate/erase_search.py",
        Replace("count_mentions", '"table of RocksDB"', '""'),
        tests=("tests/unit/operate/test_decoders.py::test_damage_of_a_state_table_is_named",),
    ),
    Mutant(
        "a-lost-answer-clears-the-files",
        "a compaction whose commit landed and whose answer was lost removes the files that the table has now",
        "onlyonce/tables/rewrite.py",
        Never("replace_files", "ours and ours <= there"),
        tests=("tests/contract/operate/test_compaction.py::test_a_commit_whose_answer_was_lost_keeps_its_files",),
    ),
)
