"""Mutants of `onlyonce/outputs` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    APPENDED,
    REJECTED,
    SAMPLE,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Always, Delete, Never, Replace

BACKFILLED = "tests/spark/outputs/test_backfilled_sessions.py::"
WITHOUT_ROWS = "tests/spark/outputs/test_windows_without_rows.py::"
UNREPEATABLE = "tests/spark/outputs/test_unrepeatable.py::"

MUTANTS = (
    Mutant(
        "row-without-a-window-written",
        "rows without a window are written, and the batch can never end",
        "onlyonce/outputs/results.py",
        Never("refuse_without_window", "rows is not None"),
        tests=("tests/spark/outputs/test_at_close.py::test_rows_without_a_window_are_refused_before_any_is_written",),
        spark=True,
    ),
    Mutant(
        "no-line-in-a-thread-of-its-own",
        "a query's thread has no active session, so Spark's errors name no line of the function",
        "onlyonce/outputs/function.py",
        Replace("lines_known", "not sessions.getActiveSession().isDefined()", "False"),
        tests=(
            "tests/spark/check/test_mistakes.py::test_a_value_that_an_expression_cannot_take_is_told_with_its_line_and_the_record",
        ),
        spark=True,
    ),
    Mutant(
        "side-chosen-by-order",
        "a join's side may keep any of some duplicates, another one at a replay",
        "onlyonce/outputs/unrepeatable.py",
        Replace(
            "_of_operator",
            'Found(name.removeprefix("Global"), node.simpleString(25), own, decides=True)',
            'Found(name.removeprefix("Global"), node.simpleString(25), own, decides=own.kind is Kind.CHANCE)',
        ),
        tests=(UNREPEATABLE + "test_what_staging_cannot_keep_is_refused[a side that the order of rows chooses]",),
        spark=True,
    ),
    Mutant(
        "side-chosen-by-the-clock",
        "a join's side may be filtered by the clock, which has another time at a replay",
        "onlyonce/outputs/unrepeatable.py",
        Replace(
            "_deciding",
            "one.decides or chooses or one.listed.kind is Kind.CHANCE",
            "one.decides or one.listed.kind is Kind.CHANCE",
        ),
        tests=(
            UNREPEATABLE + "test_what_staging_cannot_keep_is_refused[a side that the clock chooses]",
            UNREPEATABLE + "test_what_decides_which_rows_there_are_is_found[a filter by any value of a group]",
        ),
        spark=True,
    ),
    Mutant(
        "clock-before-a-chain",
        "a function before a chained window may have the clock or an order of rows, and gives other rows each time",
        "onlyonce/check.py",
        Replace("_check_before", "found_in(made)", "[one for one in found_in(made) if one.listed.kind is Kind.CHANCE]"),
        tests=(
            UNREPEATABLE + "test_what_staging_cannot_keep_is_refused[the clock before a chain]",
            UNREPEATABLE + "test_what_staging_cannot_keep_is_refused[an order before a chain]",
            UNREPEATABLE + "test_what_staging_cannot_keep_is_refused[the clock at the beginning of a long chain]",
        ),
        spark=True,
    ),
    Mutant(
        "backfill-sessions-with-a-row",
        "a backfill takes a session for whole, of which the part that it has read has no row",
        "onlyonce/outputs/backfill_windows.py",
        Replace(
            "_wide_enough",
            "open_sessions.every_session(_sessions(context, root, rows))",
            "_sessions(context, root, rows)",
        ),
        tests=(BACKFILLED + "test_session_is_whole_though_its_function_leaves_out_small_ones",),
        spark=True,
    ),
    Mutant(
        "backfill-open-sessions-with-a-row",
        "a backfill holds a late record whose session is open and has no row yet: no session ever has the record",
        "onlyonce/outputs/backfill_windows.py",
        Replace("backfilled_sessions", "open_sessions.every_session(result)", "result"),
        tests=(BACKFILLED + "test_open_session_is_refused_though_its_function_leaves_it_out",),
        spark=True,
    ),
    Mutant(
        "open-sessions-cut",
        "a session that began before what is read of `events` is written as if it began there",
        "onlyonce/outputs/open_sessions.py",
        Always("open_rows", "start is None or start >= low + gap"),
        tests=("tests/spark/outputs/test_open_sessions.py::test_open_session_is_read_from_its_start[None]",),
        spark=True,
    ),
    Mutant(
        "open-sessions-by-rank",
        "a function that ranks records may have early panes of sessions, which read only the newest records",
        "onlyonce/outputs/open_sessions.py",
        Replace(
            "_makes_sessions",
            "any(map(_is_session, _each(plan.output()))) and _is_by_record(plan.child())",
            "any(map(_is_session, _each(plan.output())))",
        ),
        tests=(
            "tests/spark/outputs/test_open_sessions.py::test_function_must_have_a_row_for_each_session[of ranked records]",
        ),
        spark=True,
    ),
    Mutant(
        "open-sessions-filtered",
        "a function may leave out sessions of an early pane, so that nobody sees where they begin",
        "onlyonce/outputs/open_sessions.py",
        Replace("_has_row_for_each", '("Project", "SubqueryAlias")', '("Project", "SubqueryAlias", "Filter")'),
        tests=(
            "tests/spark/outputs/test_open_sessions.py::test_function_must_have_a_row_for_each_session[of few sessions]",
        ),
        spark=True,
    ),
    Mutant(
        "windows-without-rows-stay-open",
        "a window for which the function returns no row is open for ever, and each new incarnation reads from it on",
        "onlyonce/commitlog/backfills.py",
        Never("Panes.close_without_rows", "isinstance(root.window, Fixed | Sliding)"),
        tests=(WITHOUT_ROWS + "test_they_close_with_the_windows_around_them[False]",),
        spark=True,
    ),
    Mutant(
        "windows-closed-before-their-rows",
        "a window is noted as closed and empty in the batch before the one in which Spark returns its rows",
        "onlyonce/outputs/window_log.py",
        Replace("written", "versions.after if root.gives_as_it_comes or by_spark else versions.upto", "versions.upto"),
        tests=(WITHOUT_ROWS + "test_they_close_with_the_windows_around_them[False]",),
        spark=True,
    ),
    Mutant(
        "notes-of-spark-in-a-table",
        "a new table gets what Spark notes beside a column, and then refuses all rows",
        "onlyonce/outputs/results.py",
        Replace("steps_of", "_as_declared(schema)", "schema"),
        tests=(WITHOUT_ROWS + "test_they_close_with_the_windows_around_them[False]",),
        spark=True,
    ),
    Mutant(
        "open-sessions-stay-in-the-log",
        "the log keeps open sessions that have changed, and closes them",
        "onlyonce/commitlog/ends.py",
        Never("OutputEnds.end", "windows.all_open"),
        tests=("tests/spark/outputs/test_open_sessions.py::test_each_pane_replaces_all_open_sessions[10]",),
        spark=True,
    ),
    Mutant(
        "open-sessions-stay-in-files",
        "a session that has changed keeps its last file",
        "onlyonce/outputs/window_log.py",
        Replace(
            "_fired_sessions",
            "Fired(rows, there, met, held, now_closed, {}, OpenSpan(from_start, FIRST if closed is None else closed))",
            "Fired(rows, [], met, held, now_closed, {}, OpenSpan(from_start, FIRST if closed is None else closed))",
        ),
        tests=("tests/spark/outputs/test_open_sessions.py::test_each_pane_replaces_all_open_sessions[10]",),
        spark=True,
    ),
    Mutant(
        "open-sessions-stay-in-delta",
        "rows of open sessions stay in a Delta table next to those of the next pane",
        "onlyonce/sinks/delta/delta_upsert.py",
        Replace(
            "Replace._replaced",
            "return from_first & (F.col(WINDOW_END) > F.timestamp_micros(F.lit(self.span.closed)))",
            "return F.lit(False)",
        ),
        tests=("tests/spark/outputs/test_open_sessions.py::test_each_pane_replaces_all_open_sessions[10]",),
        spark=True,
    ),
    Mutant(
        "closed-session-goes-with-open-ones",
        "a file in which a session ends at the watermark is replaced whole, and the row of that session is lost",
        "onlyonce/sinks/delta/delta_upsert.py",
        Replace("Replace.files", "self.span.closed + 1", "self.span.closed"),
        tests=(
            "tests/unit/storage/test_table_files.py::test_file_with_a_window_that_has_just_closed_is_not_replaced_whole",
        ),
    ),
    Mutant(
        "open-sessions-stay-in-postgres",
        "rows of open sessions stay in a table of PostgreSQL next to those of the next pane",
        "onlyonce/sinks/postgres/sink_postgres.py",
        Replace("PostgresWriter.replace_open", '"replace open"', '"upsert"'),
        tests=("tests/spark/outputs/test_open_sessions.py::test_each_pane_replaces_all_open_sessions[10]",),
        spark=True,
    ),
    Mutant(
        "open-sessions-of-a-withdrawn-pane",
        "a new incarnation replaces only the open sessions that the log knows, and not those of a withdrawn batch",
        "onlyonce/outputs/window_log.py",
        Replace(
            "_fired_sessions", "FIRST if anew else LAST if first is None else first", "LAST if first is None else first"
        ),
        tests=("tests/spark/outputs/test_open_sessions.py::test_rows_of_a_withdrawn_pane_go",),
        spark=True,
    ),
    Mutant(
        "open-sessions-of-now",
        "a pane of sessions that a killed run has begun is written with the records of now",
        "onlyonce/outputs/open_sessions.py",
        Replace(
            "open_rows",
            "events.rows_as_of(context, upto)",
            'context.spark.read.format("delta").load(str(context.events))',
        ),
        tests=("tests/fault/test_session_pane_kills.py::test_killed_pane_of_sessions_does_not_show[written]",),
        spark=True,
    ),
    Mutant(
        "open-sessions-close-unseen",
        "a session with waiting records closes without its last pane",
        "onlyonce/core/triggers.py",
        Replace("decide_sessions", "may_close or is_due(trigger, together, now)", "is_due(trigger, together, now)"),
        tests=("tests/unit/model/test_triggers.py::test_pane_of_sessions_comes_when_due_and_before_a_session_closes",),
    ),
    Mutant(
        "open-sessions-removed",
        "records of open sessions are removed, which early panes read again",
        "onlyonce/commitlog/cuts.py",
        Never("KeepEvents._closed_before", "root.has_early_sessions"),
        tests=("tests/contract/operate/test_keep_events.py::test_records_of_open_sessions_stay",),
    ),
    Mutant(
        "begun-late-backfill-waits",
        "a backfill of late records that was killed is finished by nobody once they are to wait",
        "onlyonce/outputs/events.py",
        Replace(
            "late_windows_of_stream",
            "Backfills(database).begun_of_late(instance, root.name) if root.window else []",
            "[]",
        ),
        tests=(
            "tests/spark/outputs/test_triggers.py::test_a_begun_backfill_of_late_records_is_finished_also_if_they_are_to_wait_now",
        ),
        spark=True,
    ),
    Mutant(
        "resent-by-a-retry",
        "the retry of a backfill sends rows again that its run has sent",
        "onlyonce/outputs/backfill_windows.py",
        Always("_not_sent", "since is None"),
        tests=("tests/spark/outputs/test_backfill.py::test_retry_sends_nothing_again_and_a_cleared_run_does",),
        spark=True,
    ),
    Mutant(
        "merged-sessions-see-another-lookup",
        "a backfill merges sessions that saw different versions of a lookup, and computes them with one of these",
        "onlyonce/outputs/backfill_windows.py",
        Never("backfill", 'lookups == "then"'),
        tests=("tests/spark/outputs/test_lookups.py::test_merging_sessions_that_saw_other_lookups_are_refused",),
        spark=True,
    ),
    Mutant(
        "late-spans-of-before",
        "late windows that a backfill of the same run has included are recomputed and sent once more",
        "onlyonce/outputs/events.py",
        Always(
            "not_included", "not number or any(one.start < span.stop and span.start < one.stop for one in search())"
        ),
        tests=(
            "tests/contract/commitlog/test_backfills.py::test_late_windows_of_a_backfill_before_are_not_recomputed_again",
        ),
    ),
    Mutant(
        "late-records-after-the-span",
        "a recomputed session has late records that the log does not count as included",
        "onlyonce/outputs/backfill_windows.py",
        Replace(
            "backfilled_sessions",
            "[*_changed(context, root, rows), *_late(root, rows)]",
            "_changed(context, root, rows)",
        ),
        tests=(BACKFILLED + "test_span_holds_the_late_records_of_a_changed_session",),
        spark=True,
    ),
    Mutant(
        "skipped-windows-become-empty",
        "a backfill stores windows of an output that it skips as made again, without rows",
        "onlyonce/outputs/backfill_windows.py",
        Replace("_write_span", "continue", "panes[step.output.name] = backfills.MADE.empty_table()\ncontinue"),
        tests=("tests/spark/outputs/test_backfill.py::test_windows_of_a_skipped_output_stay_as_they_are",),
        spark=True,
    ),
    Mutant(
        "begun-late-backfill-replaced",
        "a killed backfill of late records is replaced by one of earlier windows, which may fail each time",
        "onlyonce/outputs/events.py",
        Replace("late_windows_of_stream", "one.start < span.stop and span.start < one.stop", "False"),
        tests=("tests/contract/commitlog/test_backfills.py::test_begun_late_backfill_comes_before_other_windows",),
    ),
    Mutant(
        "outputs-2-staged-by-another-function",
        "a changed function's batch is written with the rows that the old function has staged",
        "onlyonce/outputs/results.py",
        Replace(
            "staged",
            "context.folder / stored_names.STAGED_FOLDER / (output.made_beside or output.name) / name",
            "context.folder / stored_names.STAGED_FOLDER / output.name",
        ),
        tests=("tests/spark/outputs/test_staging.py::test_rows_are_staged_again_if_the_function_has_changed",),
        spark=True,
    ),
    Mutant(
        "outputs-14-maps-compared-by-spark",
        "sessions are compared by their columns, of which Spark compares no maps",
        "onlyonce/outputs/backfill_windows.py",
        Replace(
            "_comparable",
            'encoding.json_object(sessions.schema).alias("row")',
            'F.struct(*sessions.columns).alias("row")',
        ),
        tests=(
            "tests/spark/outputs/test_backfilled_sessions.py::test_a_session_of_maps_is_compared_with_itself_before",
        ),
        spark=True,
    ),
    Mutant(
        "outputs-14-patterns",
        "Spark takes the path of a file for a pattern",
        "onlyonce/engine/session.py",
        Replace("file_reader", 'session.read.option("__globPaths__", "false")', "session.read"),
        tests=("tests/spark/sources/test_data_files.py::test_a_path_is_no_pattern",),
        spark=True,
    ),
    Mutant(
        "outputs-15-rows-of-any-size",
        "rows that the driver writes are bounded by their number alone",
        "onlyonce/engine/driver_rows.py",
        Replace("measured", "size(rows.schema) <= BYTES // max(most, 1)", "F.lit(True)"),
        tests=("tests/spark/outputs/test_driver_rows.py::test_a_row_of_more_than_its_share_never_reaches_the_driver",),
        spark=True,
    ),
    Mutant(
        "outputs-15-files-of-any-size",
        "files of records that take any number of bytes in memory are read by the driver",
        "onlyonce/outputs/at_close.py",
        Never("_held", "not to_read.take(events.bytes_of(opened.metadata))"),
        Never("_held", "not to_hold.take(part.nbytes)"),
        tests=(
            "tests/spark/outputs/test_driver_rows.py::test_closing_records_are_read_if_their_bytes_fit[50]",
            "tests/spark/outputs/test_driver_rows.py::test_records_are_held_once_for_each_closing_window",
        ),
        spark=True,
    ),
    Mutant(
        "promises-8-all-windows-of-the-span",
        "--late-only recomputes windows without late records too",
        "onlyonce/outputs/backfill.py",
        Replace(
            "_include_late",
            "backfill.with_those_below(context, output, late, lookups=asked.lookups)",
            "backfill.with_those_below(context, output, span, lookups=asked.lookups)",
        ),
        tests=(
            "tests/spark/outputs/test_backfill.py::test_a_backfill_makes_stream_and_batch_equal_and_only_in_its_windows",
        ),
        spark=True,
    ),
    Mutant(
        "promises-8-the-form-asks-for-all",
        "the form of a backfill with late records only asks for all windows",
        "onlyonce/airflow/log.py",
        Replace("Asked.arguments", '["--late-only"] if self.late_only else []', "[]"),
        tests=("tests/dags/test_backfill.py::test_the_driver_takes_every_argument",),
    ),
    Mutant(
        "outputs-16-by-the-wall-clock",
        "the ends of a span are compared by the wall clock",
        "onlyonce/core/backfill.py",
        Replace("Span.of", "span.start >= span.stop", "start >= stop"),
        tests=("tests/unit/model/outputs/test_model_backfill.py::test_a_span_that_the_clock_skips_is_empty",),
    ),
    Mutant(
        "outputs-11-names-unchecked",
        "a declaration may have files whose names are too long for a file system",
        "onlyonce/api/outputs.py",
        Replace("Output.__post_init__", "self.sink.check_length(self.name)", "pass"),
        tests=("tests/unit/model/sinks/test_run_places.py::test_a_file_name_that_could_be_too_long_is_refused",),
    ),
    Mutant(
        "outputs-sent-is-replaced",
        "a backfill replaces what a webhook was sent",
        "onlyonce/api/sinks.py",
        Replace("Webhook", "is_external = True", "is_external = False"),
        tests=(
            "tests/unit/model/sinks/test_model_delivery.py::"
            "test_a_backfill_of_what_was_sent_is_refused_unless_it_is_declared",
        ),
    ),
    Mutant(
        "outputs-a-capability-of-no-kind",
        "a kind of sink answers a question that the platform does not ask",
        "onlyonce/api/sinks.py",
        Replace("FileSink", "writes_files = True", "writes_file = True"),
        tests=("tests/unit/declare/test_declared_sinks.py::test_only_a_kind_overrides_answers_that_exist",),
    ),
    Mutant(
        "outputs-replay-computes-twice",
        "a replay for people runs the function once to count its rows, and again to show them",
        "onlyonce/replay.py",
        Replace("_shown", "frame.limit(limit).persist()", "frame.limit(limit)"),
        tests=("tests/spark/check/test_replay.py::test_replay_runs_a_function_once_for_each_record",),
        spark=True,
    ),
    Mutant(
        "outputs-2-made-from-another-unstored",
        "an output that is made from another's rows has no stored rows, whatever its stable_input says",
        "onlyonce/outputs/results.py",
        Replace("rows_of_steps", "stable(step.output, mine) if step is not steps[0] else mine", "mine"),
        tests=(
            "tests/spark/outputs/test_determinism.py::test_stable_input_of_an_output_made_from_another_is_stored",
            "tests/spark/outputs/test_determinism.py::test_a_backfill_of_an_output_made_from_another_is_stored",
        ),
        spark=True,
    ),
    Mutant(
        "outputs-staged-by-sparks-flag",
        "the clock and aggregates that depend on the order of rows are not staged, since Spark does not flag them",
        "onlyonce/core/unrepeatable.py",
        Replace(
            "listed", "LISTED.get(name) or (None if deterministic else _UNKNOWN)", "None if deterministic else _UNKNOWN"
        ),
        tests=(
            "tests/unit/model/outputs/test_model_unrepeatable.py::test_sparks_flag_counts_only_for_what_the_list_lacks",
        ),
    ),
    Mutant(
        "outputs-staged-as-declared-now",
        "a batch that began staged is finished by what is declared now, and computes its rows again",
        "onlyonce/outputs/results.py",
        Replace(
            "is_staged", "output.name in batch.plan.facts.get(stored_names.STAGED, ())", "bool(output.stable_input)"
        ),
        tests=("tests/spark/outputs/test_determinism.py::test_a_batch_that_began_staged_ends_staged",),
        spark=True,
    ),
    Mutant(
        "outputs-16-before-the-year-1",
        "a span may begin before the first time that there is, and ends in an error of Python",
        "onlyonce/core/backfill.py",
        Never("Span.of", "not FIRST <= span.start <= span.stop <= LAST"),
        tests=("tests/unit/model/outputs/test_model_backfill.py::test_a_time_that_has_no_year_in_utc_is_refused",),
    ),
    Mutant(
        "outputs-16-days-of-utc",
        "a day without a zone is a day of UTC, whatever the zone of the windows",
        "onlyonce/core/backfill.py",
        Replace("_zone", "ZoneInfo(zones[0])", 'ZoneInfo("UTC")'),
        tests=(
            "tests/unit/model/outputs/test_model_backfill.py::test_a_day_without_a_zone_is_one_window_of_its_zone",
            "tests/dags/test_backfill.py::test_a_day_of_the_form_is_a_day_of_the_windows",
        ),
    ),
    Mutant(
        "reprocessed-over-others",
        "the lines of a reprocessing go over the object that has their name",
        "onlyonce/outputs/reprocess.py",
        Replace(
            "_named",
            "return stores.of(path).put_new(path, partial.read_bytes())",
            """
            stores.of(path).put(path, partial.read_bytes())
            return True
        """,
        ),
        tests=(
            "tests/storage/test_object_inbox_commands.py::test_an_object_of_another_that_has_the_name_of_a_reprocessing_stays",
        ),
    ),
    Mutant(
        "part-from-the-beginning",
        "a part of a first reading has the rows of the parts before it too",
        "onlyonce/outputs/events.py",
        Replace("first_rows", "events.rows_in_batches(upto, after)", "events.rows_in_batches(upto)"),
        tests=(
            "tests/spark/outputs/test_backlog.py::test_a_first_reading_of_what_is_compacted_is_cut_into_whole_commits_and_no_kill_shows",
        ),
        spark=True,
    ),
    Mutant(
        "counted-again",
        "a new incarnation counts again what an earlier one has counted, once it takes more than one batch to come there",
        "onlyonce/outputs/window_log.py",
        Replace("received", "max(versions.after, int(query.start_from.get(COUNTED_UPTO, -1)))", "versions.after"),
        tests=(
            "tests/contract/outputs/test_counted_again.py::test_what_was_counted_is_not_counted_again_however_many_batches_read_it_again[two batches]",
        ),
    ),
    Mutant(
        "pane-of-an-earlier-declaration",
        "a window of an earlier declaration that holds records back gets a pane without rows, which replaces its files",
        "onlyonce/outputs/window_log.py",
        Replace("_of_declaration", "first is None or window[0] >= first", "True"),
        tests=("tests/unit/outputs/test_counting.py::test_window_of_an_earlier_declaration_gets_no_pane",),
    ),
    Mutant(
        "late-is-counted-in-time",
        "the driver counts late records among those in time",
        "onlyonce/outputs/window_log.py",
        Replace(
            "_of_part",
            "[starts, ends, ~late, late, np.zeros_like(late), met, met]",
            "[starts, ends, late | ~late, late & ~late, np.zeros_like(late), met, met]",
        ),
        tests=("tests/unit/outputs/test_counting.py::test_windows_are_counted_as_the_model_judges_each_record",),
    ),
    Mutant(
        "exploded-in-the-driver",
        "a function that makes many rows of a record is for the driver",
        "onlyonce/outputs/stateless.py",
        Replace(
            "",
            """
            {
                "Project", "Filter", "Union", "EventTimeWatermark", "SubqueryAlias", "StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation",
                "LogicalRelation", "LogicalRDD", "ResolvedHint", "View",
            }
        """,
            """
            {
                "Project", "Filter", "Generate", "Union", "EventTimeWatermark", "SubqueryAlias", "StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation",
                "LogicalRelation", "LogicalRDD", "ResolvedHint", "View",
            }
        """,
        ),
        tests=(
            "tests/spark/outputs/test_in_driver.py::test_the_driver_takes_the_rows_of_functions_only_that_add_none",
        ),
        spark=True,
    ),
    Mutant(
        "few-without-their-hashes",
        "what the driver writes is claimed as nothing, so a replay by tasks finds other rows",
        "onlyonce/outputs/query.py",
        Delete("_content", "tally.add(part)"),
        tests=("tests/spark/outputs/test_in_driver.py::test_rows_units_and_windows_are_the_same_whoever_wrote_them",),
        spark=True,
    ),
    Mutant(
        "closing-from-its-end",
        "of the windows that close only the records since the last close are looked for",
        "onlyonce/outputs/at_close.py",
        Replace("_may_close", "before - longest(window)", "before"),
        tests=(
            "tests/spark/outputs/test_closing_files.py::test_a_batch_opens_the_files_that_may_have_rows_of_the_windows_that_it_closes",
        ),
        spark=True,
    ),
    Mutant(
        "closing-by-this-batch",
        "of the windows that close only the records that this batch has met are read",
        "onlyonce/outputs/at_close.py",
        Replace("_met_by", "min(versions.after, read_upto(met.source_from))", "versions.after"),
        tests=("tests/spark/outputs/test_at_close.py::test_rows_are_those_of_a_batch_over_the_records_in_time",),
        spark=True,
    ),
    Mutant(
        "late-at-close",
        "late records are given to the function of a window that is made at its close",
        "onlyonce/outputs/at_close.py",
        Replace("_of_file", "~late & (ends > before)", "ends > before"),
        tests=("tests/spark/outputs/test_at_close.py::test_rows_are_those_of_a_batch_over_the_records_in_time",),
        spark=True,
    ),
    Mutant(
        "asked-for-nothing",
        "a batch that closes no window writes what the function gives of no records",
        "onlyonce/outputs/events.py",
        Replace("closing_stream", "made if also or at_close.closes_any(root, ends) else made.limit(0)", "made"),
        tests=(
            "tests/spark/outputs/test_at_close.py::test_a_batch_reads_the_files_of_the_windows_that_it_closes_and_gives_no_row_where_it_closes_none",
        ),
        spark=True,
    ),
    Mutant(
        "few-of-many",
        "of a function that gives many rows the driver writes those that it asked for, and no others",
        "onlyonce/outputs/query.py",
        Never("written_in_driver", "bounded and rows.num_rows > MOST"),
        tests=("tests/spark/outputs/test_in_driver.py::test_many_rows_of_few_records_are_for_the_tasks",),
        spark=True,
    ),
    Mutant(
        "staged-not-read",
        "stable input is stored, but a replay writes what the function gives now",
        "onlyonce/outputs/results.py",
        Replace(
            "staged",
            'stored = frame.sparkSession.read.format("delta").load(str(path))',
            """
            stored = frame.sparkSession.read.format("delta").load(str(path))
            return frame
        """,
        ),
        tests=(SAMPLE,),
    ),
    Mutant(
        "joins-keep-state",
        "a join of the stream with a table is taken for one that keeps state",
        "onlyonce/outputs/stateless.py",
        Replace(
            "",
            """
            {
                "Project", "Filter", "Union", "Expand", "Generate", "EventTimeWatermark", "SubqueryAlias", "StreamingRelation",
                "StreamingRelationV2", "StreamingExecutionRelation", "Join", "MapInPandas", "PythonMapInArrow", "MapInArrow",
                "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "MapElements", "MapPartitions", "SerializeFromObject",
                "DeserializeToObject", "TypedFilter", "Repartition", "RepartitionByExpression", "RebalancePartitions", "ResolvedHint",
                "UnresolvedHint", "Sample", "View", "WithCTE", "CTERelationDef", "CTERelationRef", "LateralJoin", "CollectMetrics",
            }
        """,
            """
            {
                "Project", "Filter", "Union", "Expand", "Generate", "EventTimeWatermark", "SubqueryAlias", "StreamingRelation",
                "StreamingRelationV2", "StreamingExecutionRelation", "MapInPandas", "PythonMapInArrow", "MapInArrow",
                "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "MapElements", "MapPartitions", "SerializeFromObject",
                "DeserializeToObject", "TypedFilter", "Repartition", "RepartitionByExpression", "RebalancePartitions", "ResolvedHint",
                "UnresolvedHint", "Sample", "View", "WithCTE", "CTERelationDef", "CTERelationRef", "LateralJoin", "CollectMetrics",
            }
        """,
        ),
        tests=(
            "tests/spark/run/test_as_they_come.py::test_rows_written_as_they_come_are_all_there_through_a_new_incarnation",
        ),
        spark=True,
    ),
    Mutant(
        "replay-sees-the-newest",
        "a batch that is tried again is joined with the newest version of its lookups",
        "onlyonce/outputs/lookups.py",
        Replace("versions_of_next_batch", "row.lookups if row and row.declaration_hash == hash else {}", "{}"),
        tests=(
            "tests/spark/outputs/test_lookups.py::test_each_row_is_joined_with_the_version_that_its_batch_began_with[4-2]",
        ),
        spark=True,
    ),
    Mutant(
        "skipped-stateful-plan",
        "the plan of a batch that is written already is not run",
        "onlyonce/outputs/query.py",
        Delete("_batch", "results.hold(held, frame).count()"),
        tests=("tests/fault/test_replay.py::test_replay_of_a_written_batch_runs_its_plan_and_writes_nothing",),
        spark=True,
    ),
    Mutant(
        "watermark-by-data",
        "the data rows drive the watermark, not the control rows",
        "onlyonce/outputs/windows.py",
        Replace("in_stream", "controls.withWatermark(OO_EVENT_TIME, _span(delay))", "controls"),
        Replace(
            "in_stream",
            "assign(controls.unionByName(rows), window)",
            'assign(controls.unionByName(rows).withWatermark("oo_event_time", _span(delay)), window)',
        ),
        tests=("tests/spark/run/test_spine.py::test_stream_equals_batch_over_the_rows_in_time",),
        spark=True,
    ),
    Mutant(
        "join-behind-its-windows",
        "Spark's watermark of a join is where its windows are closed, not the reach behind it, so rows without a "
        "partner stay in the state",
        "onlyonce/outputs/windows.py",
        Replace("in_stream", "reach(window) + micros(delay)", "micros(delay)"),
        tests=(
            "tests/spark/outputs/test_joins.py::test_a_join_is_that_of_a_batch_however_the_input_is_cut_and_where_runs_end[1]",
        ),
        spark=True,
    ),
    Mutant(
        "null-is-a-key",
        "rows of two streams whose keys are null are joined with each other",
        "onlyonce/outputs/windows.py",
        Delete(
            "_near",
            'keys += [_of(side, key).isNotNull() for key in output.join.on for side in ("left", "right")]',
        ),
        tests=(
            "tests/spark/outputs/test_joins.py::test_a_join_is_that_of_a_batch_however_the_input_is_cut_and_where_runs_end[2]",
        ),
        spark=True,
    ),
    Mutant(
        "state-made-anew",
        "a processor begins with no state in each batch",
        "onlyonce/outputs/state.py",
        Always("applied_processor", "not rows.isStreaming"),
        tests=(
            "tests/spark/outputs/test_processors.py::test_timers_fire_by_the_frontier_and_the_end_of_the_input_fires_those_that_are_left",
        ),
        spark=True,
    ),
    Mutant(
        "timers-by-the-batch",
        "timers fire by the largest event time of a batch's own records",
        "onlyonce/outputs/windows.py",
        Replace("in_stream", "controls.withWatermark(OO_EVENT_TIME, _span(delay))", "controls"),
        Replace(
            "in_stream",
            "controls.unionByName(rows.filter(~is_late(window, delay)))",
            'controls.unionByName(rows.filter(~is_late(window, delay))).withWatermark("oo_event_time", "0 seconds")',
        ),
        tests=(
            "tests/spark/outputs/test_processors.py::test_timers_fire_by_the_frontier_and_the_end_of_the_input_fires_those_that_are_left",
        ),
        spark=True,
    ),
    Mutant(
        "records-in-any-order",
        "a processor gets the records of a key in the order in which tasks were ready",
        "onlyonce/outputs/state.py",
        Replace(
            "in_order",
            'records.sort_values([OO_EVENT_TIME, *RECORD_ID], kind="stable", ignore_index=True)',
            "records",
        ),
        tests=(
            "tests/unit/outputs/test_ordered_records.py::test_the_records_of_a_key_come_in_order_of_event_time_and_then_of_their_ids",
        ),
    ),
    Mutant(
        "timers-left-at-the-end",
        "a bounded run does not fire timers",
        "onlyonce/outputs/state.py",
        Delete("Alone.rows", "frames += tester.setWatermark(self._end(records))"),
        tests=(
            "tests/unit/outputs/test_ordered_records.py::test_a_key_alone_has_its_records_and_then_its_timers_up_to_the_bound",
        ),
    ),
    Mutant(
        "rows-of-earlier-incarnations-stay",
        "an incarnation from the start leaves the rows of earlier incarnations in the table",
        "onlyonce/outputs/query.py",
        Always("clear_target", "not (root.stateful and query.start_from.get(FROM_START)) or _has_begun(query)"),
        tests=(
            "tests/spark/outputs/test_processors.py::test_a_new_incarnation_computes_an_output_with_state_from_the_start_in_the_place_of_what_was_there[till-from-start-after-clear]",
        ),
        spark=True,
    ),
    Mutant(
        "own-rows-taken-out",
        "each start of an incarnation from the start takes its own rows out again",
        "onlyonce/commitlog/incarnations.py",
        Replace(
            "Incarnations.has_begun",
            "self.last_batches(driver.incarnation)[0] is not None",
            "False and bool(self.last_batches(driver.incarnation))",
        ),
        tests=(
            "tests/spark/outputs/test_processors.py::test_a_new_incarnation_computes_an_output_with_state_from_the_start_in_the_place_of_what_was_there[till-from-start-after-clear]",
        ),
        spark=True,
    ),
    Mutant(
        "watermark-inside-a-window",
        "Spark plans a batch without rows whenever an output has read on",
        "onlyonce/outputs/at_close.py",
        Replace("asks_watermark", "outputs_windows.last_closed", "outputs_windows.closed_until"),
        tests=(
            "tests/spark/outputs/test_watermark.py::test_a_batch_without_rows_is_planned_only_when_a_window_has_ended",
        ),
        spark=True,
    ),
    Mutant(
        "ends-for-all-state",
        "a function's own state waits for the end of a window",
        "onlyonce/outputs/at_close.py",
        Always("is_asked_at_ends", "not keeping or (len(keeping) == 1 and _groups_by(keeping[0], _window(rows)))"),
        tests=(
            "tests/spark/outputs/test_watermark.py::test_only_a_function_that_waits_for_ends_of_windows_has_a_watermark_that_moves_by_them",
        ),
        spark=True,
    ),
    Mutant(
        "cut-below-the-merge",
        "a condition on sessions is pushed below their merge, where each record has one of its own",
        "onlyonce/outputs/windows.py",
        Replace(
            "after_merge",
            "F.coalesce(F.when(F.spark_partition_id() >= 0, condition), F.lit(False))",
            "condition",
        ),
        tests=(
            "tests/spark/outputs/test_backfilled_sessions.py::test_a_session_that_reaches_out_of_the_span_is_whole",
        ),
        spark=True,
    ),
    Mutant(
        "any-row-in-any-result",
        "a result has the rows of the others too",
        "onlyonce/outputs/function.py",
        Replace("result_of", "rows.filter(F.col(RESULT) == name)", "rows"),
        tests=(
            "tests/spark/outputs/test_several_results.py::test_each_result_is_that_of_a_batch_however_the_input_is_cut_and_where_a_run_ends[1]",
        ),
        spark=True,
    ),
    Mutant(
        "a-sum-beside-records",
        "a result that keeps no state is mixed with one that does, so a new incarnation writes its rows again",
        "onlyonce/outputs/function.py",
        Never("united_results", "len(set(kinds.values())) > 1"),
        tests=(
            "tests/spark/outputs/test_several_results.py::test_results_that_cannot_be_written_are_refused_before_anything_is_read[a "
            "sum beside records]",
        ),
        spark=True,
    ),
    Mutant(
        "pane-of-its-batch",
        "a pane of an open window has what has come with its batch, and not all of the window",
        "onlyonce/outputs/at_close.py",
        Replace(
            "of",
            "events.rows_as_of(context, upto)",
            "events.rows_as_of(context, upto).filter(f\"{OO_KIND} = '{KEPT}'\")",
        ),
        Replace(
            "of",
            "events.rows_as_of(context, upto).filter(f\"{OO_KIND} = '{KEPT}'\")",
            "events.rows_as_of(context, upto).filter(f\"{OO_KIND} = '{KEPT}'\").filter(near)",
        ),
        Replace(
            "of",
            "events.rows_as_of(context, upto).filter(f\"{OO_KIND} = '{KEPT}'\").filter(near)",
            "events.rows_as_of(context, upto).filter(f\"{OO_KIND} = '{KEPT}'\").filter(near).filter(F.lit(False))",
        ),
        tests=(
            "tests/spark/outputs/test_triggers.py::test_panes_are_those_that_the_log_decides_and_the_last_is_that_of_a_batch[1]",
        ),
        spark=True,
    ),
    Mutant(
        "late-and-rejected",
        "a record that is late is rejected as well",
        "onlyonce/outputs/function.py",
        Replace("rejections_met", '~F.col("late") & F.col(REASON).isNotNull()', "F.col(REASON).isNotNull()"),
        tests=(REJECTED + "test_a_backfill_rejects_anew_with_late_records_and_an_erasure_forgets",),
        spark=True,
    ),
    Mutant(
        "rejected-and-used",
        "the function gets the records that are rejected too",
        "onlyonce/outputs/function.py",
        Replace(
            "accepted_rows",
            "rows.filter(rejection_reason(pipeline, output, rows).isNull()) if output.reject else rows",
            "rows",
        ),
        tests=(
            REJECTED + "test_each_record_is_rejected_or_used_once_however_the_input_is_cut_and_where_a_run_ends[1]",
        ),
        spark=True,
    ),
    Mutant(
        "left-out-and-further-on",
        "a record that an output leaves out as late is in the windows that are made from its own",
        "onlyonce/outputs/windows.py",
        Always("steps_leaving_out", "not window.leaves_late_out"),
        tests=(
            "tests/spark/outputs/test_chains.py::test_a_backfill_of_what_leaves_late_records_out_goes_down_the_chain_once_its_windows_have_closed",
        ),
        spark=True,
    ),
    Mutant(
        "panes-number-never-stored",
        "the end of a batch stores no number, so each pane of a window has the number of the first",
        "onlyonce/commitlog/ends.py",
        Never("OutputEnds.end", "windows.numbered is not None"),
        tests=(APPENDED + "test_each_pane_is_appended_with_its_number",),
        spark=True,
    ),
    Mutant(
        "panes-backfill-numbers-anew",
        "a backfill numbers the panes of its windows from the first",
        "onlyonce/outputs/backfill_windows.py",
        Replace("backfill", "pane_numbers.numbered(root, made.rows, last)", "made.rows"),
        tests=(APPENDED + "test_each_pane_is_appended_with_its_number",),
        spark=True,
    ),
    Mutant(
        "panes-emptied-in-silence",
        "a window loses all rows of its last pane, and a reader takes those of the pane before",
        "onlyonce/outputs/pane_numbers.py",
        Always("refuse_emptied", "not gone"),
        tests=(APPENDED + "test_pane_without_rows_is_refused",),
        spark=True,
    ),
    Mutant(
        "panes-column-of-the-function",
        "a column of the function is overwritten with the number of the pane",
        "onlyonce/outputs/results.py",
        Never(
            "_check_result",
            "output.pane_column and output.pane_column.lower() in map(str.lower, result.columns)",
        ),
        tests=(APPENDED + "test_column_of_a_pane_is_the_platforms",),
        spark=True,
    ),
    Mutant(
        "panes-rows-by-the-batch",
        "the driver takes all rows of a whole window, however many, if its batch has few records",
        "onlyonce/outputs/results.py",
        Replace(
            "steps_of",
            "output is root and not root.gets_whole_windows and stateless.adds_no_rows(result)",
            "output is root and stateless.adds_no_rows(result)",
        ),
        tests=(APPENDED + "test_driver_takes_no_more_rows_than_it_asks_for",),
        spark=True,
    ),
)
