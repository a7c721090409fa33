"""Mutants of `onlyonce/receive` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    LONG,
    RECEIVE,
    SAMPLE,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Delete, Never, Replace

MUTANTS = (
    Mutant(
        "events-made-again",
        "a table `events` that was deleted is made again, though the log vouches for its rows",
        "onlyonce/receive/loop.py",
        Replace(
            "_events_of_log",
            '[Vouched(context.events, "version", ended, version), *context.source().vouched(taken_in)]',
            "[*context.source().vouched(taken_in)]",
        ),
        tests=("tests/spark/run/test_spine.py::test_a_table_that_lacks_committed_rows_is_refused",),
        spark=True,
    ),
    Mutant(
        "manifest-made-again",
        "a manifest that was deleted is made again, though batches of it are committed",
        "onlyonce/receive/loop.py",
        Replace(
            "_events_of_log",
            '[Vouched(context.events, "version", ended, version), *context.source().vouched(taken_in)]',
            '[Vouched(context.events, "version", ended, version)]',
        ),
        tests=("tests/spark/sources/test_several_sources.py::test_each_own_table_that_lacks_vouched_rows_is_refused",),
        spark=True,
    ),
    Mutant(
        "silent-until-now",
        "a run counts the time in which it takes in its input as silence of the source",
        "onlyonce/receive/loop.py",
        Replace("close", "context.looked_at", "datetime.now(UTC)"),
        tests=("tests/spark/outputs/test_closing.py::test_silence_lasts_until_the_last_search_for_input",),
        spark=True,
    ),
    Mutant(
        "events-looked-at-before-the-log",
        "what another driver commits between the look at `events` and the question to the log counts as lost",
        "onlyonce/receive/loop.py",
        Replace(
            "_events_of_log",
            "taken_in = Batches(context.database).last_taken_in(context.instance)\n"
            "ended = Compactions(context.database).ended(context.instance)\n"
            "found = context.appended().table if tables_commit.exists(context.events) else None",
            "found = context.appended().table if tables_commit.exists(context.events) else None\n"
            "taken_in = Batches(context.database).last_taken_in(context.instance)\n"
            "ended = Compactions(context.database).ended(context.instance)",
        ),
        tests=("tests/spark/run/test_spine.py::test_a_driver_that_starts_beside_another_finds_nothing_lost",),
        spark=True,
    ),
    Mutant(
        "observed-partition",
        "receive's unit takes the partition that Spark runs, not the one that its rows carry",
        "onlyonce/receive/unit.py",
        Replace(
            "_partition",
            "int(records.high[seeds[0]])",
            "TaskContext.get().partitionId() if TaskContext.get() else 0",
        ),
        tests=(RECEIVE + "test_a_partition_with_nothing_but_its_seed_has_its_unit", SAMPLE),
    ),
    Mutant(
        "skipped-witness",
        "a receive unit that is in the log is skipped: its rows are not emitted again",
        "onlyonce/receive/unit.py",
        Replace(
            "judge.run_task",
            "_commit(here, records, fates, tally)",
            """
            if not _commit(here, records, fates, tally):
                return
        """,
        ),
        Replace(
            "_commit",
            """
            if Units(work.database).commit_received(wanted, content, counts, chunk, tally.took):
                look_up.remember(work.database, place, stored, filtered)
        """,
            "return Units(work.database).commit_received(wanted, content, counts, chunk, tally.took)",
        ),
        tests=(RECEIVE + "test_a_replay_gives_the_same_fates_again_in_any_order_and_cut", SAMPLE),
    ),
    Mutant(
        "one-txn-app-id",
        "one txnAppId for all that receive writes: batches, closes, incarnations",
        "onlyonce/receive/loop.py",
        Replace("_batch", "stored_names.transaction(query.incarnation, stored_names.EVENTS_BY)", '"onlyonce"'),
        Replace("_commit_marker", "stored_names.transaction(driver.incarnation, stored_names.MARKER_BY)", '"onlyonce"'),
        tests=(SAMPLE,),
    ),
    Mutant(
        "first-come-twin",
        "of twins in a batch the first to arrive stays",
        "onlyonce/receive/unit.py",
        Replace(
            "fates_of",
            "filters.first_of_each(ids, records.time[rows], records.payload[rows])",
            "filters.first_of_each(ids)",
        ),
        tests=(RECEIVE + "test_a_replay_gives_the_same_fates_again_in_any_order_and_cut",),
    ),
    Mutant(
        "left-and-forgotten",
        "without a catalog lines that are not plain are read by nobody",
        "onlyonce/receive/batch_files.py",
        Replace(
            "written_straight",
            """
            if files:
                rows = exchange.records(spark, exchange.lines_left(spark, files, lines), pipeline, ingestion_time)
                paths += [row.path for row in exchange.mapped(rows, task, session.schema_of(gives)).collect()]
        """,
            """
            if not paths:
                rows = exchange.records(spark, exchange.lines_left(spark, files, lines), pipeline, ingestion_time)
                paths += [row.path for row in exchange.mapped(rows, task, session.schema_of(gives)).collect()]
        """,
        ),
        tests=(
            "tests/spark/receive/test_straight.py::test_plain_lines_need_one_job_and_the_others_are_not_forgotten[files]",
            "tests/spark/receive/test_straight.py::test_plain_lines_need_one_job_and_the_others_are_not_forgotten[topic]",
        ),
        spark=True,
    ),
    Mutant(
        "left-lines-lost",
        "lines that are left for Spark's parser are not told to the driver",
        "onlyonce/receive/exchange.py",
        Never("write_blocks_into.stored", "left.any"),
        tests=("tests/unit/receive/test_plain_records.py::test_each_line_is_in_a_block_or_left_and_never_both",),
    ),
    Mutant(
        "session-held-while-writing",
        "a task keeps its session in the database while it writes what it has judged",
        "onlyonce/receive/unit.py",
        Replace(
            "judge.run_task",
            """
            with session_of(work.database, _unit(place)) as database:
                here = replace(work, database=database, place=place)
                fates, tally = _fates(here, records)
                _commit(here, records, fates, tally)
            passing("receive-unit-after-commit")
            for part in np.split(fates, np.cumsum(sizes)[:-1]):
                yield Verdict(part, place.partition, tally.largest)
        """,
            """
            with session_of(work.database, _unit(place)) as database:
                here = replace(work, database=database, place=place)
                fates, tally = _fates(here, records)
                _commit(here, records, fates, tally)
                for part in np.split(fates, np.cumsum(sizes)[:-1]):
                    yield Verdict(part, place.partition, tally.largest)
        """,
        ),
        tests=(RECEIVE + "test_a_unit_opens_one_session_which_has_ended_before_its_rows_are_written",),
    ),
    Mutant(
        "whole-file-at-a-position",
        "an invalid record that stands for a whole file has a position in its place",
        "onlyonce/receive/events.py",
        Replace("EventFiles._placed", "pc.less(positions, 0)", "pc.is_null(positions, nan_is_null=True)"),
        tests=("tests/unit/receive/test_event_files.py::test_each_invalid_record_is_named_by_its_place",),
    ),
    Mutant(
        "frontier-of-the-first",
        "all rows of a task have the frontier of those that it wrote first",
        "onlyonce/receive/events.py",
        Replace("EventFiles._fixed", "self._alike.get(frontier)", "next(iter(self._alike.values()), None)"),
        tests=(
            "tests/unit/receive/test_event_files.py::test_each_record_is_in_the_file_of_its_fate_and_a_duplicate_in_none",
        ),
    ),
    Mutant(
        "merge-unfenced",
        "a driver that was superseded merges chunks",
        "onlyonce/receive/loop.py",
        Delete("merge_catalog", "incarnations.check_epoch(driver.incarnation, driver.epoch)"),
        tests=("tests/contract/catalog/test_merging.py::test_a_driver_that_was_superseded_merges_nothing",),
    ),
    Mutant(
        "tasks-are-sent-the-rows",
        "a batch of lines and of files that can't be read holds the driver's rows in its tasks' function",
        "onlyonce/receive/exchange.py",
        Replace("told_by_tasks", "chosen.of_batches", "lines.chosen.of_batches"),
        tests=("tests/spark/sources/test_bad_files.py::test_each_file_has_the_outcome_that_is_stated",),
        spark=True,
    ),
    Mutant(
        "close-at-any-time",
        "a close waits neither for the batch at work nor for what is registered",
        "onlyonce/receive/loop.py",
        Never("something_waits", "context.source().last_batch() not in (None, taken_in)"),
        Replace(
            "_write_marker",
            """
            with context.receiving:
                _commit_marker(query.database, query.driver, context.events, kind, after, progress)
                context.receiving.notify_all()
        """,
            """
            if True:
                _commit_marker(query.database, query.driver, context.events, kind, after, progress)
                context.receiving.notify_all()
        """,
        ),
        Delete("_write_marker", "context.receiving.notify_all()"),
        tests=(LONG + "test_a_close_comes_neither_within_a_receive_batch_nor_while_another_waits",),
        spark=True,
    ),
    Mutant(
        "blocks-anywhere",
        "without a shared disk a block goes to the partition of its row's own hash, and not to that of its records",
        "onlyonce/receive/exchange.py",
        Replace("block_target", "F.coalesce(F.col(TARGET), by_id)", "by_id"),
        tests=(
            "tests/spark/receive/test_block_rows.py::test_events_and_units_are_the_same_whichever_way_blocks_have_come",
        ),
        spark=True,
    ),
    Mutant(
        "left-lines-behind-blocks",
        "without a shared disk the lines that are left in a batch with blocks are lost",
        "onlyonce/receive/exchange.py",
        Replace("_in_rows", "rows.num_rows", "rows.num_rows and not blocks"),
        tests=(
            "tests/spark/receive/test_block_rows.py::test_events_and_units_are_the_same_whichever_way_blocks_have_come",
        ),
        spark=True,
    ),
    Mutant(
        "trial-on-one-machine",
        "a part of a batch that failed is tried in a folder that only the driver sees",
        "onlyonce/receive/batch_files.py",
        Replace("write_batch.trial", "settings.trials_location(context.instance)", 'settings.home().parent / "trials"'),
        tests=(
            "tests/spark/receive/test_poison.py::test_a_record_at_which_three_attempts_fail_is_invalid_and_the_others_are_kept[by "
            "exchange]",
        ),
    ),
    Mutant(
        "values-21-refused-without-its-place",
        "the row of an invalid record has no place",
        "onlyonce/receive/events.py",
        Never("EventFiles.add", "kind == stored_names.INVALID"),
        tests=(
            "tests/unit/receive/test_event_files.py::test_each_record_is_in_the_file_of_its_fate_and_a_duplicate_in_none",
        ),
    ),
    Mutant(
        "values-21-places-of-nothing",
        "a batch's task does not know the names of its files and partitions",
        "onlyonce/receive/batch_files.py",
        Replace("write_batch", "lines.places", "type(lines.places)()"),
        tests=("tests/spark/receive/test_input.py::test_each_line_has_the_fate_that_is_stated",),
        spark=True,
    ),
    Mutant(
        "last-entries-compacted",
        "the last entries of a quiet source's manifest are merged, so that no commit has them",
        "onlyonce/operate/compact.py",
        Replace("_tables", "manifest.last_append(path)", "commit.latest(path)"),
        tests=("tests/contract/operate/test_compaction.py::test_a_quiet_source_among_several_keeps_its_last_batch",),
    ),
    Mutant(
        "more-lost-unseen",
        "a begun batch of a topic reads from the offset of an earlier loss, though more is lost now",
        "onlyonce/core/batch.py",
        Replace("check_files", "_reads_from(meant, name) > _reads_from(there, name)", "False"),
        tests=(
            "tests/unit/model/test_model_batch.py::test_a_range_of_which_more_is_lost_since_begins_the_batch_anew_or_is_refused",
        ),
    ),
    Mutant(
        "skipped-batches-forgotten",
        "a second new incarnation of receive takes in batches that the first one has skipped",
        "onlyonce/commitlog/new_incarnations.py",
        Replace("NewIncarnations.begins_at", "int((last.start_from or {}).get(AFTER_BATCH_NO, -1))", "-1"),
        tests=(
            "tests/contract/commitlog/test_open_windows.py::test_no_new_incarnation_of_receive_takes_in_a_batch_again",
        ),
    ),
    Mutant(
        "gone-inbox-is-lost-files",
        "files of an inbox that is not mounted become invalid records",
        "onlyonce/sources/listing.py",
        Never("check_inboxes", "not folder.is_dir()"),
        tests=("tests/unit/sources/test_folders.py::test_an_inbox_that_is_gone_loses_no_file_of_a_batch",),
    ),
)
