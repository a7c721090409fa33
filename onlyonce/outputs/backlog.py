"""What waits for an output is read in batches of a bounded size. PROTOCOL.md, 3b.

Delta ends a batch after a number of files, also in the middle of a commit; and one number holds for a query from its start to its end. So where more waits than one
batch may have, the commits that wait are counted, and the query is started for one batch with exactly the files of those that fit. The next batch is planned by
another start, with its own number. Once the rest fits the query goes on as its trigger says.

The log of `events` is counted from behind what the checkpoint has planned, so a kill between two parts changes nothing: a planned part is read again as it is, and
the next one may be cut otherwise.

Who calls it: `outputs`. Errors: OSError. Not promised: that what a table has when it was compacted is cut; such a first batch reads all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame

from onlyonce import settings
from onlyonce.context.query import ONE_BATCH, WHAT_IS_THERE, OnBatch, Query
from onlyonce.context.run_context import RunContext
from onlyonce.model.batch import read_upto
from onlyonce.model.outputs.cutting import Size, first_files
from onlyonce.outputs import restart
from onlyonce.receive import events
from onlyonce.storage import checkpoint, log_entries


class Again(Exception):
    """The query is to end between two batches, and to be started again. Its text says why."""


def in_parts(context: RunContext, query: Query, start: int, turn: Callable[[Query, int], None]) -> None:
    """Run an output's query to its end: `turn` runs it once, with the number of files that end a batch. Raises what that raises.

    start   the version of `events` from which a query without a batch reads
    """
    while True:
        files = _files(context, query, start)
        if files is not None:
            query.log.info("more waits than one batch may have: it is cut", files=files)
        try:
            if files is None:
                return turn(query, events.UNSPLIT)
            turn(replace(query, trigger=ONE_BATCH), files)
        except Again as why:
            query.log.info(str(why))


def watched(context: RunContext, query: Query, on_batch: OnBatch) -> OnBatch:
    """The work of a batch of a query that takes what there is. At its end Again is raised where the query stays up and its next batch would have too much: the log
    has the end of this one, and Spark's checkpoint has not, so it is consumed once more."""

    def work(frame: DataFrame, batch_id: int) -> None:
        on_batch(frame, batch_id)
        if query.trigger not in (WHAT_IS_THERE, ONE_BATCH) and _files(context, query, 0) is not None:
            raise Again("fell behind: what waits is cut")

    return work


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


def _waiting(path: Path, first: int) -> Iterator[Size]:
    for version in count(first):
        try:
            files = log_entries.added(path, version)
        except FileNotFoundError:
            return
        yield len(files), sum(file.bytes for file in files)
