"""Finds the record at which a user's function fails: it halves the batch's records until the function fails with one
record alone.

Only a batch that has failed is searched, and for a limited time, so that the run ends soon. Records are halved by their
ids, which are hashes, so some twenty tries find one in a million.

Who calls it: `outputs` and `recompute`, when a batch, a bounded run or a backfill fails. Errors: none of its own. If no
single record is the cause, the error stays as it is.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.commitlog.batches import Batches
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model import halves
from onlyonce.model.errors import FunctionFails, Refused
from onlyonce.model.sources.record_places import RecordPlace
from onlyonce.model.stored_names import OO_BATCH, OO_FRONTIER, OO_HIGH, OO_LINEAGE, OO_LOW
from onlyonce.outputs.events import replayed
from onlyonce.outputs.events.replayed import Versions
from onlyonce.outputs.function import record_place
from onlyonce.session.failures import translate
from onlyonce.session.names import quoted
from onlyonce.sources.parse import record_id

LONGEST = 120.0
"""In seconds, how long the look may take."""
MOST = 1_000_000
"""Records of a batch whose ids the driver holds for the look."""


def named(context: RunContext, root: Output, error: FunctionFails, met: list[Versions]) -> FunctionFails:
    """The same error with the record that it fails at, and the command that shows it; `met` is the batch at work."""
    if not met:
        return error
    received = Batches(context.database).received(context.instance, met[0].after, met[0].upto)
    return _among(context, root, error, replayed.kept(context.spark, context.pipeline, context.events, received))


@contextmanager
def searched(context: RunContext, root: Output, rows: Callable[[], DataFrame]) -> Iterator[None]:
    """Inside, an error of the user's function is told with the record that it fails at, one of these rows.

    Spark's own error is taken for what it says.
    """
    try:
        yield
    except Exception as error:
        found = translate(error)
        if not isinstance(found, FunctionFails):
            raise
        raise _among(context, root, found, rows()) from error


def _among(context: RunContext, root: Output, error: FunctionFails, rows: DataFrame) -> FunctionFails:
    rows = rows.persist()

    def fails(some: DataFrame) -> bool:
        try:
            for frame in replayed.results_of(context.pipeline, root, some, context.seen.frames).values():
                frame.write.format("noop").mode("overwrite").save()
        except Exception as found:
            return isinstance(translate(found), FunctionFails)
        return False

    try:
        record = _found(rows, fails)
    finally:
        rows.unpersist()
    return error if record is None else _told(context, root, error, record, record_place.of(context, record))


def _found(rows: DataFrame, fails: Callable[[DataFrame], bool]) -> dict[str, Any] | None:
    """The record with which the function fails alone; None where it needs several, or more time."""
    until = time.monotonic() + LONGEST
    ids = sorted(row.oo_high for row in rows.select(OO_HIGH).distinct().limit(MOST + 1).collect())
    if len(ids) > MOST:
        return None
    at = halves.alone(
        len(ids), lambda first, stop: fails(_between(rows, ids[first:stop])), goes_on=lambda: time.monotonic() < until
    )
    if at is None:
        return None
    alone = _between(rows, ids[at : at + 1])
    texts = [F.col(quoted(name)).cast("string").alias(name) for name in rows.columns if name != OO_FRONTIER]
    found: dict[str, Any] = alone.select(*texts).limit(1).collect()[0].asDict()
    return found


def _between(rows: DataFrame, ids: list[int]) -> DataFrame:
    return rows.filter(F.col(OO_HIGH).between(ids[0], ids[-1]))


def _told(
    context: RunContext, root: Output, error: FunctionFails, record: dict[str, Any], place: RecordPlace | None
) -> FunctionFails:
    pipeline, batch = context.pipeline, f"{record[OO_LINEAGE]}/{record[OO_BATCH]}"
    shown = pipeline.record_id or pipeline.columns()
    values = ", ".join(f"{name}={str(record[name])[:100]}" for name in shown)
    at = f", read at {place}" if place else ""
    again = f"onlyonce replay {context.instance} {record[OO_BATCH]} --output {root.name}"
    return FunctionFails(
        f"{error.what}; it also fails with the record {values} alone, of batch {batch}{at}",
        data=error.data,
        hint=f"{error.hint}. {_trace(context, record, place)} tells what became of it; {again} runs the function "
        "over its batch "
        "and writes nothing",
    )


def _trace(context: RunContext, record: dict[str, Any], place: RecordPlace | None) -> str:
    """The command that shows a record."""
    values = [str(record[name]) for name in context.pipeline.record_id]
    if context.pipeline.by_position and place:
        values = [place.name, str(place.position)]
    try:
        record_id.asked(context.pipeline, values)
    except Refused:  # its columns have texts that only Spark knows, or its place is not known
        values = [str(record_id.RecordId(int(record[OO_HIGH]), int(record[OO_LOW])))]
    dashes = ["--"] if any(value.startswith("-") for value in values) else []
    return shlex.join(["onlyonce", "trace", context.instance, *dashes, *values])
