"""Receive without a platform: from rows to records that are kept, by the product's own parser and rule of duplicates.

What the log and the catalog would know is kept in memory. Who calls it: `running` and `holding`. Not promised: the
dedup horizon never passes, so no record is a remnant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from onlyonce.catalog.catalog_lookup import Seen
from onlyonce.catalog.chunks import LookUps
from onlyonce.catalog.packed import Ids
from onlyonce.declare.pipeline import Files, Pipeline
from onlyonce.model.sources.record_places import RecordPlace
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_HIGH, OO_LOW, OO_RAW, OO_REASON, OO_UNKNOWN
from onlyonce.receive.receive_unit import CANDIDATE, DUPLICATE, INVALID, KEPT, Records, fates_of
from onlyonce.session import schemas
from onlyonce.sources.lines import LINE
from onlyonce.sources.parse import parse
from onlyonce.sources.parse.parse import PLACED
from onlyonce.testing.given import Batch, Given, line_of

LINES = ("json", "csv")


@dataclass(frozen=True)
class Taken:
    """One batch as it is kept: records with the declared columns and `oo_event_time`, and those that are not."""

    kept: pa.Table
    system_time: datetime
    invalid: list[dict[str, Any]]
    duplicates: int

    @property
    def largest(self) -> int | None:
        """The largest event time that is kept, in microseconds."""
        times = pc.max(self.kept.column(OO_EVENT_TIME).cast(pa.int64()))
        found: int | None = times.as_py()
        return found


@dataclass
class Receive:
    """What receive knows of earlier batches."""

    spark: SparkSession
    pipeline: Pipeline
    _seen: set[tuple[int, int]] = field(default_factory=set)
    _batches: int = 0

    def take_in(self, batch: Batch) -> Taken:
        """One batch."""
        now = batch.at or datetime.now(UTC)
        records = self._parsed(batch, now)
        fates = self._fates(records)
        invalid = records.filter(pa.array(fates == INVALID)).select([OO_REASON, PLACED, OO_RAW])
        kept = records.filter(pa.array(fates == KEPT)).select([*self.pipeline.columns(), OO_EVENT_TIME])
        told = [
            {"reason": row[OO_REASON], "place": str(_place(**row[PLACED])), "raw": row[OO_RAW]}
            for row in invalid.to_pylist()
        ]
        return Taken(kept, now, told, int((fates == DUPLICATE).sum()))

    def _parsed(self, batch: Batch, now: datetime) -> pa.Table:
        numbered = [*enumerate(batch.rows)]
        own = [(at, row) for at, row in numbered if isinstance(row, str)]
        made = [(at, row) for at, row in numbered if not isinstance(row, str)]
        as_json = replace(self.pipeline, source=Files(), aliases={})  # a row is of declared columns
        in_lines = self.pipeline if self.pipeline.source.format in LINES else as_json
        found = [self._records(rows, of, now) for rows, of in ((made, as_json), (own, in_lines)) if rows]
        found = found or [self._records([], as_json, now)]
        self._batches += 1
        return pa.concat_tables(found)

    def _records(self, rows: Sequence[tuple[int, Given]], pipeline: Pipeline, now: datetime) -> pa.Table:
        lines = [(line_of(row), None, self._batches, at) for at, row in rows]
        return parse.records(self.spark.createDataFrame(lines, schemas.of(LINE)), pipeline, now).toArrow()

    def _fates(self, records: pa.Table) -> NDArray[np.int8]:
        code = np.where(records.column(OO_REASON).is_valid().to_numpy(), INVALID, CANDIDATE).astype(np.int8)
        if self.pipeline.by_position or self.pipeline.mode != "exactly_once":
            return code
        high, low, payload = (_numbers(records, name) for name in (OO_HIGH, OO_LOW, "oo_payload"))
        ids = Records(
            code, high.view(np.uint64), low.view(np.uint64), _numbers(records, OO_EVENT_TIME), payload,
            records.column(OO_UNKNOWN).is_valid().to_numpy(),
        )  # fmt: skip
        fates, _ = fates_of(ids, self._look_up)
        kept = fates == KEPT
        self._seen.update(zip(ids.high[kept].tolist(), ids.low[kept].tolist(), strict=True))
        return fates

    def _look_up(self, wanted: Ids) -> Seen:
        pairs = zip(wanted[0].tolist(), wanted[1].tolist(), strict=True)
        return Seen(np.array([pair in self._seen for pair in pairs], dtype=bool), LookUps())


def _place(oo_file: int, oo_position: int) -> RecordPlace:
    return RecordPlace(f"batch {oo_file}", oo_position, "row")


def _numbers(records: pa.Table, name: str) -> NDArray[np.int64]:
    found: NDArray[np.int64] = pc.fill_null(records.column(name).cast(pa.int64()), 0).to_numpy()
    return found
