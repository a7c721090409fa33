"""The lines of a batch, and which of its records are read, chosen by their places.

Mostly all are read; a record that the batch refuses is `invalid` from the start. Lines and rows are chosen before they
are parsed, but a reader of columns may have parsed a refused record before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.core.bisect import Place
from onlyonce.core.records import BEGINNING, RecordPlaces
from onlyonce.engine.session import quoted
from onlyonce.engine.worker import Batches
from onlyonce.sources import line_reader

FILE, POSITION, LINE, REFUSED = "oo_file", "oo_position", "oo_line", "oo_refused"


@dataclass(frozen=True)
class Chosen:
    """The records in [since, stop), with None for no bound, and the reasons of refused records."""

    refused: Mapping[Place, str] = field(default_factory=dict)
    since: Place | None = None
    stop: Place | None = None

    @property
    def all(self) -> bool:
        """Return whether all records are read and none is refused."""
        return not self.refused and self.since is None and self.stop is None

    def of_batches(self, batches: Batches) -> Batches:
        """Return the chosen lines of batches that a task reads."""
        return batches if self.all else map(self._of_batch, batches)

    def of_rows(self, rows: DataFrame) -> DataFrame:
        """Return the chosen rows of a frame with the columns of LINE_COLUMN and any others."""
        if self.since is not None:
            rows = rows.filter(~_before(self.since))
        if self.stop is not None:
            rows = rows.filter(_before(self.stop))
        if not self.refused:
            return rows
        reason = reduce(_reason, self.refused.items(), F.lit(None).cast("string"))
        refused = reason.isNotNull()
        # The refusal is evaluated first, so no other expression reads the record; only its beginning is kept.
        return rows.select(*[_without(rows, name, refused, reason) for name in rows.columns])

    def _of_batch(self, lines: pa.RecordBatch) -> pa.RecordBatch:
        for bound, keep in ((self.since, pc.invert), (self.stop, lambda before: before)):
            if bound is not None:
                lines = lines.filter(keep(_is_before(lines, bound)))
        for place, reason in self.refused.items():
            here = pc.and_(pc.equal(lines.column(FILE), place.file), pc.equal(lines.column(POSITION), place.position))
            if pc.any(here).as_py():
                lines = _refuse(lines, here, reason)
        return lines


ALL = Chosen()


def _is_before(lines: pa.RecordBatch, bound: Place) -> pa.Array:
    file, position = lines.column(FILE), lines.column(POSITION)
    same = pc.and_(pc.equal(file, bound.file), pc.less(position, bound.position))
    return pc.or_(pc.less(file, bound.file), same)


def _refuse(lines: pa.RecordBatch, here: pa.Array, reason: str) -> pa.RecordBatch:
    changed: dict[str, Callable[[pa.Array], pa.Array]] = {
        LINE: lambda old: pc.binary_slice(old.cast(pa.binary()), 0, BEGINNING).view(pa.string()).cast(old.type),
        REFUSED: lambda old: pa.repeat(pa.scalar(reason, old.type), len(old)),
    }
    columns = [
        column if name in (FILE, POSITION) else pc.if_else(here, changed.get(name, _nulls)(column), column)
        for name, column in zip(lines.schema.names, lines.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=lines.schema.names)


def _nulls(column: pa.Array) -> pa.Array:
    return pa.nulls(len(column), column.type)


def _before(bound: Place) -> Column:
    file, position = F.col(FILE), F.col(POSITION)
    return (file < bound.file) | ((file == bound.file) & (position < bound.position))


def _reason(known: Column, refused: tuple[Place, str]) -> Column:
    place, reason = refused
    here = (F.col(FILE) == place.file) & (F.col(POSITION) == place.position)
    return F.when(here, F.lit(reason)).otherwise(known)


def _without(rows: DataFrame, name: str, refused: Column, reason: Column) -> Column:
    column = F.col(quoted(name))
    if name in (FILE, POSITION):
        return column
    if name == REFUSED:
        return F.coalesce(reason, column).alias(name)
    kept = F.substring(column, 1, BEGINNING) if name == LINE else F.lit(None).cast(rows.schema[name].dataType)
    return F.when(refused, kept).otherwise(column).alias(name)


# The lines of a batch.


LINE_COLUMN = "oo_line string, oo_refused string, oo_file long, oo_position long"
"""With a reason, `oo_line` holds what could not be read; `oo_file` and `oo_position` are its place."""


@dataclass(frozen=True)
class Lines:
    """The lines of a batch: ranges of files, and rows with LINE_COLUMN, of messages or of what could not be read.

    rows     for a source with columns they have its columns too
    chosen   which of the lines are read
    shrinks  returns whether the source may remove earlier records without a loss, as a compacted topic does
    places   names the place of each line
    """

    ranges: Sequence[line_reader.Range]
    rows: DataFrame | None
    chosen: Chosen = ALL
    shrinks: Callable[[], bool] = bool
    places: RecordPlaces = field(default_factory=RecordPlaces)
