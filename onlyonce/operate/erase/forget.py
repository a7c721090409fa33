"""Entry point: forget the records of which some columns have given values, for good. docs/specification/erasure.md.

They go from `events` (kept, invalid and remnant), from input files, staged rows and the outbox, and the closed windows
that they were in are computed again. What can't be erased is named. A receipt stays in the log: when, by whom, how
many, by which columns; never the values. The record ids stay in the catalog as hashes, so a re-delivery is a duplicate,
unless --ids asks to forget them too.

Who calls it: `onlyonce forget`. The same command finishes what a killed one has begun. Errors: Refused for a condition,
or while a driver is at work; Retryable while a stream is still to read or close what the records are in.
"""

from __future__ import annotations

import getpass
import secrets
from argparse import Namespace
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onlyonce import logs, settings
from onlyonce.asked import parse
from onlyonce.catalog import packed
from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.commitlog.operate.erasures import Erasure, Erasures
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.commitlog.views import Views
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.database.transactions import Scope
from onlyonce.declare import ddl
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline, split_ddl, target
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.errors import InvariantBroken, OnlyonceError, Refused, Unexpected
from onlyonce.model.operate import erasing
from onlyonce.model.operate.erasing import Condition
from onlyonce.model.operate.left import Left
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.report import Report
from onlyonce.model.storage.location import Location
from onlyonce.operate import staged_rows
from onlyonce.operate.erase import (
    in_use,
    input_files,
    input_objects,
    leftovers,
    records,
    search,
    source_conditions,
    stored_rows,
    unsearched,
    windows,
)
from onlyonce.operate.erase.in_use import Found
from onlyonce.operate.erase.search import Place
from onlyonce.storage import delta, stores

REWRITTEN = ("outbox", "rejected")
"""The tables of the platform from which an erasure deletes rows."""
WITHOUT = "records without a line"
FAILED = "outputs not computed again"
"""Facts of the report. If one of them is not 0, the exit code is 1."""
LEFT = "what is left"
"""The table of the report that names each place which still has values, or may have them."""


