"""Entry point: take invalid or remnant rows in again after a correction, exactly once.

Their lines become a new file in the inbox. The next run reads and counts it like any other file. A set of rows (one
batch, one reason) is released at most once. A record that is kept already is left out. A record that is still invalid
becomes invalid again, in its new batch, and may be released again from there.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pyarrow.compute as pc
import structlog

from onlyonce import logs, settings
from onlyonce.asked import parse
from onlyonce.commitlog import authorities
from onlyonce.commitlog.driver_clock import DriverClock
from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.commitlog.operate.removals import Removals
from onlyonce.commitlog.outputs.releases import Put, Release, Releases
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Growing, Kafka, Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.operate import retaining
from onlyonce.model.outputs import releasing
from onlyonce.model.outputs.releasing import Kind, RowSet
from onlyonce.model.report import Report
from onlyonce.model.storage.location import Location, Url, is_url
from onlyonce.model.stored_names import OO_BATCH, OO_KIND, OO_LINEAGE, OO_RAW, OO_REASON
from onlyonce.sources.files import packing
from onlyonce.storage import event_rows, log_entries, opening, stores

log = structlog.get_logger()


def main(argv: list[str]) -> Report:
    """Release once; without --yes say what would be released. Raises the platform's errors."""
    asked = arguments(argv)
    logs.configure(pipeline=asked.pipeline, run_id=asked.run_id)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)
    if isinstance(pipeline.source, Kafka):
        raise Refused(
            f"a release puts lines into an inbox, and {pipeline.name} reads topic {pipeline.source.topic}",
            hint=f"correct the messages (onlyonce invalid {pipeline.name} has them) and send them to the topic: a "
            "message "
            "that was invalid has taken no record id",
        )
    if pipeline.source.format != "json":
        raise Refused(
            f"a release writes JSON lines, and {pipeline.name} reads {pipeline.source.layout()}",
            hint="correct the lines (onlyonce invalid has them) and put them into the inbox as a file of your own",
        )
    database = authorities.database_of(None)
    migrate(database.url)
    left = Releases(database).begun(pipeline.name)
    sure = asked.yes and not asked.dry_run
    finished = [_put(database, pipeline, left, asked)] if left and sure else []
    sets, version = waiting(database, pipeline.name, asked.kind, asked.batch, asked.reason)
    whole = not isinstance(pipeline.source, Growing)
    gone = [
        one
        for one in sets
        if one.file and (not whole or is_url(one.file) or packing.of(one.file) or not Path(one.file).is_file())
    ]
    sets = [one for one in sets if one not in gone]
    warnings = [f"{one.file} {_why_not(str(one.file), whole=whole)}, so it can't be released" for one in gone]
    if kept := Removals(database).kept_from(pipeline.name):
        warnings.append(f"rows from before {retaining.said(kept)} are removed (keep_events), so they can't be released")
    if left and not sure:
        warnings.append(f"release {left.number} was left half done; it is finished first (with --yes)")
    if not sets:
        return _report(pipeline, asked.kind, "nothing to release", sets, finished, {}, warnings)
    found = _lines(database, pipeline, asked, sets, version, None)
    facts = _facts(pipeline, found)
    releasing.check_worth_it(pipeline.name, asked.kind, found.lines, found.still_invalid, found.example)
    if not sure:
        return _report(pipeline, asked.kind, "a release would put in again (add --yes)", sets, [], facts, warnings)
    begun = Releases(database).begin(pipeline.name, asked.kind, asked.run_id, version, sets)
    passing("release-after-begin")
    finished.append(_put(database, pipeline, begun, asked))
    return _report(pipeline, asked.kind, "put in again", sets, finished, facts, warnings)


def arguments(argv: list[str]) -> Namespace:
    """What a release is asked for; the same words as `onlyonce release`."""
    asked = parse("release", argv)
    if asked.invalid == asked.remnant:
        raise Refused("which rows shall be released?", hint="say --invalid or --remnant, one of the two")
    asked.kind = "invalid" if asked.invalid else "remnant"
    return asked


def waiting(
    database: Database, instance: str, kind: Kind, batch: int | None, reason: str | None
) -> tuple[list[RowSet], int]:
    """The sets that may be released, and the version of `events` that they were read from. No Spark."""
    path = _events(instance)
    if not log_entries.any_in(path):
        raise Refused(f"nothing of {instance} has run yet", hint=f"onlyonce run {instance} comes first")
    facts = Releases(database).committed(instance)
    files = {file for of_batch in facts.values() for file in of_batch}
    table = opening.table(path)
    rows: list[tuple[str, int, str, str, int]] = []
    columns = [OO_LINEAGE, OO_BATCH, OO_REASON, OO_RAW]
    for part in event_rows.dataset(path, table).to_batches(columns=columns, filter=pc.field(OO_KIND) == kind):
        rows += _counted(part, files)
    released = Releases(database).released(instance, kind)
    return releasing.chosen(releasing.sets(rows, facts), released, batch, reason), table.version()


