"""Forget the records whose columns have given values, for good: `onlyonce forget`. docs/specification/erasure.md.

They are removed from `events` (kept, invalid and expired), input files, staged rows and the outbox. Their closed
windows are computed again. What can't be erased is named. A receipt stays in the log: when, by whom, how many, by which
columns; never the values. The record ids stay in the catalog as hashes, so a re-delivery is a duplicate, unless --ids
asks to forget them too. The same command finishes what a killed one has begun.
"""

from __future__ import annotations

import getpass
import secrets
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from onlyonce import logs, settings
from onlyonce.api import ddl
from onlyonce.api import load as declarations
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import Kafka, Pipeline, split_ddl, target
from onlyonce.asked import parse
from onlyonce.catalog import filters
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.cuts import Compactions
from onlyonce.commitlog.erasures import Erasure, Erasures, SentRow
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.sources import Subscriptions
from onlyonce.core import erasure as core_erasure
from onlyonce.core import stored_names
from onlyonce.core.backfill import Span
from onlyonce.core.batch import to_micros, to_time
from onlyonce.core.erasure import NOT_SEARCHED, Condition, Left
from onlyonce.core.errors import InvariantBroken, OnlyonceError, Refused, Retryable, Unexpected
from onlyonce.core.locations import Location, Url
from onlyonce.core.runs import Report
from onlyonce.core.windows import Session
from onlyonce.database.connect import Database, Scope
from onlyonce.database.migrate import migrate
from onlyonce.failpoints import passing
from onlyonce.operate import erase_inputs, erase_rows, erase_search, in_use
from onlyonce.operate.erase_inputs import Lines
from onlyonce.operate.erase_rows import Records
from onlyonce.operate.erase_search import Place
from onlyonce.sinks import targets
from onlyonce.sources import folders
from onlyonce.tables import commit, stores

if TYPE_CHECKING:
    from onlyonce.context import RunContext


def left_in_topics(pipeline: Pipeline, master: str | None) -> Iterator[Left]:
    """Yield each topic that is a source, and when its present messages are gone by the topic's retention.

    Messages can't be deleted from here. A broker that is unreachable does not hold up the erasure. Spark's client asks
    the broker, since a source's options are Java's (key stores, JAAS), which librdkafka does not read. A sink's options
    are librdkafka's (`kafka_units.configuration`).
    """
    topics = [one.source for one in api_pipeline.each_input(pipeline) if isinstance(one.source, Kafka)]
    if not topics:
        return
    from onlyonce.engine import session
    from onlyonce.sources import kafka_admin

    spark = session.start(f"onlyonce forget {pipeline.name}", master)
    for source in topics:
        try:
            configuration = kafka_admin.configuration(spark, source)
        except (Refused, Retryable):
            configuration = None
        yield Left(
            f"messages of the topic {source.topic}",
            NOT_SEARCHED,
            f"gone {core_erasure.lasting_in_topic(configuration)}",
        )


# Places that the search does not read, each with a reason and with when it is removed. A place is named only if the
# pipeline has it: a topic if it is a source, and a table's pages if rows of the table were replaced.


PUBSUB_GOES = (
    "gone 31 days after they were published at the latest, and once acknowledged unless it or its topic retains them"
)
UNKNOWN = (
    Left(
        "backups of the database and of files",
        f"{NOT_SEARCHED}: onlyonce does not know where they are",
        "delete them, or let them expire",
    ),
    Left(
        "Airflow's database (tables xcom, rendered_task_instance_fields, dag_run)",
        f"{NOT_SEARCHED}: onlyonce has no permission to read it",
        "onlyonce writes no record there; if a DAG of yours does: airflow db clean",
    ),
    Left(
        "logs outside the home (of a cluster, of executors, of a PostgreSQL or an Airflow of your own)",
        f"{NOT_SEARCHED}: onlyonce does not know where they are",
        "delete them, or let them expire",
    ),
    Left("copies that people have made", f"{NOT_SEARCHED}: onlyonce does not know of them", "delete them"),
)
"""Places that may have a value in every installation. The receipt says in one line each why it can't know."""


