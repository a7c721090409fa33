"""Remove what mentions erased records and no later run needs: state, old versions of tables, statistics, temporary files, lines of logs.

| where                                   | what happens                                                                                          |
|-----------------------------------------|-------------------------------------------------------------------------------------------------------|
| Spark's state of an output              | a new incarnation begins, which reads `events` without the records; checkpoints of closed ones are deleted |
| Delta tables of outputs, and `events`   | VACUUM of all old versions of outputs at once; least and largest values go from the log               |
| temporaries of a FileSink (`.pending`)  | deleted, unless an attempt may still commit them                                                      |
| logs in the home                        | the line is overwritten with spaces                                                                   |
| folders of drivers that are gone, kept samples | deleted                                                                                        |

Who calls it: `forget`. Each step searches for what is left of it, so it may be killed and run again. Errors: those of the stores, of Delta and of a new incarnation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onlyonce import settings
from onlyonce.commitlog import lineages
from onlyonce.commitlog.sinks import files
from onlyonce.database.connect import Database, run
from onlyonce.declare.pipeline import Delta, FileSink, Output, Pipeline, target
from onlyonce.failpoints import passing
from onlyonce.model.operate.mentions import Mentions
from onlyonce.model.sinks.shards import may_go, read_temporary
from onlyonce.model.storage.location import Location
from onlyonce.operate.erase import search
from onlyonce.run import from_start, lineage
from onlyonce.sinks.files.local_store import PENDING, LocalStore
from onlyonce.sinks.files.stores import store_of
from onlyonce.spark import temporary
from onlyonce.storage import log_entries, opening, stores, table_statistics
from onlyonce.storage.beside import beside

LOGS = ("logs", "airflow")
"""Folders of the home with logs: ours, and those of the Airflow that we start."""
SAMPLES = "checks"


def refuse(database: Database, pipeline: Pipeline, mentions: Mentions) -> None:
    """Raise Refused, with the date, if an output needs a new incarnation and `events` no longer reaches back to where it would begin."""
    for output in _renewed(database, pipeline, mentions):
        lineage.new(f"{pipeline.name}/{output.name}", start=_start(output))


def remove(database: Database, pipeline: Pipeline, mentions: Mentions) -> None:
    """Remove all of it."""
    for output in _renewed(database, pipeline, mentions):
        lineage.new(f"{pipeline.name}/{output.name}", yes=True, start=_start(output))
    passing("forget-after-state")
    _closed_checkpoints(database, pipeline, mentions)
    for table in _tables(pipeline):
        _old_versions(table, mentions)
    _bounds(settings.data_location(pipeline.name) / "events", mentions)
    _temporaries(database, pipeline, mentions)
    temporary.sweep()
    for at in _mentioned(settings.home() / SAMPLES, mentions):
        stores.of(at).delete(at)
    for folder in LOGS:
        for at in _mentioned(settings.home() / folder, mentions):
            if isinstance(at, Path):
                _blank_lines(at, mentions)


def _renewed(database: Database, pipeline: Pipeline, mentions: Mentions) -> Iterator[Output]:
    """Yield the outputs whose live incarnation has state with the records. Of a join the state stays, since a new incarnation would write its rows twice."""
    for root in pipeline.roots():
        live = run(database, lambda conn: lineages.live(conn, pipeline.name, root.name))  # noqa: B023 - it is called here
        if live is None:
            continue
        if not from_start.is_possible(root):
            continue
        state = _checkpoints(pipeline, root) / str(live.life) / "state"
        if any(True for _ in _mentioned(state, mentions)):
            yield root


def _start(output: Output) -> dict[str, int] | None:
    """An aggregate without windows sums up all that ever came."""
    return {"version": 0} if output.window is None and output.stateful is None else None


def _closed_checkpoints(database: Database, pipeline: Pipeline, mentions: Mentions) -> None:
    for root in pipeline.roots():
        live = run(database, lambda conn: lineages.live(conn, pipeline.name, root.name))  # noqa: B023 - it is called here
        folder = _checkpoints(pipeline, root)
        for life in [*stores.of(folder).names(folder)]:
            closed = live is None or life != str(live.life)
            if closed and any(True for _ in _mentioned(folder / life, mentions)):
                stores.of(folder).clear(folder / life)


def _checkpoints(pipeline: Pipeline, root: Output) -> Location:
    return settings.data_location(pipeline.name) / "checkpoints" / root.name


def _tables(pipeline: Pipeline) -> Iterator[Location]:
    for output in pipeline.outputs:
        if isinstance(output.sink, Delta):
            path = settings.table_location(target(pipeline, output).partition(":")[2])
            yield from (path, beside(path))


def _old_versions(path: Location, mentions: Mentions) -> None:
    """Files that the table no longer has leave the disk, though somebody may be reading them."""
    if not log_entries.any_in(path) or not any(True for _ in _mentioned(path, mentions)):
        return
    opening.table(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    _bounds(path, mentions)


def _bounds(path: Location, mentions: Mentions) -> None:
    table_statistics.remove(path, lambda at: search.of_file(at, mentions) is not None)


def _temporaries(database: Database, pipeline: Pipeline, mentions: Mentions) -> None:
    for output in pipeline.outputs:
        if not isinstance(output.sink, FileSink):
            continue
        place = output.sink.place(target(pipeline, output), "")
        store = store_of(place)
        if not isinstance(store, LocalStore):
            continue
        there = {name: read for name, _ in store.temporaries() if (read := read_temporary(name))}
        known = run(database, lambda conn: files.standings(conn, place, there))  # noqa: B023 - it is called here
        for name, read in there.items():
            if may_go(read, known[name]) and search.of_file(store.folder / PENDING / name, mentions):
                store.remove(name)


def _blank_lines(log: Path, mentions: Mentions) -> None:
    """A program may append to the file meanwhile: the bytes before its end stay where they are."""
    with log.open("r+b") as file:
        at = 0
        for line in file.read().splitlines(keepends=True):
            kept = line.rstrip(b"\r\n")
            if mentions.in_string(kept.decode("utf-8", "replace")):
                file.seek(at)
                file.write(b" " * len(kept))
            at += len(line)


def _mentioned(folder: Location, mentions: Mentions) -> Iterator[Location]:
    for entry in [*stores.of(folder).entries(folder)]:
        if search.of_file(entry.at, mentions):
            yield entry.at
