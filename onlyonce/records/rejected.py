"""The records that outputs have rejected: reason and window from the log, values from the table `events`.

Without a JVM.

Who calls it: `onlyonce rejected`, `onlyonce.open`. Errors: Retryable while the database is away. Not promised: the
values of a record that was removed from `events` meanwhile.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from onlyonce.commitlog.outputs.rejections import Rejections
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.stored_names import KEPT, OO_BATCH, OO_HIGH, OO_LOW
from onlyonce.records import left_out
from onlyonce.sources.parse.record_id import from_hex

Row = dict[str, Any]
ID = (OO_HIGH, OO_LOW)


def rows(
    database: Database, pipeline: Pipeline, instance: str, limit: int, output: str | None = None
) -> tuple[int, list[Row]]:
    """How many (record, window) pairs are rejected, of all outputs or only one, and `limit` of them with the declared
    columns."""
    total, found = Rejections(database).some(instance, output, limit)
    values = _values(pipeline, instance, found)
    none = dict.fromkeys(pipeline.columns())
    return total, [values.get(row["record_id"], none) | _told(row) for row in found]


def _told(row: Row) -> Row:
    """The output, the reason and the window first; then whose record it is."""
    told = {name: row[name] for name in ("output", "reason", "window_start", "window_end", "event_time", "record_id")}
    return told | {
        "batch": f"{row['lineage']}/{row['batch']}",
        "received": f"{row['received_as']}/{row['received_in']}",
    }


def _values(pipeline: Pipeline, instance: str, found: list[Row]) -> dict[str, Row]:
    """The declared columns of these records, by record id. Their batches say which files are opened."""
    if not found:
        return {}
    ids = [from_hex(row["record_id"]) for row in found]
    batches = pa.array({row["received_in"] for row in found}, pa.int64())
    where = (
        left_out.of_kind(KEPT)
        & pc.field(OO_BATCH).isin(batches)
        & pc.field(OO_HIGH).isin(pa.array({one.high for one in ids}, pa.int64()))
    )
    wanted = {(one.high, one.low): row["record_id"] for one, row in zip(ids, found, strict=True)}
    values: dict[str, Row] = {}
    for part in left_out.parts(instance, where, [*ID, *pipeline.columns()]):
        for row in part.to_pylist():
            if name := wanted.get((row[OO_HIGH], row[OO_LOW] or 0)):
                values[name] = {column: row[column] for column in pipeline.columns()}
    return values
