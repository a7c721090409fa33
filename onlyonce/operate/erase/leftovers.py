"""Remove what mentions erased records and no later run needs: state, old versions of tables, statistics, temporary
files, lines of logs.

- Spark's state of an output: a new incarnation begins, which reads `events` without the records; checkpoints of closed
  ones are deleted.
- Delta tables of outputs, and `events`: VACUUM of all old versions of outputs at once; least and largest values go from
  the log.
- temporaries of a FileSink (`.pending`): deleted, unless an attempt may still commit them.
- files of killed writers (`.partial`): deleted.
- logs in the home: the line is overwritten with spaces.
- folders of drivers that are gone, kept samples: deleted.

Who calls it: `forget`. Each step searches for what is left of it, so it may be killed and run again. Errors: those of
the stores, of Delta and of a new incarnation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from onlyonce import settings
from onlyonce.commitlog.lineages import Lineages
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.operate.mentions import Mentions
from onlyonce.model.storage.location import Location
from onlyonce.operate.erase import search
from onlyonce.run import from_start, lineage
from onlyonce.sinks import stored_targets
from onlyonce.sinks.stored import file_at
from onlyonce.spark import temporary
from onlyonce.storage import stores, table_statistics

LOGS = ("logs", "airflow")
"""Folders of the home with logs: ours, and those of the Airflow that we start."""
SAMPLES = stored_names.CHECKS_FOLDER


def refuse(database: Database, pipeline: Pipeline, mentions: Mentions) -> None:
    """Raise Refused, with the date, if an output needs a new incarnation and `events` no longer reaches back to where
    it would begin."""
    for output in _renewed(database, pipeline, mentions):
        lineage.new(f"{pipeline.name}/{output.name}", start=_start(output))


def remove(database: Database, pipeline: Pipeline, mentions: Mentions) -> None:
    """Remove all of it."""
    for output in _renewed(database, pipeline, mentions):
        lineage.new(f"{pipeline.name}/{output.name}", yes=True, start=_start(output))
    passing("forget-after-state")
    _closed_checkpoints(database, pipeline, mentions)
    for output in pipeline.outputs:
        stored_targets.of(database, pipeline, output).clean(
            mentions, lambda file: search.of_file(file, mentions) is not None
        )
    table_statistics.remove(
        settings.data_location(pipeline.name) / stored_names.EVENTS_FOLDER, lambda at: _mentions(at, mentions)
    )
    for root in search.own(pipeline):
        for at in stores.of(root).unfinished(root):
            if isinstance(at, Path) and at.is_file() and _mentions(at, mentions):
                at.unlink()
    temporary.sweep()
    for at in _mentioned(settings.home() / SAMPLES, mentions):
        stores.of(at).delete(at)
    for folder in LOGS:
        for at in _mentioned(settings.home() / folder, mentions):
            if isinstance(at, Path):
                _blank_lines(at, mentions)


def _renewed(database: Database, pipeline: Pipeline, mentions: Mentions) -> Iterator[Output]:
    """Yield the outputs whose live incarnation has state with the records.

    Of a join the state stays, since a new incarnation would write its rows twice.
    """
    for root in pipeline.roots():
        live = Lineages(database).live(pipeline.name, root.name)
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
        live = Lineages(database).live(pipeline.name, root.name)
        folder = _checkpoints(pipeline, root)
        for life in [*stores.of(folder).names(folder)]:
            closed = live is None or life != str(live.life)
            if closed and any(True for _ in _mentioned(folder / life, mentions)):
                stores.of(folder).clear(folder / life)


def _checkpoints(pipeline: Pipeline, root: Output) -> Location:
    return settings.data_location(pipeline.name) / stored_names.CHECKPOINTS_FOLDER / root.name


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
        if _mentions(entry.at, mentions):
            yield entry.at


def _mentions(at: Location, mentions: Mentions) -> bool:
    return search.of_file(file_at(at, search.NO_RUN), mentions) is not None
