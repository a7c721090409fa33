"""The first reading of `events` by an output where its commits are compacted: whole commits of receive, in batches of a
bounded size.

docs/specification/outputs.md.

A stream that begins at compacted commits begins with the table as it is, its *snapshot*. Delta can cut that by files,
but a file has rows of many commits. So here the platform says what a part is: the receive batches of the versions
(after, upto], whose rows are found by their batch, as everywhere else (`past_rows`). Of Delta's stream a part takes the
step only, and none of the rows: one file of the snapshot. The rows of the part are read from the table and joined to
the step. Its control row is the frontier of its last version, by the log.

The last step has the files that are left, and what has come since: it is the query as its trigger says, without the
rows that the parts had. So Spark goes on from it by itself, also with a batch without rows for the windows that have
ended.

The position of a part in the log (`source_to`) is the one that the stream would have between these two commits. So
whoever asks the log how far an output has read finds whole commits, and a batch that is repeated reads what the log
says. Of a part that Spark has planned and the log has not begun nothing is written yet; where it ends is decided anew.

Who calls it: `backlog`, `reading`. Errors: those of Spark and of Delta's log. Not promised: as many parts as the
snapshot has files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce import settings
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.model import stored_names
from onlyonce.model.batch import FIRST_READING, Batch, first_reading, is_part, read_upto, to_time
from onlyonce.model.outputs.cutting import records_of_part
from onlyonce.model.stored_names import CONTROL, KEPT, OO_FRONTIER, OO_KIND, RESERVOIR_VERSION
from onlyonce.outputs.events import restart
from onlyonce.outputs.events.replayed import Versions
from onlyonce.receive import events, past_rows
from onlyonce.storage import checkpoint, opening, rewriting

Offset = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A batch of a first reading.

    number     the batch
    versions   of `events` that it reads
    files      how many files of the snapshot Spark is to take for it
    last       whether it is the last step: the parts before it have read the whole snapshot
    before     the position at which the part before has ended
    """

    number: int
    versions: Versions
    files: int
    last: bool
    before: Offset | None


def next_part(context: RunContext, query: Query, start: int) -> Part | None:
    """What a query reads in its next batch, which may be one that is to be repeated; None where that is no part of a
    first reading.

    start   the version of `events` from which a query without a batch reads
    """
    planned, ended = (checkpoint.last(query.folder, kind) for kind in ("offsets", "commits"))
    number = max(planned, ended + 1)
    known = _logged(query, number)
    before = known.plan.source_from if known else _ended(query, number - 1)
    if number and not is_part(before):
        return None
    after = read_upto(before) if before else start - 1
    if known is not None:
        last = not is_part(known.plan.source_to)
        again = Part(number, Versions(after, read_upto(known.plan.source_to)), 1, last, before)
        return again if number or not last else None
    if planned == number:
        return _planned(context, number, after, checkpoint.offsets(query.folder, number)[0], before)
    if before is None and restart.begins_at(context, start) is not None:
        return None
    return _new(context, number, after, checkpoint.offsets(query.folder, planned)[0] if before else None, before)


def _new(context: RunContext, number: int, after: int, offset: Offset | None, before: Offset | None) -> Part | None:
    """A part that Spark has not planned.

    `offset`: where in the snapshot the part before has ended; None for the first, whose snapshot is what there is now.
    """
    newest, snapshot = first_reading(before), _files(context, offset)
    left = len(snapshot) - (int(offset[stored_names.RESERVOIR_INDEX]) + 1 if offset else 0)
    if newest is not None and after >= newest:
        return Part(number, Versions(after, newest), left, last=True, before=before)
    upto = _ends(context, after, newest, snapshot, left - 1)
    if upto is None:
        upto = newest
    return None if upto is None else Part(number, Versions(after, upto), 1, last=False, before=before)


def _planned(context: RunContext, number: int, after: int, offset: Offset, before: Offset | None) -> Part | None:
    """A part that Spark has planned, and the log does not know."""
    left = _left(context, offset)
    if not left:
        return Part(number, Versions(after, read_upto(offset)), 1, last=True, before=before) if before else None
    newest = int(offset[RESERVOIR_VERSION])
    upto = _ends(context, after, newest, _files(context, offset), left)
    return Part(number, Versions(after, newest if upto is None else upto), 1, last=False, before=before)