def unsearched_places(
    database: Database, pipeline: Pipeline, condition: Condition, erasure: Erasure, kept: int, asked: Namespace
) -> Iterator[Left]:
    """Yield each place of an erasure that has removed `kept` records from `events`."""
    if erasure.without_line:
        yield Left(
            f"input of {erasure.without_line} records",
            "no line of them was found",
            "look in the compressed files that this receipt names, and in files that were deleted or moved",
        )
    yield from erase_rows.left_in_windows(database, pipeline, erasure.spans, kept)
    yield from left_in_topics(pipeline, asked.master)
    for name in Subscriptions(database).of_pipeline(pipeline.name):
        yield Left(f"messages of the Pub/Sub subscription {name}", NOT_SEARCHED, PUBSUB_GOES)
    yield from erase_inputs.left_in_files(pipeline, condition, asked.pipelines)
    for bucket in _buckets(database, pipeline):
        yield Left(
            f"objects that were deleted from {bucket} or replaced, and uploads that were not ended",
            NOT_SEARCHED,
            core_erasure.lasting_in_bucket(bucket),
        )
    for name in Erasures(database).bounded_runs(pipeline.name):
        yield Left(f"bounded run {name}", f"{NOT_SEARCHED}: it has data of its own", f"onlyonce drop {name}")
    wal = Erasures(database).wal()
    lasts = core_erasure.lasting_in_write_ahead_log(
        wal.checkpoint_timeout, wal.max_wal_size, recycled=wal.recycled, archived=wal.archived, slots=wal.slots
    )
    yield Left("write-ahead log of PostgreSQL", NOT_SEARCHED, lasts)
    yield from UNKNOWN


def _buckets(database: Database, pipeline: Pipeline) -> list[str]:
    """Return the buckets of object stores in which files of a pipeline are."""
    places = [*erase_search.search_own(pipeline), *api_pipeline.folders(pipeline), settings.archive()]
    roots = (targets.stored_of(database, pipeline, output).root() for output in pipeline.outputs)
    urls = (urlsplit(str(place)) for place in (*places, *roots) if place is not None)
    return sorted({f"{url.scheme}://{url.netloc}" for url in urls if url.netloc})


# What exists of the records to forget, and who may still use them.


@dataclass(frozen=True)
class Found:
    """Where copies of the records exist now."""

    records: Records
    files: list[Lines]
    objects: list[Url]
    outbox: list[SentRow]

    @property
    def lines(self) -> int:
        """Return the number of lines of input files."""
        return sum(len(one.places) for one in self.files)

    @property
    def records_without_line(self) -> int:
        """Return how many records of `events` have no line among the lines found.

        A copy in the archive is not counted twice. A re-delivered record has several lines and one row, so its lines
        must not be counted for another record: kept records are compared by their ids too.
        """
        by_name: dict[tuple[str, str], int] = {}
        for one in self.files:
            name = (one.source, one.path.name)
            by_name[name] = max(by_name.get(name, 0), len(one.places))
        without = sum(self.records.fates.values()) - sum(by_name.values())
        if all(one.ids is not None for one in self.files):
            with_line = {(one.source, values) for one in self.files for values in one.ids or ()}
            without = max(without, len(set(self.records.ids)) - len(with_line))
        return max(0, without)


def refuse_in_use(database: Database, pipeline: Pipeline, found: Found, files: list[Path] | None) -> None:
    """Raise Refused if a driver is running. Raise Retryable if records still wait to be read or sent."""
    Erasures(database).refuse_in_use(pipeline.name)
    new = _not_taken_in(database, pipeline, found, files)
    unsent = [row for row in found.outbox if row.state not in ("delivered", "dead", "invalid")]
    if new or unsent:
        what = f"{new[0]} is not taken in yet" if new else f"output {unsent[0].output} has not sent them yet"
        raise Retryable(
            f"{pipeline.name}: records that are to be forgotten are still on their way: {what}",
            data="nothing was changed",
            hint=f"onlyonce run {pipeline.name} (and deliver), then run the same command again",
        )


def _not_taken_in(database: Database, pipeline: Pipeline, found: Found, files: list[Path] | None) -> list[Location]:
    """Return files and objects with such lines whose batch is not committed, by any pipeline that reads the inbox.

    Files in the archive were committed.
    """
    everything: list[Location] = [*(one.path for one in found.files), *found.objects]
    declared = declarations.load(files)
    readers = [
        source
        for name in (pipeline.name, *erase_inputs.inputs_sharing(pipeline, files))
        for source in api_pipeline.each_input(declared.get(name, pipeline))
    ]
    new: set[Location] = set()
    for reader in readers:
        there = {at: name for at in everything if (name := folders.named_in(reader, at))}
        known = _taken_in(database, reader, list(there.values()))
        new |= {at for at, name in there.items() if str(name) not in known}
    return sorted(new, key=str)


