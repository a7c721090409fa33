"""Mutants of `onlyonce/run` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    COPY,
    LONG,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Always, Delete, Never, Replace

IDLE_DECISION = "tests/unit/model/test_idle_decision.py"
ANSWERS = "tests/spark/run/test_source_answers.py::"
IDLE_RUN = "tests/spark/run/test_idle_runs.py::test_run_with_nothing_to_do_starts_no_spark"
CHANGED_ONCE = "tests/spark/run/test_idle_runs.py::test_changed_declaration_without_input_starts_spark_once"

MUTANTS = (
    Mutant(
        "package-missed-after-receive",
        "a sink without its package is found when its first row is written, after receive has committed",
        "onlyonce/check.py",
        Never("lacking_here", "not sink.is_external and sink.package and not is_installed(sink.package)"),
        tests=("tests/unit/check/test_check.py::test_sink_without_its_package_is_found_without_spark",),
    ),
    Mutant(
        "registry-client-missed-before-spark",
        "a missing client of the schema registry is found when the first message is read",
        "onlyonce/check.py",
        Delete("check_pipeline", "check_registry_client(pipeline)"),
        tests=("tests/unit/check/test_check.py::test_missing_client_of_a_schema_registry_is_refused_before_spark",),
    ),
    Mutant(
        "first-run-changes-a-table-silently",
        "a first run adds columns to an existing table without a word",
        "onlyonce/check.py",
        Replace("columns_apart", "{*new}", "set()"),
        tests=("tests/unit/check/test_check.py::test_columns_that_a_changed_function_gives_no_more_are_named",),
    ),
    Mutant(
        "run-silent-about-invalid",
        "a run does not say that records are in no result",
        "onlyonce/run/stream.py",
        Replace("left_out", "row.get(fate) or 0", "0"),
        tests=("tests/unit/run/test_left_out.py",),
    ),
    Mutant(
        "all-invalid-unsaid",
        "a run whose records are all invalid says so as one that has a few",
        "onlyonce/run/stream.py",
        Never("left_out", "all_invalid(fates)"),
        tests=("tests/unit/run/test_left_out.py::test_run_of_invalid_records_only_says_all_and_why",),
    ),
    Mutant(
        "reasons-by-their-values",
        "reasons that differ in the value of their record alone count as several, so a rarer one is named",
        "onlyonce/records/left_out.py",
        Replace("_by_kind", 'pc.list_element(pc.split_pattern(reasons, ": ", max_splits=1), 0)', "reasons"),
        tests=("tests/contract/cli/test_trace.py::test_common_reason_counts_reasons_that_differ_in_values",),
    ),
    Mutant(
        "jvm-not-quoted",
        "a JVM that ends as it starts is not quoted, so its cause is only in a file",
        "onlyonce/cli/work.py",
        Never("_jvm_heard", "NO_JVM in str(error)"),
        tests=("tests/unit/cli/test_watched.py::test_a_jvm_that_ends_as_it_starts_is_quoted",),
    ),
    Mutant(
        "unknown-error-ends-the-run",
        "an error that onlyonce does not know, of one output's table, ends the whole run",
        "onlyonce/check.py",
        Replace("wrong_tables", "Exception", "OnlyonceError"),
        tests=("tests/spark/run/test_broken_outputs.py::test_broken_outputs_stop_no_other",),
        spark=True,
    ),
    Mutant(
        "lookup-ends-the-run",
        "a lookup of one output that can't be read ends the whole run",
        "onlyonce/check.py",
        Replace("_ask_spark", "wrong[root.name] = translate(error)", "raise"),
        tests=("tests/spark/run/test_broken_outputs.py::test_broken_outputs_stop_no_other",),
        spark=True,
    ),
    Mutant(
        "variable-after-spark",
        "a missing variable of a sink is found only when Spark has started",
        "onlyonce/check.py",
        Replace("check_pipeline", "Checked(True, lacking_here(pipeline), {})", "Checked(True, {}, {})"),
        tests=("tests/contract/run/test_before_spark.py::test_missing_variable_is_refused_before_spark_starts",),
    ),
    Mutant(
        "check-waits-a-minute",
        "a check waits as long as a run for a database that does not answer",
        "onlyonce/cli/checking.py",
        Replace("few_seconds", "min(CHECK_SECONDS, settings.database_patience())", "settings.database_patience()"),
        tests=("tests/contract/run/test_before_spark.py::test_check_waits_seconds_for_a_silent_database",),
    ),
    Mutant(
        "unreadable-command-ignores-json",
        "an error of a command line that can't be read is lines, whatever --json says",
        "onlyonce/cli/shell.py",
        Replace("PlatformGroup.parse_args", '"--json" in args', "False"),
        tests=("tests/unit/cli/test_cli.py::test_unreadable_command_is_refused_in_three_lines_or_json",),
    ),
    Mutant(
        "doctor-ends-at-a-feature",
        "a table with a feature that nothing here reads ends the doctor",
        "onlyonce/operate/doctor.py",
        Replace("Tables._open", "(DeltaError, OnlyonceError)", "DeltaError"),
        tests=("tests/contract/operate/test_doctor.py::test_tables_that_have_not_what_the_log_vouches_for_are_found",),
    ),
    Mutant(
        "format-1-task-in-any-home",
        "a DAG's task does not ask the home for its format",
        "onlyonce/airflow/jobs.py",
        Delete("JobOperator.execute", "formats.check_home()"),
        tests=("tests/dags/test_dags.py::test_a_task_refuses_a_home_of_another_format",),
    ),
    Mutant(
        "failed-task-as-a-good-end",
        "a task that fails after the good end of its driver is taken for one that has ended well",
        "onlyonce/airflow/spark_job.py",
        Delete("SparkJobOperator.execute", "airflow_log.note_failure(self.pipeline, context, error)"),
        tests=(
            "tests/contract/airflow/test_supervision.py::test_a_try_that_fails_after_its_drivers_good_end_has_not_ended_well",
        ),
    ),
    Mutant(
        "kept-as-it-is-written",
        "what a check has found is written in place",
        "onlyonce/check.py",
        Replace("keep_check", 'file.with_name(f".{file.name}.{os.getpid()}")', "file"),
        tests=(
            "tests/unit/check/test_check_kept.py::test_a_kill_while_a_check_is_kept_leaves_all_of_it_or_what_was_there",
        ),
    ),
    Mutant(
        "store-by-half-a-connection",
        "what a connection of the store asks and no variable says is passed over",
        "onlyonce/airflow/log.py",
        Replace("keys_of", "sorted({*store.extra_dejson} - {*OF_STORE})", "[]"),
        tests=(
            "tests/dags/test_spark_job.py::test_a_connection_that_not_all_clients_of_the_store_would_follow_starts_nothing",
        ),
    ),
    Mutant(
        "rows-written-by-each-incarnation",
        "a new incarnation reads the rows of open windows again that were written as they came",
        "onlyonce/commitlog/new_incarnations.py",
        Never("NewIncarnations.begins_at", "last.stateless"),
        tests=(
            "tests/contract/commitlog/test_open_windows.py::test_a_new_incarnation_reads_what_was_written_as_it_came_no_more",
        ),
    ),
    Mutant(
        "keys-not-held-against-the-rows",
        "a key of a sink that the function does not give is found by the run alone",
        "onlyonce/check.py",
        Never("check_keys", "key not in columns"),
        tests=("tests/unit/check/test_check.py::test_keys_are_columns_of_the_rows",),
    ),
    Mutant(
        "no-snapshot-in-a-drain",
        "a driver that lives for a moment leaves the changes of all batches to the next one",
        "onlyonce/run/queries.py",
        Delete("once", 'context.spark.conf.set(state.UNLOAD, "true")'),
        tests=(
            "tests/spark/outputs/test_state.py::test_a_driver_that_lives_for_a_moment_leaves_a_snapshot_of_its_state_now_and_then",
        ),
        spark=True,
    ),
    Mutant(
        "rows-not-vouched-for",
        "beside receive an output begins on rows whose batch has not ended",
        "onlyonce/run/queries.py",
        Replace(
            "_await_receive",
            """
            while not _vouched(context, versions):
                query.between_batches()
                with context.receiving:  # held by a batch of receive as long as it is at work
                    if not _vouched(context, versions):
                        context.receiving.wait(LOOK_SECONDS)
        """,
            """
            while False:
                query.between_batches()
                with context.receiving:  # held by a batch of receive as long as it is at work
                    if not _vouched(context, versions):
                        context.receiving.wait(LOOK_SECONDS)
        """,
        ),
        tests=(LONG + "test_an_output_begins_on_no_row_before_the_log_has_ended_its_receive_batch",),
        spark=True,
    ),
    Mutant(
        "tests-4-heart-beats-on",
        "the heart of a long run whose block ends by itself beats on in its process",
        "onlyonce/run/stream.py",
        Replace("held_long_run", "mine.end(0, None)", "None"),
        tests=("tests/contract/commitlog/test_long_runs.py::test_a_long_run_whose_block_ends_by_itself_has_stopped",),
    ),
    Mutant(
        "tests-4-queries-stay-up",
        "the queries of a long run that is broken off stay up in its process",
        "onlyonce/run/queries.py",
        Replace("up", "ask_stop()", "None"),
        tests=(LONG + "test_a_run_that_is_broken_off_leaves_no_query_in_its_process",),
        spark=True,
    ),
    Mutant(
        "withdrawn-without-a-fence",
        "the transaction of a withdrawn Delta batch is left free: a driver that wakes lands its rows",
        "onlyonce/run/reset.py",
        Replace(
            "take_back",
            "table = opening.table(path)",
            """
            table = opening.table(path)
            return
        """,
        ),
        tests=("tests/contract/run/test_withdraw.py::test_a_driver_that_wakes_can_not_land_a_withdrawn_batch",),
    ),
    Mutant(
        "landed-is-taken",
        "rows that got to the table between the look and the mark count as a transaction of ours, and their batch "
        "is withdrawn",
        "onlyonce/run/reset.py",
        Never("take_back", "batch_holds(path, app_id, batch_id)"),
        tests=(
            "tests/contract/run/test_withdraw.py::test_rows_that_land_after_the_look_keep_their_batch_from_being_withdrawn",
        ),
    ),
    Mutant(
        "appends-withdrawn",
        "a begun batch is withdrawn though an append has rows of it, which a new incarnation writes again",
        "onlyonce/run/reset.py",
        Replace("", '("upsert", "history", "FileSink(")', '("append", "upsert", "history", "FileSink(")'),
        tests=("tests/contract/run/test_withdraw.py::test_what_a_new_incarnation_would_write_twice_is_not_withdrawn",),
    ),
    Mutant(
        "outputs-3-used-up-in-the-history",
        "only the history of a table shows that a transaction was used up",
        "onlyonce/run/reset.py",
        Replace("take_back", "(app_id, app_id + stored_names.USED_UP)", "(app_id,)"),
        tests=(
            "tests/contract/run/test_withdraw.py::test_a_table_holds_a_transaction_after_its_history_was_cleaned[True]",
        ),
    ),
    Mutant(
        "outputs-one-by-one",
        "an output has its turn when the one before it has ended",
        "onlyonce/run/queries.py",
        Replace("_each", "settings.spark().outputs_at_once", "1"),
        tests=(
            "tests/spark/run/test_side_by_side.py::test_outputs_that_are_drained_side_by_side_give_the_batch_whatever_was_killed",
        ),
        spark=True,
    ),
    Mutant(
        "one-output-stops-all",
        "a drain ends at the first output that can't go on",
        "onlyonce/run/queries.py",
        Always("_Failures.add", "isinstance(error, Superseded | Stopped) or not isinstance(error, Exception)"),
        tests=(
            "tests/spark/run/test_apart.py::test_a_drain_goes_on_with_the_other_outputs_and_ends_with_the_first_ones_error",
        ),
        spark=True,
    ),
    Mutant(
        "plan-over-a-plan",
        "a driver puts its plan of a batch over that of another",
        "onlyonce/context.py",
        Replace(
            "WorkingCopy.planned",
            "not stores.of(self.folder).put_new(self.folder / name, self._written(name))",
            "stores.of(self.folder).put(self.folder / name, self._written(name))",
        ),
        tests=(COPY + "test_of_two_drivers_with_one_batch_the_first_plan_stands[local]",),
    ),
    Mutant(
        "ends-at-the-end",
        "Spark's word of the end of a batch comes into the store at the end of its query only",
        "onlyonce/context.py",
        Delete("WorkingCopy.planned", "self.ended()"),
        tests=(COPY + "test_the_store_has_the_plan_before_a_batch_and_its_end_before_the_next[local]",),
    ),
    Mutant(
        "checkpoint-for-ever",
        "files of a checkpoint in a store never go",
        "onlyonce/context.py",
        Never("WorkingCopy.planned", "batch_id % AT_ONCE == 0 and batch_id >= KEPT"),
        tests=(COPY + "test_a_checkpoint_has_no_more_than_its_last_batches[versitygw]",),
    ),
    Mutant(
        "query-of-another-session-unseen",
        "a run whose data is in a store sees none of its queries: no round ends, and an output stays down",
        "onlyonce/run/queries.py",
        Replace(
            "_Looks.look",
            "dict(self._context.running).items()",
            "{query.name: query for query in self._context.spark.streams.active}.items()",
        ),
        tests=("tests/unit/run/test_rounds.py::test_an_output_in_another_session_counts_in_a_round",),
    ),
    Mutant(
        "plan-after-its-batch",
        "the plan of a batch comes into the store once the batch has ended",
        "onlyonce/context.py",
        Replace(
            "_Started._batch",
            "self._query.copy.planned(batch_id)",
            """
            self._on_batch(frame, batch_id)
            self._query.copy.planned(batch_id)
            return
        """,
        ),
        tests=("tests/storage/test_run_on_s3.py::test_a_kill_does_not_show_in_what_is_in_the_store",),
        spark=True,
    ),
    Mutant(
        "settings-of-the-worker",
        "the settings of Airflow's worker decide with which jars a driver's JVM starts, and not the driver's own",
        "onlyonce/airflow/spark_job.py",
        Replace(
            "SparkJobOperator._hook_keywords",
            """
            with refusals_are_final(self.log), within(of_driver):
                theirs = {**self._found_by_submit(), **conf, "spark.submit.deployMode": mode}
                added = temporary.added(master, options(master, theirs), theirs)
        """,
            """
            with refusals_are_final(self.log):
                theirs = {**self._found_by_submit(), **conf, "spark.submit.deployMode": mode}
                added = temporary.added(master, options(master, theirs), theirs)
        """,
        ),
        tests=("tests/dags/test_spark_job.py::test_the_drivers_own_settings_decide_with_which_jars_it_starts",),
    ),
    Mutant(
        "keys-for-the-driver-alone",
        "executors in a cluster get no keys of the store",
        "onlyonce/airflow/spark_job.py",
        Replace(
            "secret_properties",
            """
            {
                    **theirs,
                    **{f"{prefix}.{name}": value for name, value in {**(named if in_yarn else {}), **of_driver}.items()},
                    **{f"spark.executorEnv.{name}": value for name, value in of_executors.items()},
                }
        """,
            """
            {
                    **theirs,
                    **{f"{prefix}.{name}": value for name, value in {**(named if in_yarn else {}), **of_driver}.items()},
                }
        """,
        ),
        tests=(
            "tests/contract/airflow/test_supervision.py::test_the_secrets_of_a_driver_in_a_cluster_go_by_a_file_of_this_account_alone",
        ),
    ),
    Mutant(
        "reset-around-a-plan",
        "a new incarnation begins under a declaration that needs another name, next to rows of the old one",
        "onlyonce/run/reset.py",
        Never("new", "pipeline and query in pipeline.queries()"),
        tests=("tests/spark/outputs/test_open_sessions.py::test_new_incarnation_with_other_panes_is_refused",),
        spark=True,
    ),
    Mutant(
        "zombie-deletes-after-withdrawal",
        "the transaction of a withdrawn batch is used up in its table only, and not where its deletes are kept",
        "onlyonce/run/reset.py",
        Never("take_all_back", "is_ours(beside(path))"),
        tests=("tests/contract/run/test_withdraw.py::test_the_deletes_of_a_withdrawn_batch_can_not_land_either",),
    ),
    Mutant(
        "hours-before-their-minutes",
        "in a long run an output of a chain does not wait for the one before it",
        "onlyonce/run/queries.py",
        Replace(
            "await_written",
            "not _has_written(context.database, context.instance, before, upto)",
            "False and not _has_written(context.database, context.instance, before, upto)",
        ),
        tests=(
            "tests/spark/outputs/test_chains.py::test_in_a_long_run_an_output_begins_on_no_row_before_the_one_before_it_has_written_what_closes_with_it",
        ),
        spark=True,
    ),
    Mutant(
        "refused-table-ends-the-run",
        "a table that can't take the rows of its output ends the whole run",
        "onlyonce/run/stream.py",
        Replace("_refused", "refused and len(refused) == len(pipeline.roots())", "refused"),
        tests=(
            "tests/spark/check/test_mistakes.py::test_a_table_that_cannot_take_rows_stops_its_output_only[clustered]",
        ),
        spark=True,
    ),
    Mutant(
        "feature-unseen-by-check",
        "check passes a Delta table whose features the run then refuses",
        "onlyonce/sinks/delta/sink_delta.py",
        Delete("types_there", "check_table(table, path, output)"),
        tests=(
            "tests/spark/check/test_mistakes.py::test_a_table_that_cannot_take_rows_stops_its_output_only[clustered]",
        ),
        spark=True,
    ),
    Mutant(
        "required-column-unseen",
        "a table whose required column the rows lack passes until the first batch",
        "onlyonce/core/column_types.py",
        Never("refuse_required", "name.lower() not in known"),
        tests=(
            "tests/contract/sinks/test_team_tables.py::test_a_table_that_cannot_take_an_upsert_is_refused_before_any_row",
        ),
    ),
    Mutant(
        "second-platform",
        "`up` starts a platform next to the one that a URL names",
        "onlyonce/local/platform.py",
        Never("_refuse_named", "named is not None"),
        tests=(
            "tests/unit/local/test_another_platform.py::test_up_is_refused_if_another_platform_is_named[ONLYONCE_DATABASE_URL]",
        ),
    ),
    Mutant(
        "backfill-in-no-pool",
        "the tasks of a backfill are in Airflow's default pool, whatever pool its DAG file names",
        "onlyonce/airflow/factory.py",
        Replace("backfill", "options.task_defaults(**RETRIES, priority_weight=0)", '{**RETRIES, "priority_weight": 0}'),
        tests=("tests/dags/test_backfill.py::test_every_task_of_a_backfill_is_in_the_pool",),
    ),
    *(
        Mutant(
            f"idle-in-spite-of-{reason}",
            f"a run ends without Spark although {broken}",
            "onlyonce/core/idle.py",
            operator,
            tests=(IDLE_DECISION,),
        )
        for reason, broken, operator in (
            (
                "a-damaged-incarnation",
                "an incarnation is damaged",
                Never("of_query", 'query.live is not None and query.live != "live"'),
            ),
            ("a-begun-batch", "a batch is begun", Never("of_query", "query.begun != query.committed")),
            (
                "a-planned-batch",
                "the checkpoint has a batch that the log has not",
                Never("of_query", "not query.planned == query.ended == query.committed"),
            ),
            ("another-declaration", "the declaration has changed", Never("of_query", "not query.same_declaration")),
            ("a-watermark", "a query with a state has a newer watermark", Never("of_query", "query.watermark_moved")),
            ("a-marker", "a watermark marker is begun", Never("of_run", "run.marker_begun")),
            (
                "registered-input",
                "registered input is not committed",
                Never("of_run", "run.registered != run.taken_in"),
            ),
            ("unread-events", "an output has not read all of events", Never("of_run", "run.unread")),
            ("late-records", "late records are due", Never("of_run", "run.late")),
            ("a-close", "a window closes", Never("of_run", "run.closes")),
            ("an-idle-source", "the watermark moves without an idle source", Never("of_run", "run.idle_source")),
        )
    ),
    Mutant(
        "idle-in-spite-of-new-input",
        "a run ends without Spark although the source has input",
        "onlyonce/run/idle.py",
        Never("why_spark", "found is None and source.waits()"),
        tests=(IDLE_RUN,),
        spark=True,
    ),
    Mutant(
        "idle-in-spite-of-yarn",
        "a run in YARN's cluster mode ends without Spark, which YARN takes for a failure",
        "onlyonce/engine/session.py",
        Never("must_start", 'theirs.get("spark.master") == "yarn"'),
        tests=("tests/unit/session/test_must_start.py::test_only_yarns_cluster_mode_must_start_spark",),
    ),
    Mutant(
        "idle-by-an-error",
        "a run ends without Spark if its source can't be asked",
        "onlyonce/run/idle.py",
        Replace("why_spark", "return Reason.UNKNOWN", "return None"),
        tests=("tests/spark/run/test_idle_runs.py::test_source_that_cannot_be_asked_starts_spark",),
        spark=True,
    ),
    Mutant(
        "finished-bounded-run-again",
        "the retry of a bounded run that has written everything reads all input again",
        "onlyonce/run/stream.py",
        Never("_instance", "since is not None and incarnations.wrote(asked.run_id, name, since)"),
        tests=("tests/spark/run/test_spine.py::test_retry_of_a_finished_bounded_run_reads_nothing",),
        spark=True,
    ),
    Mutant(
        "idle-run-unnoted",
        "a run without Spark notes no start, so that its pipeline looks as if it did not run",
        "onlyonce/run/stream.py",
        Delete("_drain", "idle.note(database, pipeline)"),
        tests=(IDLE_RUN,),
        spark=True,
    ),
    Mutant(
        "changed-at-each-run",
        "a run without input starts Spark for a changed declaration, however many runs have ended under it",
        "onlyonce/run/stream.py",
        Delete("_drain", "idle.note_declaration(database, pipeline)"),
        tests=(CHANGED_ONCE,),
        spark=True,
    ),
    Mutant(
        "changed-by-a-failed-run",
        "a run that fails under a changed declaration counts as one that has ended under it",
        "onlyonce/run/stream.py",
        Replace(
            "_drain",
            "from onlyonce.run import queries, source_answers",
            "from onlyonce.run import queries, source_answers\nidle.note_declaration(database, pipeline)",
        ),
        tests=(CHANGED_ONCE,),
        spark=True,
    ),
    Mutant(
        "idle-in-spite-of-a-cut-file",
        "a growing file that was cut short does not wait",
        "onlyonce/sources/discovery.py",
        Replace("_OfGrowingFiles.any_new", "bool(self.groups(inbox, there))", "False"),
        tests=(
            "tests/spark/sources/test_unread.py::test_source_waits_for_refusals_and_not_for_what_no_run_reads[cut short]",
        ),
        spark=True,
    ),
    Mutant(
        "driver-stores-no-answer",
        "a driver does not ask its sources after a batch",
        "onlyonce/receive/loop.py",
        Delete("_batch", "context.committed.add()"),
        tests=(ANSWERS + "test_run_stores_the_answer_of_its_source",),
        spark=True,
    ),
    Mutant(
        "driver-asks-for-each-batch",
        "quick batches ask the sources once each",
        "onlyonce/run/source_answers.py",
        Delete(
            "_store_until_end", "committed.wait_for_end(max(backlog.KEPT_SECONDS, 20 * (time.monotonic() - began)))"
        ),
        tests=(ANSWERS + "test_quick_batches_share_an_answer[False-2]",),
    ),
    Mutant(
        "driver-forgets-its-last-batch",
        "the batches after the last request of a run are not asked for",
        "onlyonce/run/source_answers.py",
        Replace("_store_until_end", "committed.number == asked_after", "committed.ended"),
        tests=(ANSWERS + "test_quick_batches_share_an_answer[False-2]",),
    ),
    Mutant(
        "bounded-retry-reads-newer-input",
        "a bounded run that is retried takes in what came since its outputs began",
        "onlyonce/run/queries.py",
        Replace("bounded", "query.begun_upto(context, root)", "None"),
        tests=("tests/spark/run/test_spine.py::test_bounded_run_that_is_retried_leaves_newer_input_out",),
        spark=True,
    ),
    Mutant(
        "bounded-output-is-reset",
        "an output of a bounded run gets a new incarnation, which writes all rows again",
        "onlyonce/run/reset.py",
        Never("_refuse_bounded", '"@" in instance and query != "receive"'),
        tests=("tests/contract/run/test_withdraw.py::test_an_output_of_a_bounded_run_gets_no_new_incarnation",),
    ),
    Mutant(
        "begun-close-forgotten",
        "a new incarnation of receive forgets a begun close whose control row the outputs read",
        "onlyonce/run/reset.py",
        Delete("_fence_events", "loop.finish_marker(database, driver, path)"),
        tests=(
            "tests/spark/run/test_incarnations.py::"
            "test_a_new_incarnation_of_receive_keeps_a_begun_close[marker-after-delta]",
        ),
        spark=True,
    ),
    Mutant(
        "late-rows-do-not-wait",
        "a killed backfill that has the windows of late rows stops their output",
        "onlyonce/outputs/backfill_windows.py",
        Replace(
            "include_span",
            "(backfill_rules.InRunningBackfill, backfill_rules.InBegunBackfill)",
            "(backfill_rules.InRunningBackfill,)",
        ),
        tests=(LONG + "test_late_rows_wait_for_a_backfill_that_has_their_windows",),
        spark=True,
    ),
    Mutant(
        "bounded-run-stores-an-answer",
        "a bounded run stores answers of the stream's sources",
        "onlyonce/run/source_answers.py",
        Never("stored_after_batches", "context.bounded"),
        tests=(ANSWERS + "test_quick_batches_share_an_answer[True-0]",),
    ),
    Mutant(
        "an-aggregate-of-the-clock-passes",
        "a check accepts an aggregate of the clock, which no stream can run",
        "onlyonce/check.py",
        Never("_check_streams", "clock := clock_in_aggregate(result)"),
        tests=(
            "tests/spark/check/test_mistakes.py::test_a_mistake_is_told_at_its_line_before_data_is_touched[an aggregate of the clock]",
        ),
        spark=True,
    ),
)