def _ends(
    context: RunContext, after: int, newest: int | None, snapshot: list[rewriting.File], steps: int
) -> int | None:
    """The version with which a part ends that begins behind `after`; None where all that is left fits, or no other part
    can be.

    `steps`: how many there can be, with this one.
    """
    kept = [file for file in snapshot if file.partition[OO_KIND] == KEPT]
    size, rows = sum(file.bytes for file in kept), sum(file.rows or 0 for file in kept)
    upto = Compactions(context.database).ended(context.instance, newest)
    waiting = Compactions(context.database).records(context.instance, after, upto)
    most = records_of_part(waiting, size / rows if rows else 0.0, settings.spark().output_batch_bytes, steps)
    if most is None:
        return None
    return Compactions(context.database).holds(context.instance, after, upto, most)


def position(context: RunContext, part: Part, offset: Offset) -> Offset | None:
    """The position that the log has for a part, given Spark's; None where Spark has planned something else than was
    meant, and the part is to begin anew."""
    left, newest = _left(context, offset), int(offset[RESERVOIR_VERSION])
    if part.last:
        return None if left else offset
    if not left or (left == 1 and part.versions.upto < newest):  # no other part can follow, and rows are left
        return None
    return offset | {RESERVOIR_VERSION: part.versions.upto + 1, stored_names.RESERVOIR_INDEX: -1, FIRST_READING: newest}


def rows(context: RunContext, part: Part, files: int) -> DataFrame:
    """What a stream of `events` would give of these versions: their kept rows, and one control row.

    For the last step what a stream gives behind them.
    """
    if part.last:
        return restart.read_behind(context, part.versions.after, files)
    stream = events.stream(context.spark, context.events, None, files)
    # A batch has exactly one step, whatever its files have; control rows are few.
    few = stream.filter(f"{OO_KIND} = '{CONTROL}'").select(OO_KIND).coalesce(1)
    step = F.broadcast(few.mapInArrow(_one, "oo_step boolean"))
    after, upto = (
        Compactions(context.database).last_in(context.instance, version)  # type: ignore[misc]
        for version in (part.versions.after, part.versions.upto)
    )
    table = context.spark.read.format("delta").load(str(context.events))
    kept = table.filter((F.col(OO_KIND) == KEPT) & past_rows.in_batches(upto, after))
    known = Backfills(context.database).frontier_at(context.instance, part.versions.upto)
    times = [F.lit(to_time(value)).cast("timestamp").alias(name) for name, value in asdict(known).items()]
    fixed = {OO_KIND: F.lit(CONTROL), OO_FRONTIER: F.struct(*times)}
    control = context.spark.range(1).select(
        *(fixed.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in stream.schema)
    )
    # The stream comes once into it, as into what is read otherwise: Spark counts a query's sources, and refuses a
    # checkpoint of another number.
    return control.unionByName(kept).crossJoin(step).select(*stream.columns)


def _one(batches_of_rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches_of_rows:
        pass
    yield pa.record_batch({"oo_step": [True]})


def _logged(query: Query, number: int) -> Batch | None:
    return Batches(query.database).logged(query.lineage, number)


def _ended(query: Query, number: int) -> Offset | None:
    """The position at which a batch has ended by the log; None for one before the first."""
    earlier = _logged(query, number) if number >= 0 else None
    return earlier.plan.source_to if earlier else None


def _left(context: RunContext, offset: Offset) -> int:
    """How many files of its snapshot a query has not read at an offset of Spark's."""
    return (
        len(_files(context, offset)) - int(offset[stored_names.RESERVOIR_INDEX]) - 1
        if offset.get("isStartingVersion")
        else 0
    )


def _files(context: RunContext, offset: Offset | None) -> list[rewriting.File]:
    """The data files of a query's snapshot; without an offset those that there are now."""
    table = opening.table(context.events, version=int(offset[RESERVOIR_VERSION]) if offset else None)
    return rewriting.files(table, ())
