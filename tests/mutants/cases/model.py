"""Mutants of `onlyonce/core` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    ALIASES,
    BATCHES,
    CONVERSIONS,
    DELIVER,
    ENVELOPES,
    FILES,
    IN_BATCHES,
    INTERLEAVINGS,
    LINE_VALUES,
    PARCELS,
    RECEIVE,
    TABLES,
    TARGETS,
    TURNS,
    UNITS,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Always, Delete, Never, Replace

TYPES = "tests/unit/declare/test_declaration_types.py::"

MUTANTS = (
    Mutant(
        "option-of-any-type",
        "a declaration takes a value of another type, and fails later with an error of Python's",
        "onlyonce/api/declaration.py",
        Delete(
            "declaration.checked", "_refuse_other_classes(self, option, options[option], several=option in several)"
        ),
        tests=(TYPES + "test_value_of_another_type_is_refused_by_its_option",),
    ),
    Mutant(
        "lambda-by-its-module",
        "a function that Spark's processes can't import is declared by a name that they don't find",
        "onlyonce/api/declaration.py",
        Never("import_path", '"<lambda>" in name'),
        tests=(TYPES + "test_function_that_spark_can_not_import_is_refused",),
    ),
    Mutant(
        "missing-comma-as-a-type",
        "two columns that Python has joined are taken for an unknown type",
        "onlyonce/api/ddl.py",
        Delete("_check", "_refuse_joined(column, found)"),
        tests=("tests/unit/declare/test_declare.py::test_what_cannot_work_is_refused_with_the_way_out",),
    ),
    Mutant(
        "empty-variable-as-not-set",
        "an environment variable that came out empty is said not to be set",
        "onlyonce/environment.py",
        Never("why_missing", "name in os.environ"),
        tests=("tests/unit/check/test_check.py::test_check_warns_of_what_a_delivery_would_lack",),
    ),
    Mutant(
        "result-at-the-function",
        "an error of a function's result names where the function begins, not the line that makes the result",
        "onlyonce/core/errors.py",
        Never("origin_of_result", "len(returned) == 1"),
        tests=("tests/unit/model/test_model_errors.py::test_line_of_a_result_is_that_of_the_last_call_of_the_return",),
    ),
    Mutant(
        "error-at-the-declaration",
        "an error names the line on which a long declaration begins, and not that of its option",
        "onlyonce/core/errors.py",
        Never("origin_in_file", 'at := getattr(error, "at", None)'),
        tests=("tests/unit/declare/test_model_declarations.py::test_error_names_the_line_of_the_option",),
    ),
    Mutant(
        "finished-by-a-later-frontier",
        "a half-written batch is finished with the windows that its own rows close, which Spark closes a batch later",
        "onlyonce/core/batch.py",
        Replace("closes_between", "read_upto(plan.source_from)", "read_upto(plan.source_to)"),
        tests=("tests/unit/model/test_model_batch.py::test_a_stream_closes_by_what_batches_before_have_read",),
    ),
    Mutant(
        "stored-column-renamed",
        "a rename by script gives a column of `events` another name, so that stored rows can't be read",
        "onlyonce/core/stored_names.py",
        Replace("", 'OO_KIND = "oo_kind"', 'OO_KIND = "oo_fate"'),
        tests=("tests/unit/model/test_stored_names.py::test_names_equal_their_literals",),
    ),
    Mutant(
        "session-of-another-form",
        "the sessions of a driver are named so that the statement for older drivers' sessions finds none",
        "onlyonce/core/stored_names.py",
        Replace("driver_session", 'f"{SESSION}/{incarnation_no}/{epoch}"', 'f"{SESSION}/{incarnation_no}-{epoch}"'),
        tests=("tests/unit/model/test_stored_names.py::test_names_equal_their_literals",),
    ),
    Mutant(
        "format-1-one-name-on-two-platforms",
        "what a sink stores under an incarnation's name does not say on which platform",
        "onlyonce/core/stored_names.py",
        Replace("writer", 'f"{platform}/{incarnation}"', "incarnation"),
        tests=(TARGETS + "test_two_platforms_share_no_transaction_id",),
    ),
    Mutant(
        "naive-ids",
        "a unit's id is (batch, sink, partition), without its incarnation",
        "onlyonce/core/stored_names.py",
        Replace(
            "unit",
            'f"{incarnation}/{batch_id}/{sink}/{partition}"',
            'f"{batch_id}/{sink}/{partition}"',
        ),
        tests=(
            UNITS + "test_the_unique_id_reads_as_incarnation_batch_sink_partition",
            RECEIVE + "test_an_earlier_incarnation_is_seen_whatever_its_batch_ids",
        ),
    ),
    Mutant(
        "content-not-compared",
        "a unit that is in the log passes, whatever the replay holds",
        "onlyonce/core/units.py",
        Always("compare", "there.same_as(meant)"),
        tests=(
            INTERLEAVINGS + "test_a_twin_with_other_content_is_stopped_and_writes_nothing",
            RECEIVE + "test_a_replay_of_other_records_stops",
        ),
    ),
    Mutant(
        "floats-exact",
        "sums of floats are compared exactly, which stops a healthy job",
        "onlyonce/core/units.py",
        Replace("FloatSum.same_as", "FLOAT_TOLERANCE * size", "0.0"),
        tests=(UNITS + "test_a_ledger_that_is_added_up_in_another_way_is_the_same",),
    ),
    Mutant(
        "outputs-1-relative-to-the-sum",
        "sums of floats are compared relative to themselves, so that the rounding of a ledger's stops a replay",
        "onlyonce/core/units.py",
        Replace("FloatSum.same_as", "max(self.size, other.size)", "max(abs(self.total), abs(other.total))"),
        tests=(UNITS + "test_a_ledger_that_is_added_up_in_another_way_is_the_same",),
    ),
    Mutant(
        "wall-clock",
        "the catalog is collected by the clock",
        "onlyonce/core/gc.py",
        Replace(
            "floor",
            "_behind(sorted(arrived, reverse=True), horizon)",
            'int(__import__("time").time()) // 600 - horizon',
        ),
        tests=(
            "tests/contract/operate/test_collect.py::test_an_outage_longer_than_the_horizon_lets_no_duplicate_through",
            "tests/unit/model/operate/test_model_collecting.py::test_an_outage_of_any_length_lets_the_last_buckets_be",
        ),
    ),
    Mutant(
        "offsets-unchecked",
        "a replay may read other offsets than the log has",
        "onlyonce/core/batch.py",
        Always("check_replay", "there.offsets_hash == meant.offsets_hash"),
        tests=(BATCHES + "test_a_replay_of_other_offsets_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "declaration-ignored",
        "a begun batch goes on under a changed declaration",
        "onlyonce/core/batch.py",
        Always("check_declaration", "there.declaration_hash == meant.declaration_hash"),
        tests=(BATCHES + "test_a_changed_declaration_is_refused_once_a_unit_has_committed",),
    ),
    Mutant(
        "any-size-with-any",
        "in a bucket that grows chunks of all sizes are merged together, the large one again and again",
        "onlyonce/core/gc.py",
        Replace(
            "_groups",
            """
            if closed:
                yield others, 2
            else:
                by_level = sorted(others, key=lambda part: level(part.ids))  # a stable sort: the order of the batches stays
                yield from ((list(some), CROWD) for _, some in groupby(by_level, lambda part: level(part.ids)))
        """,
            """
            if True:
                yield others, 2
            else:
                by_level = sorted(others, key=lambda part: level(part.ids))  # a stable sort: the order of the batches stays
                yield from ((list(some), CROWD) for _, some in groupby(by_level, lambda part: level(part.ids)))
        """,
        ),
        tests=(
            "tests/unit/model/operate/test_model_collecting.py::test_a_bucket_that_grows_has_few_chunks_for_its_ids_and_writes_each_id_once_for_each_level",
        ),
    ),
    Mutant(
        "large-ones-written-again",
        "two large chunks are merged, which costs more than their filters",
        "onlyonce/core/gc.py",
        Replace("_groups", "CROWD if closed else MANY", "2"),
        tests=(
            "tests/unit/model/operate/test_model_collecting.py::test_a_large_chunk_is_written_again_only_where_there_are_many",
        ),
    ),
    Mutant(
        "compacts-the-unread",
        "commits are compacted that a query has not read",
        "onlyonce/core/retention.py",
        Replace(
            "whole_buckets_from",
            """
            for reader in readers:
                limit = until(replace(reader, starts_from=0) if reader.starts_from - 1 <= compacted else reader)
                if limit is not None and limit < found:
                    found, by = limit, reader.query
        """,
            """
            for reader in ():
                limit = until(replace(reader, starts_from=0) if reader.starts_from - 1 <= compacted else reader)
                if limit is not None and limit < found:
                    found, by = limit, reader.query
        """,
        ),
        tests=("tests/contract/operate/test_compaction.py::test_a_query_that_stands_still_holds_what_it_has_not_read",),
    ),
    Mutant(
        "removes-what-is-asked-for",
        "old records go though a query, a backfill or the dedup horizon may ask for them",
        "onlyonce/core/retention.py",
        Replace("furthest", "min", "max"),
        tests=("tests/contract/operate/test_keep_events.py::test_what_may_ask_for_a_record_holds_it_and_is_named",),
    ),
    Mutant(
        "open-windows-lose-days",
        "old records of windows that are not closed go",
        "onlyonce/core/retention.py",
        Replace(
            "decide",
            "((_day(hold.before), hold.by) for hold in holds if hold.before is not None)",
            "((_day(hold.before), hold.by) for hold in ())",
        ),
        tests=(
            "tests/contract/operate/test_keep_events.py::test_windows_that_are_open_and_late_records_to_fold_in_keep_their_day",
        ),
    ),
    Mutant(
        "begins-where-nothing-is",
        "a new output begins though records that it would read are removed",
        "onlyonce/core/retention.py",
        Replace(
            "refuse_start",
            'kept_from is None or query == "receive" or begins.get(stored_names.START_VERSION, 0) > 0 or accepted >= kept_from',
            'query or kept_from is None or query == "receive" or begins.get(stored_names.START_VERSION, 0) > 0 or accepted >= kept_from',
        ),
        tests=(
            "tests/contract/operate/test_keep_events.py::test_what_is_gone_is_refused_with_the_first_moment_that_there_is",
        ),
    ),
    Mutant(
        "windows-of-tomorrow-wait",
        "a backfill of windows that begin after now ends with the code of one that is to be run again",
        "onlyonce/core/backfill.py",
        Always("ahead_of_now", "span.start <= now"),
        tests=(
            "tests/unit/model/outputs/test_model_backfill.py::test_windows_that_begin_after_now_are_refused_for_good",
        ),
    ),
    Mutant(
        "function-without-its-name",
        "a function that fails on rows of `events` is not named, and the next command is not either",
        "onlyonce/core/failures.py",
        Always("fails_in", "UNNAMED not in error.what"),
        tests=(
            "tests/unit/check/test_check.py::test_an_error_of_rows_names_the_function_and_the_command_that_continues",
        ),
    ),
    Mutant(
        "half-a-commit",
        "what waits is cut within a commit of receive",
        "onlyonce/core/backfill.py",
        Replace("first_files", "return files", "return files + 1"),
        tests=(
            "tests/unit/model/outputs/test_cutting.py::test_a_batch_takes_whole_commits_as_many_as_fit_and_one_at_least",
        ),
    ),
    Mutant(
        "free-lock-of-an-older-driver",
        "a driver that has no lock counts as dead, since nobody holds its lock",
        "onlyonce/core/runs.py",
        Replace("standing_by", "lock_is_free and now.uses_lock", "lock_is_free"),
        tests=(
            "tests/unit/model/run/test_model_long_run.py::test_a_driver_that_stands_by_takes_the_place_of_one_that_nobody_stopped",
        ),
    ),
    Mutant(
        "standby-leaves-with-a-machine",
        "a standby driver ends when the running driver's machine shuts down, as if a person had asked for a stop",
        "onlyonce/core/runs.py",
        Replace(
            "standing_by", "now.stop_asked and (lock_is_free or not now.alive) and not asked_before", "now.stopped"
        ),
        tests=(
            "tests/unit/model/run/test_model_long_run.py::test_a_driver_that_stands_by_takes_the_place_of_one_that_nobody_stopped",
        ),
    ),
    Mutant(
        "conservation-unchecked",
        "a receive batch ends whatever its counts",
        "onlyonce/core/batch.py",
        Always("check_receive", "outcome.read == sum(part or 0 for part in parts)"),
        tests=(BATCHES + "test_receive_does_not_end_without_its_units_or_its_records",),
    ),
    Mutant(
        "committed-again",
        "a batch that the log has as committed is written again",
        "onlyonce/core/batch.py",
        Never("Batch.committed", 'self.state == "committed"'),
        tests=(
            BATCHES + "test_a_changed_declaration_does_not_matter_to_a_batch_that_has_ended",
            BATCHES + "test_a_batch_that_has_ended_stays_as_it_ended",
        ),
    ),
    Mutant(
        "sweep-of-the-living",
        "the sweep takes what a running task still writes",
        "onlyonce/core/shards.py",
        Always("may_go", "standing.settled or temporary.epoch < standing.epoch"),
        tests=(FILES + "test_the_sweep_removes_what_nobody_can_want_and_nothing_else",),
    ),
    Mutant(
        "key-of-the-attempt",
        "each attempt at a row has an Idempotency-Key of its own",
        "onlyonce/core/delivery.py",
        Replace(
            "Row.idempotency_key",
            "stored_names.idempotency_key(self.unit, self.seq, self.checkpoint_id)",
            'f"{stored_names.idempotency_key(self.unit, self.seq, self.checkpoint_id)}/{self.attempts}"',
        ),
        tests=(DELIVER + "test_a_misbehaving_endpoint_that_honours_the_key_has_each_row_once",),
    ),
    Mutant(
        "neighbours-condemned",
        "what an endpoint refuses is refused for all rows of the request",
        "onlyonce/core/delivery.py",
        Never("of_each", 'answer.verdict == "no" and rows > 1'),
        tests=(
            IN_BATCHES + "test_a_row_that_is_refused_takes_no_other_with_it",
            PARCELS + "test_a_row_is_refused_alone_and_the_others_are_delivered",
        ),
    ),
    Mutant(
        "neighbours-broken",
        "a row at which an endpoint breaks shares its last attempt with others",
        "onlyonce/core/delivery.py",
        Never("Waiting._share", "row.unanswered and row.attempts + 1 >= self.attempts"),
        tests=(IN_BATCHES + "test_a_row_at_which_the_endpoint_breaks_takes_no_other_with_it",),
    ),
    Mutant(
        "key-in-two-requests",
        "what does not fit into a request goes into the next one beside it",
        "onlyonce/core/delivery.py",
        Replace(
            "Waiting.take",
            "list(self._queues)",
            "[key for key, queue in self._queues.items() for _ in range(-(-len(queue) // self.room.rows))]",
        ),
        tests=(PARCELS + "test_each_row_is_in_one_request_and_no_two_at_once_have_its_key",),
    ),
    Mutant(
        "any-function-is-written",
        "a DAG file does not say that a declaration names a function which is not there",
        "onlyonce/api/resolve.py",
        Replace("check_written", "name not in written", "not written"),
        tests=(
            "tests/unit/declare/test_model_declarations.py::test_whether_a_function_is_written_is_told_without_importing_its_module",
        ),
    ),
    Mutant(
        "any-record-is-to-blame",
        "a record is refused that does not fail by itself",
        "onlyonce/core/bisect.py",
        Replace("fails_alone", "count and goes_on() and fails(first, stop)", "count"),
        tests=(
            "tests/unit/model/test_model_halves.py::test_the_first_record_that_fails_by_itself_is_found_and_else_none",
        ),
    ),
    Mutant(
        "state-in-no-fingerprint",
        "another schema of a processor's state is no change",
        "onlyonce/api/identity.py",
        Replace("output_parts", "state or None", "None"),
        tests=(
            "tests/unit/declare/test_declared_state.py::test_another_code_over_the_same_state_goes_on_and_a_changed_state_does_not",
        ),
    ),
    Mutant(
        "identity-by-class-name",
        "a trigger, window or source is stored under the name of its class",
        "onlyonce/api/identity.py",
        Replace("_of", "of(value)", '{**of(value), "kind": type(value).__name__}'),
        tests=(
            "tests/contract/operate/test_identity.py::test_a_begun_batch_goes_on_after_every_class_was_renamed",
            "tests/unit/declare/test_identity.py::test_the_stored_parts_and_their_hash_stay",
        ),
    ),
    Mutant(
        "identity-without-events",
        "the hash of an output's declaration lacks the schema and the event time",
        "onlyonce/api/identity.py",
        Replace("output_parts", '{"columns": _columns(pipeline), "event_time": pipeline.event_time}', "{}"),
        tests=(
            "tests/unit/declare/test_identity.py::test_the_order_of_columns_and_the_schema_are_part_of_every_query",
        ),
    ),
    Mutant(
        "joins-close-too-early",
        "a window of a join is closed at its end, though records in time may still join its rows",
        "onlyonce/core/frontier.py",
        Replace(
            "closed_until",
            "frontier.max_event_time - watermark_delay - behind",
            "frontier.max_event_time - watermark_delay",
        ),
        tests=("tests/transcripts/test_transcripts.py::test_the_model_tells_the_same_story[joins]",),
    ),
    Mutant(
        "neighbours-left-late",
        "a backfill of a join counts late records of its neighbours as included, whose own neighbours it leaves "
        "as they are",
        "onlyonce/core/backfill.py",
        Replace("with_neighbours", "known = [start for start, _ in late]", "known: list[Micros] = []"),
        tests=(
            "tests/unit/declare/test_declared_joins.py::test_a_span_is_computed_again_with_its_neighbours_and_with_theirs_where_late_records_wait",
        ),
    ),
    Mutant(
        "two-spellings-two-targets",
        "a target is known by what stands in the declaration, not by where it is",
        "onlyonce/api/target_identity.py",
        Replace(
            "identity",
            """
            place = place.of_run(suffix)
        """,
            """
            place = place.of_run(suffix)
            if place.text:
                return place.text
        """,
        ),
        tests=(TARGETS + "test_a_target_of_another_pipeline_is_refused_at_run_with_its_owner",),
    ),
    Mutant(
        "pane-forgets-what-waits",
        "a trigger counts the records of one batch alone",
        "onlyonce/core/triggers.py",
        Replace("decide_panes", "known.records + met.get(window, 0)", "met.get(window, 0)"),
        tests=(
            "tests/unit/model/test_triggers.py::test_a_pane_comes_with_the_batch_that_makes_it_due_and_none_of_a_closed_window",
        ),
    ),
    Mutant(
        "pane-after-both",
        "of two triggers joined by | both must be due",
        "onlyonce/core/triggers.py",
        Replace("is_due", "by_records or by_time", "by_records and by_time"),
        tests=(
            "tests/unit/model/test_triggers.py::test_a_pane_comes_with_the_batch_that_makes_it_due_and_none_of_a_closed_window",
        ),
    ),
    Mutant(
        "reject-unsaid",
        "a changed function for rejections is no change of the declaration",
        "onlyonce/api/identity.py",
        Replace("output_parts", r'f"{root.reject}\n{rejects}" if root.reject else None', "None"),
        tests=(
            "tests/unit/declare/test_declared_rejects.py::test_a_pipeline_that_rejects_nothing_is_as_it_was_and_one_that_does_is_another",
        ),
    ),
    Mutant(
        "silent-bound-moves-back",
        "a watermark marker by silence forgets how far a source was that is retired by now",
        "onlyonce/core/frontier.py",
        Replace(
            "Frontier.fallen_silent", "_later(self.silent_max_event_time, self.max_event_time)", "self.max_event_time"
        ),
        tests=(
            "tests/unit/model/test_model_frontier.py::test_a_close_after_a_source_is_retired_moves_no_bound_back[silent]",
        ),
    ),
    Mutant(
        "furthest-source",
        "a pipeline of several sources is as far as the furthest of them",
        "onlyonce/core/frontier.py",
        Replace("Progress.least", "min", "max"),
        tests=(
            TURNS + "test_the_log_is_as_far_as_the_least_source_and_a_replay_sees_what_its_batch_saw",
            "tests/unit/model/sources/test_source_progress.py::test_a_pipeline_is_as_far_as_the_least_source_that_is_not_idle",
        ),
    ),
    Mutant(
        "compaction-is-news",
        "of a Delta table that is a source, rows that a compaction has moved are read again",
        "onlyonce/core/table_versions.py",
        Always("_changing", 'action[kind].get("dataChange", True)'),
        tests=(
            "tests/spark/sources/test_table_manifest.py::test_each_row_is_registered_once_however_versions_come_and_looks_are_cut[1]",
        ),
        spark=True,
    ),
    Mutant(
        "file-without-its-version",
        "a row of a table is known by its file alone, which RESTORE brings back",
        "onlyonce/core/table_versions.py",
        Replace(
            "DataFile.identity",
            "f\"{self.version}/{'-/' if self.change == DELETE else ''}{self.path}\"",
            "f\"{'-/' if self.change == DELETE else ''}{self.path}\"",
        ),
        tests=(TABLES + "log.py::test_a_file_that_comes_back_is_of_another_version",),
    ),
    Mutant(
        "rewritten-in-silence",
        "a version that rewrites rows is read as if it appended them",
        "onlyonce/core/table_versions.py",
        Replace("appended", "removes and (adds or not ignore_deletes)", "removes and not adds and not ignore_deletes"),
        tests=(
            TABLES
            + "log.py::test_a_version_that_deletes_or_rewrites_is_refused_and_what_came_before_is_read[_update-False-version "
            "2 rewrites rows]",
        ),
    ),
    Mutant(
        "changes-without-deletes",
        "files that a version removes are no deletes of the feed",
        "onlyonce/core/table_versions.py",
        Replace(
            "changed",
            "[*(_file(version, one, DELETE) for one in removes), *(_file(version, one) for one in adds)]",
            "[*(_file(version, one) for one in adds)]",
        ),
        tests=(TABLES + "changes.py::test_changes_are_those_of_the_feed_as_another_reader_has_it",),
    ),
    Mutant(
        "hours-by-receive",
        "windows of a chain close by the frontier of receive, and not by that of the closed windows before them",
        "onlyonce/core/windows.py",
        Replace(
            "Chained.waits",
            "return micros(self.waits_before) + (self.upstream.waits if isinstance(self.upstream, Fixed) else 0)",
            "return 0 * (self.upstream.waits if isinstance(self.upstream, Fixed) else 0)",
        ),
        tests=(
            "tests/transcripts/test_transcripts.py::test_the_model_tells_the_same_story[chains]",
            "tests/unit/declare/test_declared_chains.py::test_the_windows_of_a_chain_know_those_before_them",
        ),
    ),
    Mutant(
        "minutes-by-their-end",
        "a closed window counts by its end, which is in the next window",
        "onlyonce/core/windows.py",
        Replace("Chained._of", "end - 1", "end"),
        tests=("tests/transcripts/test_transcripts.py::test_the_model_tells_the_same_story[chains]",),
    ),
    Mutant(
        "values-1-first-object-only",
        "what follows the first object of a line is forgotten",
        "onlyonce/core/line_values.py",
        Replace("decoded", "DECODER.decode(line)", "DECODER.raw_decode(line.lstrip(SPACE))[0]"),
        tests=(LINE_VALUES + "test_more_than_one_object_is_invalid",),
    ),
    Mutant(
        "values-21-nul-without-its-column",
        "a NUL character in CSV does not name its column",
        "onlyonce/core/line_values.py",
        Delete("csv_reader.read", "_check_nul(cells, columns)"),
        tests=(LINE_VALUES + "test_nul_names_its_column",),
    ),
    Mutant(
        "values-21-content-of-the-file",
        "a byte of a compressed file's content passes for a byte of the file",
        "onlyonce/core/records.py",
        Replace("RecordPlaces.of", "file in self.compressed", "False"),
        tests=("tests/unit/model/sources/test_record_places.py",),
    ),
    Mutant(
        "values-2-numbers-by-a-float",
        "a number for a string column is what a double has of it",
        "onlyonce/core/conversions.py",
        Replace("string", "text(value)", "str(float(value)) if isinstance(value, Number) else text(value)"),
        tests=(CONVERSIONS + "test_an_edge_has_the_value_of_the_table",),
    ),
    Mutant(
        "values-6-structs-are-not-looked-into",
        "unknown fields within a struct are not counted",
        "onlyonce/core/conversions.py",
        Delete("structure", "unknown.extend(name for name in value if name not in fields)"),
        tests=(CONVERSIONS + "test_unknown_fields_of_a_struct_are_counted",),
    ),
    Mutant(
        "values-7-digits-are-seconds",
        "a string of digits is a time in seconds since 1970",
        "onlyonce/core/conversions.py",
        Replace("instant", "isinstance(value, Number)", "isinstance(value, Number) or NUMBER.fullmatch(str(value))"),
        tests=(CONVERSIONS + "test_an_edge_has_the_value_of_the_table",),
    ),
    Mutant(
        "values-7-seconds-cut-towards-1970",
        "what is finer than a microsecond is cut towards 1970, and not towards the past",
        "onlyonce/core/conversions.py",
        Replace("_of_seconds", "ROUND_FLOOR", '"ROUND_DOWN"'),
        tests=(CONVERSIONS + "test_an_edge_has_the_value_of_the_table",),
    ),
    Mutant(
        "values-10-mistake-of-the-table",
        "the table itself accepts integers that a float does not have, so that our readers agree on them",
        "onlyonce/core/conversions.py",
        Never("floating", "WHOLE.fullmatch(value) and (len(value) > MOST_DIGITS or abs(int(value)) > bound)"),
        tests=("tests/fuzz/test_fuzz.py::test_hostile_lines_are_read_as_the_page_says",),
    ),
    Mutant(
        "values-10-padding-behind-padding",
        "Base64 with more padding than it needs is bytes",
        "onlyonce/core/conversions.py",
        Replace("octets", "BASE64.fullmatch(value)", "value.isascii()"),
        tests=(CONVERSIONS + "test_an_edge_has_the_value_of_the_table",),
    ),
    Mutant(
        "values-10-decimals-rounded",
        "a number with too many digits behind the point is rounded",
        "onlyonce/core/conversions.py",
        Replace("decimal", "[InvalidOperation, Inexact]", "[InvalidOperation]"),
        tests=(CONVERSIONS + "test_an_edge_has_the_value_of_the_table",),
    ),
    Mutant(
        "values-10-any-integer",
        "an integer that a float does not have becomes another one",
        "onlyonce/core/conversions.py",
        Never("floating", "abs(int(value)) > bound"),
        tests=(CONVERSIONS + "test_an_edge_has_the_value_of_the_table",),
    ),
    Mutant(
        "values-15-any-name",
        "a column can be declared by a name that no Delta table holds",
        "onlyonce/api/columns.py",
        Never("_check_name", "found := NOT_IN_A_NAME.search(name)"),
        tests=(ALIASES + "test_name_that_no_delta_table_holds_is_refused",),
    ),
    Mutant(
        "values-15-erased-by-the-columns-name",
        "an erasure looks in a line for the column's own name and not for that in the source",
        "onlyonce/operate/erase_inputs.py",
        Replace("source_conditions", "source.aliases", "{}"),
        tests=(ALIASES + "test_erasure_finds_a_line_by_the_name_in_the_source",),
    ),
    Mutant(
        "values-16-names-of-letters-only",
        "a first line of CSV with a space in a name is a record",
        "onlyonce/scaffold/sample.py",
        Replace("_is_header", "True in says", "says"),
        tests=("tests/unit/scaffold/test_init.py::test_a_sample_is_declared_as_it_is",),
    ),
    Mutant(
        "delimiter-within-values",
        "in a value of CSV with semicolons, commas and semicolons are swapped",
        "onlyonce/core/line_values.py",
        Replace("_cells", "cell and Cell(cell.translate(swap))", "cell"),
        tests=("tests/unit/sources/test_record_ends.py::test_records_and_values_by_each_delimiter",),
    ),
    Mutant(
        "records-end-by-commas",
        "the ends of records of CSV are found by commas, whatever the delimiter",
        "onlyonce/sources/file_bytes.py",
        Never("CsvRecords.add", "self._delimiter != ','"),
        tests=("tests/unit/sources/test_record_ends.py::test_records_and_values_by_each_delimiter",),
    ),
    Mutant(
        "erasure-by-commas",
        "an erasure reads lines of CSV by commas, whatever the delimiter",
        "onlyonce/core/erasure.py",
        Replace(
            "Condition.fits_line",
            "line_values.csv_cells(line, self.delimiter, self.null)",
            "line_values.csv_cells(line, ',', self.null)",
        ),
        tests=("tests/unit/operate/test_blanked_records.py::test_values_of_a_record_over_several_lines_are_found",),
    ),
    Mutant(
        "erasure-without-nulls",
        "an erasure takes a word for null in CSV for a value",
        "onlyonce/core/erasure.py",
        Replace(
            "Condition.fits_line",
            "line_values.csv_cells(line, self.delimiter, self.null)",
            "line_values.csv_cells(line, self.delimiter)",
        ),
        tests=("tests/unit/operate/test_blanked_records.py::test_word_for_null_is_no_value",),
    ),
    Mutant(
        "quoted-word-is-null",
        "a string in double quotes is null if it is a word for null",
        "onlyonce/core/line_values.py",
        Replace("_given", "cell is None or column.kind in ('string', 'binary')", "cell is None"),
        tests=("tests/unit/model/values/test_line_values.py::test_word_for_null_is_null",),
    ),
    Mutant(
        "padded-word-is-a-number",
        "a number that is a word for null is null only without spaces around it",
        "onlyonce/sources/values/arrow_lines.py",
        Replace("_null_cells", "pc.utf8_trim(column, ' ')", "column"),
        tests=("tests/unit/sources/test_arrow_lines.py::test_words_for_null_are_what_the_table_says",),
    ),
    Mutant(
        "java-is-never-missing",
        "a JVM that can't start, since there is no Java, is started again",
        "onlyonce/engine/failures.py",
        Replace("start_failure", "on_path is None", "False"),
        tests=("tests/unit/cli/test_watched.py::test_a_jvm_that_can_never_start_is_refused_with_its_cause",),
    ),
    Mutant(
        "option-of-a-window-unexplained",
        "an option that a window does not have is answered in Python's words",
        "onlyonce/api/load.py",
        Always("_of_arguments", "found is None or made is None"),
        tests=(
            "tests/unit/declare/test_model_declarations.py::test_a_file_that_cannot_be_loaded_is_refused_with_the_cause",
        ),
    ),
    Mutant(
        "bar-without-its-batch",
        "a bar does not know how many records the batch at work has",
        "onlyonce/cli/bars.py",
        Never("step_of", "name == 'batch begun'"),
        tests=("tests/unit/cli/test_watched.py::test_what_a_log_line_says_of_progress",),
    ),
    Mutant(
        "zone-of-the-continent",
        "a zone is proposed that has the continent's name in common alone",
        "onlyonce/core/windows.py",
        Replace("known_zone", "near(city, [one.rpartition('/')[2]])", "one"),
        tests=("tests/unit/model/test_model_windows.py::test_a_zone_of_the_same_continent_alone_is_no_guess",),
    ),
    Mutant(
        "erasure-by-utf-8",
        "an erasure reads lines of CSV as UTF-8, whatever the encoding",
        "onlyonce/operate/erase_inputs.py",
        Always("_in_utf8", "encoding == UTF_8"),
        tests=("tests/unit/operate/test_blanked_records.py::test_a_value_is_found_in_the_encoding_of_its_source",),
    ),
    Mutant(
        "erasure-search-without-code-pages",
        "the search of an erasure decodes no line by the encodings of the sources",
        "onlyonce/core/erasure.py",
        Replace("Mentions.in_line", "line.isascii()", "True"),
        tests=("tests/unit/operate/test_blanked_records.py::test_a_value_is_found_in_the_encoding_of_its_source",),
    ),
    Mutant(
        "init-mixed-encodings",
        "a sample with lines of UTF-8 and others is declared by a code page",
        "onlyonce/scaffold/dialect.py",
        Never("_check_one_encoding", "len(wrong) < len(special)"),
        tests=("tests/unit/scaffold/test_dialects.py::test_bytes_of_no_single_encoding_are_refused",),
    ),
    Mutant(
        "values-16-any-delimiter",
        "a CSV file with semicolons is taken for one column",
        "onlyonce/scaffold/dialect.py",
        Never("_separator", "',' not in widths"),
        tests=("tests/unit/scaffold/test_init.py::test_a_sample_is_declared_as_it_is",),
    ),
    Mutant(
        "values-16-month-by-chance",
        "a date whose day and month can't be told apart has the first form",
        "onlyonce/scaffold/sample.py",
        Replace("_with_forms", "len(form) == 1", "form"),
        tests=("tests/unit/scaffold/test_init.py::test_form_of_a_time_is_proposed_if_it_is_certain",),
    ),
    Mutant(
        "hint-proposes-no-name",
        "the hint for a misspelt name lists all names and proposes none",
        "onlyonce/core/near_names.py",
        Replace("choose", "near(name, known, similarity)", "None"),
        tests=("tests/unit/declare/test_declare.py::test_an_unknown_name_is_answered_with_the_nearest",),
    ),
    Mutant(
        "init-keeps-mixed-case",
        "a new project declares a column in mixed case next to others in snake case",
        "onlyonce/scaffold/sample.py",
        Replace("_declared", "SNAKE_CASE.fullmatch(name)", "COLUMN.fullmatch(name)"),
        tests=("tests/unit/scaffold/test_init.py::test_a_sample_is_declared_as_it_is",),
    ),
    Mutant(
        "values-16-mark-in-the-name",
        "the byte-order mark of a file belongs to its first name",
        "onlyonce/scaffold/sample.py",
        Replace("_records", '"utf-8-sig"', '"utf-8"'),
        tests=("tests/unit/scaffold/test_init.py::test_a_sample_is_declared_as_it_is",),
    ),
    Mutant(
        "values-18-placeholder-as-a-value",
        "Debezium's placeholder for a value that did not change is read as the value",
        "onlyonce/core/line_values.py",
        Always("_available", "not _is_unavailable(value, placeholder)"),
        tests=(
            ENVELOPES + "test_an_unchanged_value_is_taken_from_before",
            ENVELOPES + "test_a_change_without_its_value_is_invalid",
        ),
    ),
    Mutant(
        "values-18-numbers-rewritten",
        "a number in a change of a database is what a double has of it",
        "onlyonce/core/line_values.py",
        Replace("_change", "conversions.text(row)", "json.dumps(json.loads(conversions.text(row)))"),
        Replace("", "import base64", "import base64, json"),
        tests=(ENVELOPES + "test_a_row_keeps_its_characters",),
    ),
    Mutant(
        "queued-run-is-lost",
        "a run that waits in the cluster's queue is ended as if its executors were lost",
        "onlyonce/core/executors.py",
        Replace("Watched.after", "now.registered and not self.had_executors", "False"),
        tests=("tests/unit/model/run/test_model_executors.py::test_a_run_is_given_up[in the queue]",),
    ),
    Mutant(
        "forgotten-by-its-master",
        "a run that Spark's master does not know waits as if it were in the queue",
        "onlyonce/core/executors.py",
        Replace("Watched.after", "now.registered and not self.had_executors", "not self.had_executors"),
        tests=("tests/unit/model/run/test_model_executors.py::test_a_run_is_given_up[a master that never knew it]",),
    ),
    Mutant(
        "panes-appended-unsaid",
        "an append takes early panes although its rows don't say their pane",
        "onlyonce/api/outputs.py",
        Replace("_takes_panes", "output.pane_column is not None", "output.sink.write == 'append'"),
        tests=("tests/unit/model/test_triggers.py::test_what_can_not_work_is_refused_with_the_way_out[an append]",),
    ),
    Mutant(
        "panes-emptied-at-the-close",
        "a window may lose all rows of its last pane when it closes without new records",
        "onlyonce/core/triggers.py",
        Replace("emptied", "window in fired or (closed is not None and window[1] <= closed)", "window in fired"),
        tests=("tests/unit/model/test_triggers.py::test_windows_without_rows_in_their_next_pane",),
    ),
    Mutant(
        "written-rows-wait-for-the-close",
        "an output whose rows came with their records gets whole windows in the same table",
        "onlyonce/core/changes.py",
        Never("_kinds", "part == 'panes' and comes"),
        tests=(
            "tests/unit/model/operate/test_plan.py::test_rows_that_come_with_their_records_and_whole_windows_do_not_share_a_table",
        ),
    ),
    Mutant(
        "aggregate-after-rows",
        "a function that collects records follows one whose rows came with them",
        "onlyonce/core/changes.py",
        Never("comes_as_records", "stateless and 'window' in output and not whole"),
        tests=(
            "tests/spark/outputs/test_ways_of_writing.py::test_a_function_that_collects_records_does_not_follow_one_whose_rows_came_with_them",
        ),
    ),
    Mutant(
        "waiting-windows-left-out",
        "windows that waited for their close are left out when rows come with their records",
        "onlyonce/operate/plan.py",
        Never("reset_step", "waited and not root.sink.writes_files"),
        tests=(
            "tests/spark/outputs/test_ways_of_writing.py::test_windows_that_waited_for_their_close_have_each_row_once_when_rows_come_with_their_records",
        ),
    ),
    Mutant(
        "grown-window-from-its-start",
        "a late record of a window that has grown replaces only the first of the windows that it had",
        "onlyonce/core/backfill.py",
        Never("spans", "first_window is not None and start < first_window"),
        tests=(
            "tests/unit/model/outputs/test_model_backfill.py::test_a_window_that_older_windows_have_rows_in_is_recomputed_up_to_its_end",
        ),
    ),
    Mutant(
        "panes-column-renamed",
        "rows with the number of their pane may lie next to rows without it, or under another name",
        "onlyonce/core/changes.py",
        Replace(
            "_kinds",
            '("write", "keys", "sequence_by", "delete_when", "files", "pane_column")',
            '("write", "keys", "sequence_by", "delete_when", "files")',
        ),
        tests=("tests/unit/model/test_triggers.py::test_plan_tells_of_a_pane_column",),
    ),
    Mutant(
        "a-window-cut-unsaid",
        "a backfill that begins inside a window does not say that this window is left out",
        "onlyonce/core/backfill.py",
        Replace("off_borders", "near.start != span.start", "False"),
        tests=(
            "tests/unit/model/outputs/test_model_backfill.py::test_time_inside_a_window_is_named_with_the_nearest_borders",
        ),
    ),
    Mutant(
        "the-clock-of-a-helper",
        "check does not see the clock that a function of the same module reads",
        "onlyonce/core/changing_calls.py",
        Delete("_nodes", "waiting.append(node.id)"),
        tests=("tests/unit/check/test_changing_calls.py::test_calls_that_change_are_found",),
    ),
    Mutant(
        "the-first-string-of-a-schema",
        "an error of a schema of several strings names the line of the first",
        "onlyonce/core/errors.py",
        Replace("line_in_option", "begin <= position < begin + len(part)", "True"),
        tests=("tests/unit/declare/test_model_declarations.py::test_error_of_a_schema_names_the_line_of_the_column",),
    ),
)
