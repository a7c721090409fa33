"""The work of one task of receive on an executor, as a function over Arrow batches: from records to data files of
`events`.

It returns the paths of the files that it has written; the driver commits them (`own_tables`). Who calls it: `receive`,
by `exchange.mapped`. Errors: those of `receive_unit`; OSError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext

from onlyonce.catalog import catalog_lookup
from onlyonce.model import stored_names
from onlyonce.model.frontier import Frontier
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_HIGH, OO_LOW, OO_REASON, OO_UNKNOWN
from onlyonce.receive import receive_unit
from onlyonce.receive.blocks.exchange import CODE, Part, Parts, Task, records_of
from onlyonce.receive.blocks.spill import Spill
from onlyonce.receive.event_files import EventFiles, Stamp
from onlyonce.receive.receive_unit import INVALID, KEPT, REMNANT, SEED, Columns, Verdict, Work
from onlyonce.session import worker
from onlyonce.session.worker import Batches

GIVES = "path string"
BEFORE_HORIZON = "it was first seen before the dedup horizon; the ids of that time are collected"
KINDS = {
    KEPT: stored_names.KEPT, INVALID: stored_names.INVALID, REMNANT: stored_names.REMNANT, SEED: stored_names.CONTROL,
}  # fmt: skip
"""By fate; a duplicate is in no file."""


def exactly_once(work: Work, stamp: Stamp, folder: Location, *, bounded: bool) -> Task:
    """Judge all of a partition, commit its unit, write what is not a duplicate, and the control row.

    A control row tells the frontier after its commit, as far as its task knows; of a bounded run, the one that was
    known.
    """

    def task(parts: Parts) -> Batches:
        _share()
        with Spill() as spilled:
            kept: list[Part] = []
            verdicts = list(receive_unit.judge(work)(_deciding(parts, spilled, kept)))
            if verdicts:
                yield _paths(written(kept, verdicts))

    def written(kept: list[Part], verdicts: list[Verdict]) -> list[str]:
        after = stamp.frontier if bounded else stamp.after(verdicts[0].largest)
        with EventFiles(folder, stamp, verdicts[0].partition) as files:
            for part, verdict in zip(kept, verdicts, strict=True):
                _write(files, records_of(part), verdict.fates, after)
        return files.paths

    return task


def without_catalog(stamp: Stamp, folder: Location) -> Task:
    """Each record is kept or invalid by itself, and written as it comes."""

    def task(parts: Parts) -> Batches:
        context: Any = TaskContext.get()
        with EventFiles(folder, stamp, context.partitionId() if context else 0) as files:
            for records in map(records_of, parts):
                _write(files, records, records.column(CODE).to_numpy())
        yield _paths(files.paths)

    return task


def _share() -> None:
    """A worker shares what it keeps of the catalog with the others of its executor, where Spark spills.

    A driver has it alone.
    """
    catalog_lookup.share_below(worker.local_folder() if TaskContext.get() else None)


def _deciding(parts: Parts, spilled: Spill, kept: list[Part]) -> Iterator[Columns]:
    """The columns that decide; the records themselves wait on disk."""
    for part in parts:
        records = records_of(part)
        kept.append(spilled.kept(part, records))
        time = records.column(OO_EVENT_TIME).cast(pa.int64())
        yield (
            records.column(CODE), records.column(OO_HIGH), _whole(records.column(OO_LOW)),
            _whole(time), _whole(records.column("oo_payload")), records.column(OO_UNKNOWN).is_valid(),
        )  # fmt: skip


def _whole(column: pa.Array) -> pa.Array:
    return pc.fill_null(column, 0) if column.null_count else column


def _write(files: EventFiles, records: pa.RecordBatch, fates: NDArray[np.int8], after: Frontier | None = None) -> None:
    for fate in np.unique(fates):
        if fate in KINDS:
            here = fates == fate
            rows = records if here.all() else records.filter(pa.array(here))
            files.add(KINDS[fate], _told(rows) if fate == REMNANT else rows, after if fate == SEED else None)


def _told(remnants: pa.RecordBatch) -> pa.RecordBatch:
    reason = pa.repeat(BEFORE_HORIZON, remnants.num_rows)
    return remnants.set_column(remnants.schema.get_field_index(OO_REASON), OO_REASON, reason)


def _paths(paths: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"path": pa.array(paths, pa.string())})