def _taken_in(database: Database, reader: Pipeline, there: list[Location]) -> set[str]:
    source = reader.part.name if reader.part else None
    found = in_use.entries_taken_in(database, reader.name, there, source)
    return {entry.path for entry in found if entry.committed or entry.passed_by}


def refuse_open_sessions(
    database: Database, pipeline: Pipeline, times: list[datetime], todo: Erasure, asked: Namespace
) -> None:
    """Raise Retryable if an open session may hold one of the records, or starts among the sessions to compute again.

    Its records merge, so it may end long after the session of one record, by which `windows_upto` judges. What is
    closed stays closed, so this need not be repeated under the lock.
    """
    roots = [one for one in pipeline.roots() if isinstance(one.window, Session)]
    if not roots or not times:
        return
    from onlyonce.outputs import backfill_windows

    context = _context(database, pipeline, asked)
    for root in roots:
        # An open session ends after each of these moments. So if it starts before one of them, it holds the last one.
        last = max([to_micros(max(times)), *(stop - 1 for _, stop in todo.spans.get(root.name, []))])
        if backfill_windows.is_session_open(context, root, last):
            raise erase_rows.still_in_use(
                pipeline, f"output {root.name} has an open session at {to_time(last):%Y-%m-%dT%H:%M:%SZ}"
            )


# The entry point.


WITHOUT = "records without a line"
FAILED = "outputs not computed again"
"""Facts of the report. If one of them is not 0, the exit code is 1."""
LEFT = "what is left"
"""The table of the report that names each place which still has values, or may have them."""


def main(argv: list[str]) -> Report:
    """Forget once; without --yes report what would be forgotten, and what would stay.

    Raise Refused for a condition, or while a driver is running. Raise Retryable while a stream has not yet read the
    records or closed their windows.
    """
    asked = parse("forget", argv)
    logs.configure(pipeline=asked.pipeline, run_id=asked.run_id)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)
    condition = core_erasure.read_conditions(asked.where, dict(ddl.named(part) for part in split_ddl(pipeline.schema)))
    database = Database(settings.database_url(), "onlyonce/forget")
    migrate(database.url)
    for name in asked.leave:
        pipeline.output(name)  # a name that is not declared is refused
    begun = Erasures(database).begun(pipeline.name, condition)
    found = _look(database, pipeline, condition)
    mentions = erase_inputs.source_mentions(pipeline, condition)
    if begun is None:
        refuse_in_use(database, pipeline, found, asked.pipelines)
        erase_search.refuse_leftovers(database, pipeline, mentions)
        todo = _meant(database, pipeline, found, ids=asked.ids)
        refuse_open_sessions(database, pipeline, found.records.times, todo, asked)
        erases = asked.yes
        # With --yes the search at the end is enough, unless the records themselves are removed and only copies may be
        # left.
        places = (
            [] if erases and _any(found) else erase_search.search_everything(database, pipeline, mentions, asked.leave)
        )
        if not erases or not (_any(found) or places):
            others = unsearched_places(database, pipeline, condition, todo, found.records.fates["kept"], asked)
            stays = [*_left_out(pipeline, asked), *others]
            return _outlook(pipeline, condition, found, todo, places, stays)
        by, salt = asked.by or getpass.getuser(), secrets.token_hex(16)
        begun = Erasures(database).begin(
            pipeline.name, condition, by, salt, found.records.ids,
            lambda scope: _meant(scope, pipeline, found, ids=asked.ids),
        )  # fmt: skip
    passing("forget-after-begin")
    failed, left = _erase(database, pipeline, condition, begun, found, asked)
    return _receipt(database, pipeline, condition, begun, asked.run_id, failed, left)


