"""Turns plain lines into blocks of records: they are read, given their id and packed for their partition, without a row
in the JVM.

A block is an Arrow message with the records of one partition of the batch. It waits in a file for its task
(`block_files`). A line stays a line if it is neither plain (`plain_lines`) nor read by Arrow as the table reads it
(`arrow_lines`). So does a line whose record would not be kept: it has no id, no event time, or a time before 1970 or
too far ahead. The table's reader then decides (`parse`). So a block has only valid records, and a record's fate does
not depend on whether it is in a block. The ids are those of `parse`, to the bit.

Who calls it: `exchange`. Not promised: where a block is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from onlyonce.catalog import xxh64
from onlyonce.declare.pipeline import Kafka, Pipeline
from onlyonce.model.batch import to_micros
from onlyonce.model.sources import plain_json
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_HIGH, OO_LOW
from onlyonce.model.values import conversions
from onlyonce.session import schemas
from onlyonce.sources.parse import arrow_lines, id_columns, plain_lines
from onlyonce.sources.parse.parse import BESIDE, BOUND, GIVEN, PLACE

AS_TIMES = ("timestamp", "date")
FIRST_TIME = 0
"""In microseconds, the first valid event time (`parse.FIRST_TIME`)."""
INSTANT = plain_lines.TYPES["timestamp"]
FOUND = [(OO_EVENT_TIME, INSTANT), (OO_HIGH, pa.int64()), (OO_LOW, pa.int64()), ("oo_payload", pa.int64())]


@dataclass(frozen=True)
class Reader:
    """What a task needs to know to read plain lines: fixed by the declaration and the batch.

    `kinds` are the declared types: of scalars as people write them, of others `DataType.jsonValue`. `named` has the
    name in the source of each column. `beside` are the columns that come beside the line, by their names in the batch;
    `latest` the last event time that is valid, in microseconds; `record_id` empty: a record is its place. `salt` stands
    before the values of each id. `forms` has the form of some times.
    """

    kinds: Mapping[str, Any]
    named: Mapping[str, str]
    beside: Mapping[str, str]
    record_id: tuple[str, ...]
    event_time: str
    latest: int
    partitions: int
    salt: str = ""
    layout: str = "json"
    forms: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """Of the records in a block."""
        return pa.schema([*((name, arrow_lines.declared(kind)) for name, kind in self.kinds.items()), *FOUND])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of lines (oo_line, oo_refused, …) → batches of blocks with the partitions that they are for, and
        batches of the other lines, with BOUND, the last event time that is valid: data, since as a number in the plan
        it would have Spark compile the plan anew for each batch."""
        for lines in batches:
            left, records = self.apart(lines)
            if left.num_rows:
                yield self._with(left, pa.nulls(left.num_rows, pa.binary()))
            if records.num_rows:
                yield self._packed(lines, records)

    def apart(self, lines: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The lines of a batch that are left, and the records of the others."""
        rows, records = self._records(lines)
        left = np.ones(lines.num_rows, bool)
        left[rows] = False
        return lines.filter(pa.array(left)) if left.any() else lines.slice(0, 0), records

    def bounded(self, lines: pa.RecordBatch) -> pa.RecordBatch:
        """Lines with BOUND."""
        return lines.append_column(BOUND, pa.repeat(pa.scalar(self.latest, INSTANT), lines.num_rows))

    def _records(self, lines: pa.RecordBatch) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """The rows whose lines Arrow reads and whose records are valid, and these."""
        of_line = {
            name: conversions.with_forms(name, kind, self.forms)
            for name, kind in self.kinds.items()
            if name not in self.beside
        }
        rows, columns = read(_unrefused(lines), {self.named[name]: kind for name, kind in of_line.items()}, self.layout)
        found = dict(zip(of_line, columns, strict=True))
        found |= {name: lines.column(column).take(pa.array(rows)) for name, column in self.beside.items()}
        time = found[self.event_time].cast(INSTANT)
        micros = pc.fill_null(time.cast(pa.int64()), self.latest + 1)
        valid = pc.and_(pc.less_equal(micros, self.latest), pc.greater_equal(micros, FIRST_TIME))
        for name in self.record_id:
            valid = pc.and_(valid, found[name].is_valid())
        columns = [*(found[name] for name in self.kinds), time]
        if valid.false_count:
            rows = rows[valid.to_numpy(zero_copy_only=False)]
            columns = [column.filter(valid) for column in columns]
        high, low, payload = self._identified(lines, rows, dict(zip(self.kinds, columns, strict=False)))
        hashes = [pa.array(half.view(np.int64)) for half in (high, low, payload)]
        return rows, pa.RecordBatch.from_arrays([*columns, *hashes], schema=self.schema)

    def _identified(
        self, lines: pa.RecordBatch, rows: NDArray[np.int64], columns: Mapping[str, pa.Array]
    ) -> tuple[xxh64.Hashes, xxh64.Hashes, xxh64.Hashes]:
        here = pa.array(rows)
        payload = xxh64.of_texts(lines.column("oo_line").take(here))
        for name in self.beside:
            given = pc.binary_join_element_wise(GIVEN, id_columns.of_arrow(columns[name], self.kinds[name]), "")
            payload = xxh64.of_texts(pc.fill_null(given, ""), payload)
        # What stands before the values is the same for all.
        firsts = [np.full(1, xxh64.SEED, np.uint64), xxh64.of_texts(pa.array(["low"]))]
        if self.salt:
            firsts = [xxh64.of_texts(pa.array([self.salt]), first) for first in firsts]
        seeds = [np.repeat(first, len(rows)) for first in firsts]
        if not self.record_id:
            places = [lines.column(name).take(here).to_numpy() for name in PLACE]
            high, low = (xxh64.of_numbers(places[1], xxh64.of_numbers(places[0], seed)) for seed in seeds)
            return high, low, payload
        for name in self.record_id:
            text = id_columns.of_arrow(columns[name], self.kinds[name])
            seeds = [xxh64.of_texts(text, seed) for seed in seeds]
        return seeds[0], seeds[1], payload

    def _packed(self, lines: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
        """One row for each partition that has any."""
        targets = np.mod(records.column(OO_HIGH).to_numpy(), self.partitions)
        here = np.unique(targets)
        parts = [records] if len(here) == 1 else [records.take(pa.array(np.flatnonzero(targets == at))) for at in here]
        blocks = pa.array([part.serialize().to_pybytes() for part in parts], pa.binary())
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(len(here), field.type) for field in lines.schema], schema=lines.schema
        )
        return self._with(nothing, blocks, here)

    def _with(
        self, lines: pa.RecordBatch, blocks: pa.Array, targets: NDArray[np.int64] | None = None
    ) -> pa.RecordBatch:
        target = pa.nulls(len(blocks), pa.int32()) if targets is None else pa.array(targets.astype(np.int32))
        return self.bounded(lines.append_column("block", blocks).append_column("target", target))


def reader(pipeline: Pipeline, system_time: datetime, partitions: int) -> Reader | None:
    """How plain lines of a pipeline are read into blocks for so many partitions; None where its types, or its format,
    leave all to the table's reader."""
    fields = {
        field.name: (field.dataType.simpleString(), field.dataType.jsonValue())
        for field in schemas.of(pipeline.schema).fields
    }
    kinds = {name: simple if isinstance(json_type, str) else json_type for name, (simple, json_type) in fields.items()}
    source = pipeline.source
    beside = source.beside if isinstance(source, Kafka) else ()
    of_line = [kind for name, kind in kinds.items() if name not in beside]
    if (
        source.format not in arrow_lines.READ
        or not of_line
        or any(arrow_lines.declared(kind) is None for kind in kinds.values())
    ):
        return None
    if kinds[pipeline.event_time] not in AS_TIMES:
        return None
    if any(kinds[name] not in id_columns.AS_CAST for name in pipeline.record_id) or (
        pipeline.part and pipeline.part.columns
    ):
        return None
    latest = to_micros(system_time + pipeline.max_ahead)
    assert latest is not None
    gets = {name: f"{BESIDE}{name}" for name in beside}
    salt = pipeline.part.salt if pipeline.part else ""
    return Reader(
        kinds,
        pipeline.named(),
        gets,
        pipeline.record_id,
        pipeline.event_time,
        latest,
        partitions,
        salt,
        source.format,
        pipeline.formats,
    )


def read(lines: pa.Array, kinds: Mapping[str, Any], layout: str = "json") -> tuple[NDArray[np.int64], list[pa.Array]]:
    """Return the lines that are read, and their columns: flat ones that are plain by their text, and of the others
    those that Arrow reads as the table does."""
    types = [arrow_lines.declared(kind) for kind in kinds.values()]
    rows, columns = np.zeros(0, np.int64), [pa.nulls(0, one) for one in types]
    if layout == "json" and all(isinstance(kind, str) and kind in plain_json.EXACT for kind in kinds.values()):
        plain_ones, columns = plain_lines.read(lines, kinds)
        rows = np.flatnonzero(plain_ones.to_numpy(zero_copy_only=False))
    if len(rows) == len(lines):
        return rows, columns
    others = np.delete(np.arange(len(lines)), rows)
    found = arrow_lines.READ[layout](lines.take(pa.array(others)), kinds)
    if not len(found.rows):
        return rows, columns
    more = [arrow_lines.typed(column, one) for column, one in zip(found.columns, types, strict=True)]
    if not len(rows):
        return others[found.rows], more
    return arrow_lines.merged(arrow_lines.Found(rows, columns), arrow_lines.Found(others[found.rows], more))


def _unrefused(lines: pa.RecordBatch) -> pa.Array:
    reasons = lines.column("oo_refused")
    value = lines.column("oo_line")
    return value if reasons.null_count == len(reasons) else pc.if_else(reasons.is_valid(), None, value)
