"""What waits for an output is read in batches of a bounded size. docs/specification/outputs.md.

Delta ends a batch after a number of files, also in the middle of a commit; and one number holds for a query from its
start to its end. So where more waits than one batch may have, the commits that wait are counted, and the query is
started for one batch with exactly the files of those that fit. The next batch is planned by another start, with its own
number. Once the rest fits the query goes on as its trigger says.

The log of `events` is counted from behind what the checkpoint has planned, so a kill between two parts changes nothing:
a planned part is read again as it is, and the next one may be cut otherwise.

What a query reads of commits that are compacted is cut by `first_reading`.

Who calls it: `outputs`. Errors: OSError, and those of Delta's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from pyspark.sql import DataFrame

from onlyonce import settings
from onlyonce.context.query import ONE_BATCH, WHAT_IS_THERE, OnBatch, Query
from onlyonce.context.run_context import RunContext
from onlyonce.model.batch import read_upto
from onlyonce.model.outputs.cutting import Size, first_files
from onlyonce.model.storage.location import Location
from onlyonce.outputs.events import first_reading, restart
from onlyonce.outputs.events.first_reading import Part
from onlyonce.receive import events
from onlyonce.storage import checkpoint, log_entries


class Again(Exception):
    """The query is to end between two batches, and to be started again. Its text says why."""


Turn = Callable[[Query, int, Part | None], None]


def in_parts(context: RunContext, query: Query, start: int, turn: Turn) -> None:
    """Run an output's query to its end: `turn` runs it once, with the number of files that end a batch, and with what
    it reads first of what is compacted, if that is cut.

    Raises what that raises.

    start   the version of `events` from which a query without a batch reads
    """
    while True:
        part = first_reading.next_part(context, query, start)
        files = part.files if part and not part.last else _files(context, query, start)
        if files is not None:
            files = part.files if part else files
            said = {"upto": part.versions.upto} if part else {"files": files}
            query.log.info("more waits than one batch may have: it is cut", **said)
        try:
            if files is None:
                return turn(query, events.UNSPLIT, part)
            turn(replace(query, trigger=ONE_BATCH), files, part)
        except Again as why:
            query.log.info(str(why))


def watched(context: RunContext, query: Query, on_batch: OnBatch) -> OnBatch:
    """The work of a batch of a query that takes what there is.

    At its end Again is raised where the query stays up and its next batch would have too much: the log has the end of
    this one, and Spark's checkpoint has not, so it is consumed once more."""

    def work(frame: DataFrame, batch_id: int) -> None:
        on_batch(frame, batch_id)
        if query.trigger not in (WHAT_IS_THERE, ONE_BATCH) and _files(context, query, 0) is not None:
            raise Again("fell behind: what waits is cut")

    return work


def positions(
    context: RunContext, query: Query, batch_id: int, part: Part | None
) -> tuple[dict[str, Any] | None, dict[str, Any], str]:
    """The positions between which a batch of a stream reads, as the log is to have them, and the hash of what Spark has
    planned.

    Raises Again where that is another part than was meant."""
    offset, offsets_hash = checkpoint.offsets(query.written, batch_id)
    if part is None or batch_id > part.number:
        return checkpoint.offsets(query.written, batch_id - 1)[0] if batch_id else None, offset, offsets_hash
    position = first_reading.position(context, part, offset) if batch_id == part.number else None
    if position is None:
        raise Again("Spark has planned another part of a first reading than was meant")
    return part.before, position, offsets_hash


def _files(context: RunContext, query: Query, start: int) -> int | None:
    planned = checkpoint.last(query.folder, "offsets")
    if planned >= 0:
        first: int | None = read_upto(checkpoint.offsets(query.folder, planned)[0]) + 1
    else:
        first = restart.begins_at(context, start)
    most = settings.spark()
    return (
        None
        if first is None
        else first_files(_waiting(context.events, first), most.output_batch_bytes, most.output_batch_commits)
    )


def _waiting(path: Location, first: int) -> Iterator[Size]:
    for version in count(first):
        try:
            files = log_entries.added(path, version)
        except FileNotFoundError:
            return
        yield len(files), sum(file.bytes for file in files)