def main(argv: list[str]) -> Report:
    """Forget once; without --yes say what would be forgotten, and what would stay."""
    asked = parse("forget", argv)
    logs.configure(pipeline=asked.pipeline, run_id=asked.run_id)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)
    condition = erasing.read(asked.where, dict(ddl.named(part) for part in split_ddl(pipeline.schema)))
    database = Database(settings.database_url(), "onlyonce/forget")
    migrate(database.url)
    begun = Erasures(database).begun(pipeline.name, condition)
    found = _look(database, pipeline, condition)
    mentions = source_conditions.mentions(pipeline, condition)
    if begun is None:
        in_use.refuse(database, pipeline, found)
        leftovers.refuse(database, pipeline, mentions)
        todo = _meant(database, pipeline, found, ids=asked.ids)
        erases = asked.yes and not asked.dry_run
        # With --yes the search at the end is enough, unless the records themselves are gone and only copies may be
        # left.
        places = [] if erases and _any(found) else search.everything(database, pipeline, mentions)
        if not erases or not (_any(found) or places):
            stays = [*unsearched.of(database, pipeline, condition, todo, found.records.fates["kept"], asked.master)]
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

    Each step finds by itself what is left of it, so it may be killed and run again.
    """
    instance, path = pipeline.name, _events(pipeline)
    Compactions(database).raise_to(instance, erasure.upto)
    records.remove(database, instance, path, pipeline, condition, erasure)
    for passing_by in (settings.blocks_dir(instance), settings.trials_location(instance)):
        stores.of(passing_by).clear(passing_by)
    passing("forget-after-records")
    for lines in found.files:
        input_files.blank(lines)
    passing("forget-after-files")
    _staged(database, instance)
    if found.outbox:
        Erasures(database).forget_outbox([row.row_no for row in found.outbox])
    Erasures(database).forget_failures(instance)
    if erasure.ids is not None:
        ids = erasure.ids
        Erasures(database).forget_ids(instance, ids)
    passing("forget-after-beside")
    failed = []
    if erasure.spans:
        failed = _compute_again(database, pipeline, erasure, asked)
        _staged(database, instance)
    for one in failed:
        Backfills(database).give_up(instance, one.output)
    mentions = source_conditions.mentions(pipeline, condition)
    leftovers.remove(database, pipeline, mentions)
    stored_rows.rewrite(database, REWRITTEN)
    passing("forget-after-leftovers")
    places = search.everything(database, pipeline, mentions)
    kept = _counted(database, pipeline, erasure)["kept"]
    replaced = {
        output: spans for output, spans in erasure.spans.items() if output not in {one.output for one in failed}
    }
    others = unsearched.of(database, pipeline, condition, replace(erasure, spans=replaced), kept, asked.master)
    left = [*(place.left() for place in places), *(one.left(pipeline) for one in failed), *others]
    passing("forget-before-end")
    version = delta.latest(path)
    # The receipt shows whole paths to the person who erases, and stores them without the values.
    stored = [mentions.hidden(one.line()) for one in left]
    Erasures(database).end(instance, erasure, version, stored)
    return failed, left


def _look(database: Database, pipeline: Pipeline, condition: Condition) -> Found:
    return Found(
        records.found(_events(pipeline), pipeline, condition),
        input_files.found(pipeline, condition),
        input_objects.found(pipeline, condition),
        Erasures(database).outbox(pipeline.name, condition),
    )


def _meant(scope: Scope, pipeline: Pipeline, found: Found, *, ids: bool) -> Erasure:
    upto = windows.upto(scope, pipeline, found.records)
    spans = windows.again(scope, pipeline, found.records.times)
    missing = found.records_without_line if input_files.in_folders(pipeline) else 0
    return Erasure(0, upto, spans, found.lines, _packed(found.records.ids) if ids else None, missing)


def _packed(ids: list[tuple[int, int]]) -> bytes:
    halves = np.array(ids, dtype=np.int64).reshape(-1, 2).view(np.uint64)
    return packed.pack((halves[:, 0].copy(), halves[:, 1].copy()))


def _staged(database: Database, instance: str) -> None:
    """Staged rows are of whole batches; those of committed ones are not read again, so all of them go."""
    staged_rows.remove(Erasures(database).settled(instance), at_once=True)


@dataclass(frozen=True)
class Failed:
    """An output whose windows could not be computed again.

    The error may quote records, so it is shown and never stored.
    """

    output: str
    span: Span
    error: OnlyonceError

    def left(self, pipeline: Pipeline) -> Left:
        """Return what the receipt says: where the records' results still are, and how to go on."""
        start, stop = (f"{time:%Y-%m-%dT%H:%M:%S.%fZ}" for time in self.span.times)
        return Left(
            f"output {self.output} ({target(pipeline, pipeline.output(self.output))})",
            f"not computed again: it failed ({type(self.error).__name__}), so rows that were made of these records "
            "stay",
            f"repair the cause, then: onlyonce backfill {pipeline.name} --output {self.output} --from {start} --to "
            f"{stop}",
        )


def _compute_again(database: Database, pipeline: Pipeline, erasure: Erasure, asked: Namespace) -> list[Failed]:
    """Compute the windows of each output again. An output that fails for good does not keep the others from it."""
    from onlyonce.context.run_context import RunContext
    from onlyonce.outputs.recompute import recompute
    from onlyonce.session import ending, session

    spark = session.start(f"onlyonce forget {pipeline.name}", asked.master)
    context = RunContext(spark, pipeline, pipeline.name, asked.run_id, database)
    failed = []
    for output, spans in sorted(erasure.spans.items()):
        try:
            for start, stop in spans:
                recompute.recompute(context, pipeline.output(output), Span(start, stop))
        except Exception as raised:
            error = ending.ended(raised)
            if not isinstance(error, Refused | InvariantBroken | Unexpected):
                raise  # the same command finishes it
            failed.append(Failed(output, Span(min(spans)[0], max(stop for _, stop in spans)), error))
    return failed


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
    """Return what would be done."""
    facts = {
        "pipeline": pipeline.name,
        "by columns": ", ".join(condition.columns),
        **{fate: found.records.fates[fate] for fate in ("kept", "invalid", "remnant")},
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
    """Return what the log says that was done, what is left, and what came meanwhile."""
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
    """`python -m onlyonce.operate.erase.forget`."""
    from onlyonce.session import ending

    ending.run(main)


if __name__ == "__main__":
    cli()
