"""Find the record at which a user's function fails, and where it was read: file and position, or partition and offset.

The record is found by halving the records of the failed batch. `events` does not store where a kept record was read.
The log knows what the record's batch has read, so that input is read again and searched for the record. It is
searched by id and by event time, because records with the same id may have come in one batch.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import SOURCE
from onlyonce.context import RunContext
from onlyonce.core import bisect, failures
from onlyonce.core.errors import FunctionFails, Refused
from onlyonce.core.records import RecordPlace
from onlyonce.core.runs import first_line
from onlyonce.core.stored_names import BATCH_NO, OO_BATCH, OO_EVENT_TIME, OO_FRONTIER, OO_HIGH, OO_INCARNATION, OO_LOW
from onlyonce.engine import session
from onlyonce.engine.failures import translate
from onlyonce.engine.session import quoted
from onlyonce.outputs import results
from onlyonce.outputs.results import Versions
from onlyonce.receive import exchange
from onlyonce.records import left_out
from onlyonce.sources import record_id
from onlyonce.sources.values import parse
from onlyonce.sources.values.parse import PLACE

MOST = 10
"""The largest number of records with the same id and event time to consider. One of these records is reported."""
log = structlog.get_logger()


def place_of_record(context: RunContext, record: dict[str, Any]) -> RecordPlace | None:
    """Return the place of a record, given with the columns of `events` as strings; None if it can't be found.

    If the file is gone or the topic has dropped the message, FunctionFails names the record without its place, and the
    log says why.
    """
    try:
        return _searched(context, record)
    except Exception as error:
        log.warning("where the record was read can't be told", what=first_line(error))
        return None


def _searched(context: RunContext, record: dict[str, Any]) -> RecordPlace | None:
    batch = Batches(context.database).find(record[OO_INCARNATION], int(record[OO_BATCH])).plan
    cut = context.source().batch(context.spark, batch.source_to[BATCH_NO])
    lines, _ = cut.lines(batch.facts)
    rows = exchange.as_rows(context.spark, lines)
    pipeline = context.pipeline.of_source(batch.source_to.get(SOURCE))
    known = _known(pipeline, rows, record, batch.ingestion_time)
    if not known:
        return None
    place = [*parse.id_salt(pipeline), *PLACE] if pipeline.by_position else PLACE
    here = rows.filter(F.xxhash64(*place).isin(known)).select(*PLACE)
    return min(filter(None, (lines.places.of(*row) for row in here.collect())), default=None)


def _known(pipeline: Pipeline, rows: DataFrame, record: dict[str, Any], ingestion_time: Any) -> list[int]:
    """Return the hashes of the places at which the record can be."""
    if pipeline.by_position:
        return [int(record[OO_HIGH])]
    high, _ = parse.id_hashes(
        [*parse.id_salt(pipeline), *parse.id_strings(session.schema_of(pipeline.schema), pipeline.record_id)]
    )
    same: Column = high == int(record[OO_HIGH])
    same &= F.col(OO_EVENT_TIME).cast("string") == record[OO_EVENT_TIME]
    parsed = parse.by_place(rows, pipeline, ingestion_time).filter(same)
    return [row.oo_high for row in parsed.select(OO_HIGH).limit(MOST).collect()]


# Find the record: halve the batch's records until the function fails with one record alone.
#
# Only a batch that has failed is searched, and for a limited time, so that the run ends soon. Records are halved by
# their ids, which are hashes, so about twenty tries find one in a million. If no single record is the cause, the error
# stays as it is.


LONGEST = 120.0
"""The longest time in seconds that the search may take."""
MOST_LINES = 1_000_000
"""The largest number of a batch's record ids that the driver holds for the search."""


def named(context: RunContext, root: Output, error: FunctionFails, met: list[Versions]) -> FunctionFails:
    """Return the error with its function, the record that causes it and the command that shows it.

    `met` holds the running batch.
    """
    error = of_function(context.pipeline, root, error)
    if not met:
        return error
    received = Batches(context.database).received(context.instance, met[0].after, met[0].upto)
    return _among(context, root, error, results.kept_rows(context.spark, context.pipeline, context.events, received))


@contextmanager
def searched(context: RunContext, root: Output, rows: Callable[[], DataFrame]) -> Iterator[None]:
    """Run the block, and add to an error of the user's function its name, and the record among these rows.

    An error of Spark is translated first.
    """
    try:
        yield
    except Exception as error:
        found = translate(error)
        if not isinstance(found, FunctionFails):
            raise
        raise _among(context, root, of_function(context.pipeline, root, found), rows()) from error


def of_function(pipeline: Pipeline, root: Output, error: FunctionFails) -> FunctionFails:
    """Return the error with the functions that make the output's rows: one of them has failed."""
    asked = [name for one in (*pipeline.upstream(root), root) for name in (*one.functions, one.reject) if name]
    return failures.fails_in(pipeline.name, root.name, list(dict.fromkeys(asked)), error)


def _among(context: RunContext, root: Output, error: FunctionFails, rows: DataFrame) -> FunctionFails:
    rows = rows.persist()

    def fails(some: DataFrame) -> bool:
        try:
            for frame in results.results_of(context.pipeline, root, some, context.seen.frames).values():
                frame.write.format("noop").mode("overwrite").save()
        except Exception as found:
            return isinstance(translate(found), FunctionFails)
        return False

    try:
        record = _found(rows, fails)
    finally:
        rows.unpersist()
    return error if record is None else _told(context, root, error, record, place_of_record(context, record))


def _found(rows: DataFrame, fails: Callable[[DataFrame], bool]) -> dict[str, Any] | None:
    """Return the record with which the function fails alone; None if it needs several records, or more time."""
    until = time.monotonic() + LONGEST
    ids = sorted(row.oo_high for row in rows.select(OO_HIGH).distinct().limit(MOST_LINES + 1).collect())
    if len(ids) > MOST_LINES:
        return None
    at = bisect.fails_alone(
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
    pipeline, batch = context.pipeline, f"{record[OO_INCARNATION]}/{record[OO_BATCH]}"
    shown = pipeline.record_id or pipeline.columns()
    values = ", ".join(f"{name}={str(record[name])[:100]}" for name in shown)
    [line] = left_out.lines_of([str(place or "")])
    at = f", read at {place}{f' (line {line})' if line else ''}" if place else ""
    again = f"onlyonce replay {context.instance} {record[OO_BATCH]} --output {root.name}"
    return FunctionFails(
        f"{error.what}; it also fails with the record {values} alone, of batch {batch}{at}",
        data=error.data,
        hint=f"{error.hint}. {_trace(context, record, place)} tells what became of it; {again} runs the function "
        "over its batch and writes nothing",
    )


def _trace(context: RunContext, record: dict[str, Any], place: RecordPlace | None) -> str:
    """Return the command that shows a record."""
    values = [str(record[name]) for name in context.pipeline.record_id]
    if context.pipeline.by_position and place:
        values = [place.name, str(place.position)]
    try:
        record_id.asked(context.pipeline, values)
    except Refused:  # its columns have strings that only Spark can parse, or its place is not known
        values = [str(record_id.RecordId(int(record[OO_HIGH]), int(record[OO_LOW])))]
    dashes = ["--"] if any(value.startswith("-") for value in values) else []
    return shlex.join(["onlyonce", "trace", context.instance, *dashes, *values])