def _erase(
    database: Database, pipeline: Pipeline, condition: Condition, erasure: Erasure, found: Found, asked: Namespace
) -> tuple[list[Failed], list[Left]]:
    """Erase, and return the outputs that could not be computed again, and what is left.

    Each step finds what is left of it, so it may be killed and run again.
    """
    instance, path = pipeline.name, _events(pipeline)
    Compactions(database).raise_to(instance, erasure.upto)
    erase_rows.remove_records(database, instance, path, pipeline, condition, erasure)
    for passing_by in (settings.blocks_dir(instance), settings.trials_location(instance)):
        stores.of(passing_by).clear(passing_by)
    passing("forget-after-records")
    for lines in found.files:
        erase_inputs.blank_files(lines)
    passing("forget-after-files")
    _staged(database, instance)
    if found.outbox:
        Erasures(database).forget_outbox([row.row_no for row in found.outbox])
    Erasures(database).forget_failures(instance)
    if erasure.ids is not None:
        ids = erasure.ids
        Erasures(database).forget_ids(instance, ids)
    passing("forget-after-copies")
    failed = []
    if erasure.spans:
        failed = _compute_again(database, pipeline, erasure, asked)
        _staged(database, instance)
    for one in failed:
        Backfills(database).give_up(instance, one.output)
    mentions = erase_inputs.source_mentions(pipeline, condition)
    errors = [error for error in Erasures(database).errors() if mentions.in_string(error)]
    Erasures(database).forget_errors(errors)
    erase_search.remove_leftovers(database, pipeline, mentions, asked.leave)
    erase_search.rewrite_stored(database)
    passing("forget-after-leftovers")
    places = erase_search.search_everything(database, pipeline, mentions, asked.leave)
    kept = _counted(database, pipeline, erasure)["kept"]
    replaced = {
        output: spans for output, spans in erasure.spans.items() if output not in {one.output for one in failed}
    }
    others = unsearched_places(database, pipeline, condition, replace(erasure, spans=replaced), kept, asked)
    left = [
        *(place.left() for place in places), *(one.left(pipeline) for one in failed), *_left_out(pipeline, asked),
        *others,
    ]  # fmt: skip
    passing("forget-before-end")
    version = commit.latest(path)
    # The receipt shows whole paths to the person who erases, and stores them without the values.
    stored = [mentions.hidden(one.line()) for one in left]
    Erasures(database).end(instance, erasure, version, stored)
    return failed, left


def _look(database: Database, pipeline: Pipeline, condition: Condition) -> Found:
    return Found(
        erase_rows.found_records(_events(pipeline), pipeline, condition),
        erase_inputs.found_in_files(pipeline, condition),
        erase_inputs.found_in_objects(pipeline, condition),
        Erasures(database).outbox(pipeline.name, condition),
    )


def _meant(scope: Scope, pipeline: Pipeline, found: Found, *, ids: bool) -> Erasure:
    upto = erase_rows.windows_upto(scope, pipeline, found.records)
    spans = erase_rows.windows_again(scope, pipeline, found.records.times)
    missing = found.records_without_line if erase_inputs.in_folders(pipeline) else 0
    return Erasure(0, upto, spans, found.lines, _packed(found.records.ids) if ids else None, missing)


def _packed(ids: list[tuple[int, int]]) -> bytes:
    halves = np.array(ids, dtype=np.int64).reshape(-1, 2).view(np.uint64)
    return filters.pack((halves[:, 0].copy(), halves[:, 1].copy()))


def _staged(database: Database, instance: str) -> None:
    """Remove all staged rows of committed batches, which no run reads again: they are stored by whole batches."""
    in_use.remove(Erasures(database).settled(instance), at_once=True)


def _left_out(pipeline: Pipeline, asked: Namespace) -> Iterator[Left]:
    for name in asked.leave:
        yield Left(
            f"output {name} ({target(pipeline, pipeline.output(name))})",
            f"{NOT_SEARCHED}: it was left out by --leave",
            "once it answers: the same command again, without --leave",
        )


@dataclass(frozen=True)
class Failed:
    """An output whose windows could not be computed again.

    The error may quote records, so it is shown and never stored.
    """

    output: str
    span: Span
    error: OnlyonceError
    left_out: bool = False

    def left(self, pipeline: Pipeline) -> Left:
        """Return the line of the receipt: where the records' results still are, and how to continue."""
        start, stop = (f"{time:%Y-%m-%dT%H:%M:%S.%fZ}" for time in self.span.times)
        why = self.error.what if self.left_out else f"it failed ({type(self.error).__name__})"
        return Left(
            f"output {self.output} ({target(pipeline, pipeline.output(self.output))})",
            f"not computed again: {why}, so rows that were made of these records stay",
            f"repair the cause, then: onlyonce backfill {pipeline.name} --output {self.output} --from {start} --to "
            f"{stop}",
        )