def _counted(part: Any, files: set[str]) -> list[tuple[str, int, str, str, int]]:
    """(lineage, batch, reason, raw of a file or '', rows) of a piece of `events`."""
    import pyarrow as pa

    raw = part.column(OO_RAW)
    is_file = pc.fill_null(pc.is_in(raw, value_set=pa.array(sorted(files), raw.type)), False)
    named = pc.if_else(is_file, raw, pa.scalar("", raw.type))
    keys = [OO_LINEAGE, OO_BATCH, OO_REASON, "file"]
    table = pa.table([*(part.column(name) for name in keys[:3]), named], names=keys)
    counts = table.group_by(keys).aggregate([([], "count_all")]).to_pylist()
    return [(*(row[key] for key in keys), row["count_all"]) for row in counts]


def _put(database: Database, pipeline: Pipeline, release: Release, asked: Namespace) -> dict[str, Any]:
    """Put a begun release's file into the inbox, unless an attempt before has; end it."""
    folder = inputs.folder(pipeline)
    assert folder is not None
    path = folder / releasing.file_name(release.kind, release.number)
    with _beside(path) as partial:
        found = _lines(database, pipeline, asked, release.sets, release.events_version, partial, release.kind)
        passing("release-before-put")
        put = Put(str(path) if found.lines else None, found.lines, found.left_out, found.still_invalid)
        Releases(database).end(release, lambda: _in_place(pipeline, partial, path, put))
    log.info("released", release=release.number, path=put.path, lines=put.lines, left_out=put.left_out)
    return {
        "release": release.number,
        "kind": release.kind,
        "lines": put.lines,
        "left_out": put.left_out,
        "file": put.path,
    }


@contextmanager
def _beside(path: Location) -> Iterator[Path]:
    """Where the lines are written first: under a hidden name in the folder, or, for a store, on this machine.

    Nothing is left there.
    """
    if isinstance(path, Url):
        with TemporaryDirectory() as here:
            yield Path(here, path.name)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)
    for left in path.parent.glob(
        f".{path.name}.*"
    ):  # of attempts that were killed; now that it has ended none needs its own
        left.unlink(missing_ok=True)


def _in_place(pipeline: Pipeline, partial: Path, path: Location, put: Put) -> Put:
    """Give the lines their name, once. What was read and cleared away stays away."""
    if put.path is None or str(path) in _registered(pipeline.name):
        return put
    if not _named(partial, path):
        log.info("an attempt before has put it", path=str(path))
    return put


def _named(partial: Path, path: Location) -> bool:
    """Whether the lines have the name now: a link fails where it is taken, and so does a conditional PUT, which has
    them in memory."""
    if isinstance(path, Url):
        return stores.of(path).put_new(path, partial.read_bytes())
    try:
        os.link(partial, path)
    except FileExistsError:
        return False
    return True


def _registered(instance: str) -> set[str]:
    registry = settings.data_location(instance) / stored_names.FILES_MANIFEST
    if not log_entries.any_in(registry):
        return set()
    return set(opening.table(registry).to_pyarrow_table(columns=["path"])["path"].to_pylist())


def _lines(
    database: Database, pipeline: Pipeline, asked: Namespace, sets: list[RowSet], version: int, out: Path | None,
    kind: Kind | None = None,
) -> Any:  # fmt: skip
    from onlyonce.outputs.releases import releasing as spark_side
    from onlyonce.receive import past_rows
    from onlyonce.session import session

    DriverClock(database).check()
    spark = session.start(f"onlyonce release {pipeline.name}", asked.master)
    now = datetime.now(UTC)
    last = Compactions(database).last_in(pipeline.name, version)
    table = past_rows.upto(spark, _events(pipeline.name), last)
    return spark_side.prepare(spark, pipeline, table, kind or asked.kind, sets, now, out)


def _why_not(file: str, *, whole: bool) -> str:
    if not whole:
        return "grew, and part of it may be kept"
    if is_url(file):
        return "is an object (put what it holds into the inbox under a new name)"
    return "is packed, and was damaged as a whole" if packing.of(file) else "is not there any more"


def _events(instance: str) -> Location:
    return settings.data_location(instance) / stored_names.EVENTS_FOLDER


def _facts(pipeline: Pipeline, found: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"lines": found.lines, "kept already, left out": found.left_out}
    if found.still_invalid:
        facts |= {"invalid again": found.still_invalid, "because": found.example}
    if found.first is not None:
        facts |= {"event times from": found.first, "to": found.last}
    return facts


def _report(
    pipeline: Pipeline,
    kind: Kind,
    title: str,
    sets: list[RowSet],
    finished: list[dict[str, Any]],
    facts: dict[str, Any],
    warnings: list[str],
) -> Report:
    rows = [vars(one) for one in sets]
    following = [
        {"command": f"onlyonce run {pipeline.name}", "why": "takes the file in"},
        {
            "command": f"onlyonce backfill {pipeline.name} --from … --to …",
            "why": "folds in what is late for its window",
        },
    ]
    tables = {"sets": rows, "releases": finished, "next": following if finished else []}
    shown = {name: found for name, found in tables.items() if found}
    return Report(f"{pipeline.name}, {kind}: {title}", "release", facts, shown, warnings)
