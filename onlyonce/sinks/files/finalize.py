"""Entry point: give the files of sharded outputs their final names. No Spark.

The task `finalize` of a stream's DAG, the DAG `onlyonce_finalize_files` and `onlyonce finalize` run it. Only panes of
committed batches get final names; the log says which attempt's files count. Each step may run twice, even at the same
time or after a kill. If the final name has the same content already, the file is done; any different content is an
error (docs/specification/final-file.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import structlog

from onlyonce import job_main, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import unknown
from onlyonce.asked import parse
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.files import Files
from onlyonce.core.errors import InvariantBroken, OnlyonceError, Refused, Retryable
from onlyonce.core.runs import Report
from onlyonce.core.shards import Winner
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.failpoints import passing
from onlyonce.sinks.files.file_stores import UNREACHABLE, Store, store_of

SAMPLE = 30
"""How many files have their content read: the files that got their final names last."""


def disagreements(winners: list[Winner]) -> Iterator[str]:
    """Yield how final files differ from the log: the size of each, and the content of the last ones.

    `onlyonce finalize` has read each file once, when it gave the file its name. Raise Retryable while a folder or store
    is unreachable.
    """
    final = sorted((w for w in winners if w.finalized_at), key=lambda w: (w.finalized_at, w.file_no))
    read = {winner.file_no for winner in final[-SAMPLE:]}
    for winner in final:
        try:
            found = _found(store_of(winner.place), winner, winner.file_no in read)
        except UNREACHABLE as error:
            raise Retryable(
                f"{winner.place}: {error}",
                data="nothing was changed; the audit only reads",
                hint="see that the folder or store can be reached, then run the same command again",
            ) from error
        if found:
            yield (
                f"{winner.name}: the log says {winner.bytes} bytes, sha256 {winner.checksum[:16]}…; {found} "
                f"({winner.place})"
            )


def _found(store: Store, winner: Winner, read: bool) -> str | None:
    """Return how a file differs from its record; None if it is as recorded."""
    size = store.size(winner)
    if size is None:
        return "it does not exist"
    if size != winner.bytes:
        return f"it has {size} bytes"
    checksum = hashlib.sha256(store.read(winner)).hexdigest() if read else winner.checksum
    return None if checksum == winner.checksum else f"its sha256 is {checksum[:16]}…"


log = structlog.get_logger()

Pane = tuple[Any, ...]
AT_ONCE = 100
"""Panes for each query of the log."""


def main(argv: list[str]) -> Report:
    """Finalize once, everything or one pipeline with its bounded runs; return what got its final names.

    Raise InvariantBroken if a file is missing or its name has different content; the other panes are done first. Raise
    Retryable while the database, a folder or a store is unreachable, and Refused if a store refuses to be written; the
    panes of other places are done first. Raise Refused for a pipeline that is not declared.
    """
    asked = parse("finalize", argv)
    database = Database(settings.database_url(), "onlyonce/finalize")
    migrate(database.url)
    instances = None if asked.pipeline is None else _instances(database, asked.pipeline, asked.pipelines)
    done: dict[tuple[str, str], dict[str, Any]] = {}
    broken: dict[Pane, InvariantBroken] = {}
    away: dict[str, Refused | Retryable] = {}
    while panes := _waiting(database, instances, broken, away):
        for pane in _marked(database, [pane for pane in panes if _published(pane, broken, away)], away):
            _add_up(done, pane)
    if errors := [*broken.values(), *sorted(away.values(), key=lambda error: isinstance(error, Retryable))]:
        first = errors[0]
        more = f" (and {len(errors) - 1} more panes or places that can't be finalized)" if len(errors) > 1 else ""
        raise type(first)(first.what + more, data=first.data, hint=first.hint)
    return _report(list(done.values()))


def _instances(database: Database, name: str, pipelines: list[Path] | None) -> list[str]:
    known = Collector(database).instances()
    declared = declarations.load(pipelines)
    if name not in declared and name not in dict(known).values():
        raise unknown("pipeline", name, sorted(declared))
    return [instance for instance, pipeline in known if pipeline == name]


def _waiting(
    database: Database, instances: list[str] | None, broken: Collection[Pane], away: Iterable[str]
) -> list[list[Winner]]:
    """Return some waiting panes, each with all of its files, without panes and places that have failed in this run."""
    found = Files(database).waiting(instances, AT_ONCE + len(broken), list(away))
    panes = groupby(found, key=lambda winner: winner.of_pane)
    return [list(pane) for key, pane in panes if key not in broken]


def _published(pane: list[Winner], broken: dict[Pane, InvariantBroken], away: dict[str, Refused | Retryable]) -> bool:
    """Make a pane final; return whether it is.

    Add the pane to `broken` if publishing would overwrite or lose a file, or its place to `away` if the folder or store
    is unreachable or refuses it. Panes of other places don't wait for it.
    """
    first = pane[0]
    if first.place in away:
        return False
    try:
        store_of(first.place).publish(pane)
    except InvariantBroken as error:
        broken[first.of_pane] = error
        log.error("not final", output=first.output, window=first.window_start, pane=first.pane, what=error.what)
        return False
    except UNREACHABLE as error:
        away[first.place] = _away(first.place, error)
        return False
    return True


def _away(place: str, error: Exception) -> Refused | Retryable:
    kind = Refused if isinstance(error, Refused) else Retryable
    what = error.what if isinstance(error, OnlyonceError) else str(error)
    return kind(
        f"{place}: {what}",
        data="what got its final name has it; the rest waits, and nothing is half done",
        hint="see that the folder or store can be reached and written, then: onlyonce finalize",
    )


def _marked(database: Database, panes: list[list[Winner]], away: dict[str, Refused | Retryable]) -> list[list[Winner]]:
    """Note the final names in the log, after they are durable. Return the panes that have theirs."""
    durable = []
    for place, some in groupby(sorted(panes, key=lambda pane: pane[0].place), key=lambda pane: pane[0].place):
        of_place = list(some)
        try:
            store_of(place).published([winner for pane in of_place for winner in pane if winner.finalized_at is None])
            durable += of_place
        except UNREACHABLE as error:
            away[place] = _away(place, error)
    passing("finalize-before-mark")
    Files(database).note_final_names(
        [winner.file_no for pane in durable for winner in pane if winner.finalized_at is None]
    )
    passing("finalize-after-mark")
    return durable


def _add_up(done: dict[tuple[str, str], dict[str, Any]], pane: list[Winner]) -> None:
    first = pane[0]
    empty = {"instance": first.instance, "output": first.output, "panes": 0, "files": 0, "place": first.place}
    row = done.setdefault((first.instance, first.output), empty)
    row["panes"] += 1
    row["files"] += sum(winner.finalized_at is None for winner in pane)


def _report(rows: list[dict[str, Any]]) -> Report:
    count = sum(row["files"] for row in rows)
    title = f"finalize: {count} file(s) have their final names" if count else "finalize: nothing waits"
    return Report(title, f"finalize__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", {"files": count}, {"outputs": rows})


def cli() -> None:
    """Run `python -m onlyonce.sinks.files.finalize`."""
    logs.configure(job="finalize")
    job_main.run(main)


if __name__ == "__main__":
    cli()