def _compute_again(database: Database, pipeline: Pipeline, erasure: Erasure, asked: Namespace) -> list[Failed]:
    """Compute the windows of each output again. An output that fails for good does not hold up the others."""
    from onlyonce.engine import failures
    from onlyonce.outputs import backfill_windows

    context, failed = _context(database, pipeline, asked), []
    # An output that is made from another one's closed windows reads what that one has put into them: it comes after it.
    for output, spans in [(one.name, erasure.spans[one.name]) for one in pipeline.roots() if one.name in erasure.spans]:
        times = Span(min(spans)[0], max(stop for _, stop in spans))
        if output in asked.leave:
            failed.append(Failed(output, times, Refused("it was left out by --leave"), left_out=True))
            continue
        try:
            for start, stop in spans:
                backfill_windows.backfill(context, pipeline.output(output), Span(start, stop))
        except Exception as raised:
            error = failures.ended_with(raised)
            if not isinstance(error, Refused | InvariantBroken | Unexpected):
                raise  # the same command finishes it
            failed.append(Failed(output, times, error))
    return failed


def _context(database: Database, pipeline: Pipeline, asked: Namespace) -> RunContext:
    from onlyonce import context
    from onlyonce.engine import session

    spark = session.start(f"onlyonce forget {pipeline.name}", asked.master)
    return context.RunContext(spark, pipeline, pipeline.name, asked.run_id, database)


def complete(report: Report) -> bool:
    """Return whether each record's line was found and each output was computed again."""
    return not (report.facts[WITHOUT] or report.facts.get(FAILED))


def _any(found: Found) -> bool:
    return bool(found.records.fates or found.files or found.outbox)


def _events(pipeline: Pipeline) -> Location:
    return settings.data_location(pipeline.name) / stored_names.EVENTS_FOLDER


def _outlook(
    pipeline: Pipeline, condition: Condition, found: Found, todo: Erasure, places: list[Place], stays: list[Left]
) -> Report:
    """Report what would be done."""
    facts = {
        "pipeline": pipeline.name,
        "by columns": ", ".join(condition.columns),
        **{fate: found.records.fates[fate] for fate in ("kept", "invalid", "expired")},
        "lines of input files": found.lines,
        "rows of the outbox": len(found.outbox),
        "windows": sum(len(some) for some in todo.spans.values()),
        WITHOUT: todo.without_line,
        **_ids(todo),
    }
    what = "would be forgotten (add --yes)" if _any(found) or places else "to forget: there are none"
    where = (
        {
            "places with these values": [
                {"place": place.at, "parts": place.parts, "format": place.unread} for place in places
            ]
        }
        if places
        else {}
    )
    return Report(f"{pipeline.name}: records {what}", "dry run", facts, {**where, LEFT: [one.row() for one in stays]})


def _receipt(
    database: Database,
    pipeline: Pipeline,
    condition: Condition,
    done: Erasure,
    run_id: str,
    failed: list[Failed],
    left: list[Left],
) -> Report:
    """Report what the log says was done, what is left, and what came meanwhile."""
    warnings = [f"output {one.output} could not be computed again: {one.error.what}" for one in failed]
    if _any(_look(database, pipeline, condition)):
        warnings.append(
            "more of these records came meanwhile, or are in batches that are still in use: run the same command again"
        )
    return Report(
        f"{pipeline.name}: records forgotten",
        run_id,
        {
            "pipeline": pipeline.name,
            **_counted(database, pipeline, done),
            WITHOUT: done.without_line,
            FAILED: len(failed),
            **_ids(done),
        },
        {LEFT: [one.row() for one in left]},
        warnings,
    )


def _counted(database: Database, pipeline: Pipeline, erasure: Erasure) -> dict[str, Any]:
    [row] = Views(database).rows("erasure", instance=pipeline.name, number=erasure.number)
    return dict(row)


def _ids(erasure: Erasure) -> dict[str, str]:
    return {
        "record ids": "kept as hashes: a re-delivery is a duplicate"
        if erasure.ids is None
        else "forgotten too: a re-delivery is new"
    }


def cli() -> None:
    """Run `python -m onlyonce.operate.forget`."""
    from onlyonce.engine import failures

    failures.run_application(main)


if __name__ == "__main__":
    cli()
