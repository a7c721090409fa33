"""Decide the fate of each record of a partition in a receive task, and commit the partition's unit.

Only the columns that decide are read (`Records`), 34 bytes for each record. The whole partition is judged and its unit
committed before the caller gets the first fate. The unit is a reference unit: the rows themselves are not in its
transaction, but are written to Delta afterwards (docs/specification/unit.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import filters, look_up
from onlyonce.catalog.filters import Ids
from onlyonce.catalog.look_up import Seen
from onlyonce.commitlog import units
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import to_time
from onlyonce.core.errors import InvariantBroken
from onlyonce.core.units import EVENTS, Content, Counts, UnitId
from onlyonce.database.connect import Database
from onlyonce.engine.worker import attempt_name, session_of
from onlyonce.failpoints import passing

CANDIDATE, INVALID, SEED = 0, 1, 2
"""The kind of a record before it is judged. Each partition has one seed, which becomes its control row, so that a
partition without records has a unit, too.
"""
KEPT, DUPLICATE, EXPIRED = 0, 3, 4
"""The fate of a candidate: it is kept unless another fate replaces its code. An invalid row and the seed keep their
code.
"""

NO_LOOK_UPS = catalog.LookUps()

Columns = tuple[pa.Array, pa.Array, pa.Array, pa.Array, pa.Array, pa.Array]
"""The columns of `Records`, in their order, of some rows of a partition.

None has a null (`batch_files._deciding` fills them): `to_numpy` would make floats of such a column, and round its ids.
"""


@dataclass(frozen=True)
class Work:
    """The parameters of a task. The driver takes them from the batch row."""

    database: Database
    place: catalog.Place
    epoch: int


@dataclass(frozen=True)
class Records:
    """The columns of a partition that decide the fates, as arrays of the same length.

    code      CANDIDATE, INVALID or SEED
    high      the upper half of the record id; for the seed the number of the partition
    low       the lower half of the record id
    time      the event time in microseconds
    payload   the hash of the record's payload
    unknown   whether the record has fields that are not declared
    """

    code: NDArray[np.int8]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    time: NDArray[np.int64]
    payload: NDArray[np.int64]
    unknown: NDArray[np.bool_]


@dataclass(frozen=True)
class Verdict:
    """The fates of one batch of columns.

    partition   the number of the batch's partition
    largest     the largest event time that the whole partition keeps
    """

    fates: NDArray[np.int8]
    partition: int
    largest: int | None


def judge(work: Work) -> Callable[[Iterator[Columns]], Iterator[Verdict]]:
    """Return a function from a partition's columns (code, high, low, time, payload, unknown) to verdicts."""

    def run_task(batches: Iterator[Columns]) -> Iterator[Verdict]:
        sizes, records = _gather(batches)
        if not sizes:
            return
        place = replace(work.place, partition=_partition(records))
        # One session for both: opening one costs 10 ms of CPU time, as much as looking up a few hundred thousand ids.
        with session_of(work.database, _unit(place)) as database:
            here = replace(work, database=database, place=place)
            fates, tally = _fates(here, records)
            _commit(here, records, fates, tally)
        passing("receive-unit-after-commit")
        for part in np.split(fates, np.cumsum(sizes)[:-1]):
            yield Verdict(part, place.partition, tally.largest)

    return run_task


@dataclass(frozen=True)
class _Tally:
    kept: int
    invalid: int
    duplicate: int
    unknown_fields: int
    largest: int | None
    expired: int = 0
    took: catalog.LookUps = NO_LOOK_UPS


def _gather(batches: Iterator[Columns]) -> tuple[list[int], Records]:
    sizes, parts = [], []
    for columns in batches:
        sizes.append(len(columns[0]))
        parts.append([column.to_numpy(zero_copy_only=False) for column in columns])
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.array([])] * 6
    code, high, low, time, payload, unknown = joined
    numbers = [column.astype(np.int64, copy=False) for column in (high, low, time, payload)]
    return sizes, Records(
        code.astype(np.int8, copy=False),
        numbers[0].view(np.uint64),
        numbers[1].view(np.uint64),
        numbers[2],
        numbers[3],
        unknown.astype(bool, copy=False),
    )


def _partition(records: Records) -> int:
    # The seed carries its partition's number in the data, so the number is right whatever Spark's plan is.
    seeds = np.flatnonzero(records.code == SEED)
    if len(seeds) != 1:
        raise InvariantBroken(
            f"a receive task has {len(seeds)} partitions of the batch instead of one",
            data="nothing of this attempt was committed",
            hint="Spark gave a task other rows than the batch's exchange assigned: report this with the Spark version",
        )
    return int(records.high[seeds[0]])


def _fates(work: Work, records: Records) -> tuple[NDArray[np.int8], _Tally]:
    if work.place.is_expired:  # gc has removed the ids of the batch's bucket while the batch waited
        fates = records.code.copy()
        rows = np.flatnonzero(records.code == CANDIDATE)
        # Whether an expired record was kept before can't be known any more: it is stored as an expired record, so none
        # is lost or kept twice.
        fates[rows] = EXPIRED
        invalid = int((records.code == INVALID).sum())
        return fates, _Tally(kept=0, invalid=invalid, duplicate=0, unknown_fields=0, largest=None, expired=len(rows))
    return fates_of(records, lambda ids: look_up.look_up(work.database, work.place, ids))


def fates_of(records: Records, look_up: Callable[[Ids], Seen]) -> tuple[NDArray[np.int8], _Tally]:
    """Return the fate of each record from the result of a look-up of the ids.

    `onlyonce.testing` looks up without a catalog.
    """
    fates = records.code.copy()
    rows = np.flatnonzero(records.code == CANDIDATE)
    invalid = int((records.code == INVALID).sum())
    ids = (records.high[rows], records.low[rows])
    # Among records with one id, the one with the earliest event time is new, then the one with the smallest hash of the
    # payload. The order in which rows arrive does not count, so a replay chooses the same record.
    new = filters.first_of_each(ids, records.time[rows], records.payload[rows])
    seen = look_up(ids)
    new &= ~seen.found
    fates[rows[~new]] = DUPLICATE
    times = records.time[rows[new]]
    return fates, _Tally(
        kept=int(new.sum()),
        invalid=invalid,
        duplicate=int((~new).sum()),
        unknown_fields=int(records.unknown[rows[new]].sum()),
        largest=int(times.max()) if len(times) else None,
        took=seen.took,
    )


def _commit(work: Work, records: Records, fates: NDArray[np.int8], tally: _Tally) -> None:
    place = work.place
    unit = _unit(place)
    kept = fates == KEPT
    content = Content(tally.kept + tally.invalid + tally.expired, _content_hash(records, fates))
    counts = Counts(
        kept=tally.kept, invalid=tally.invalid, expired=tally.expired, duplicate=tally.duplicate,
        unknown_fields=tally.unknown_fields, largest=to_time(tally.largest),
    )  # fmt: skip
    ids = (records.high[kept], records.low[kept])
    stored, filtered = filters.pack(ids), filters.make(ids)
    wanted = units.Claim(unit, work.epoch, attempt_name(), "reference")
    chunk = None if place.is_expired else units.Chunk(place, stored, filtered)  # its bucket may be gone
    # True if the chunk was added. If another attempt has committed the unit, the contents are compared instead, and it
    # raises unless they are equal. So in both cases the caller may write its rows.
    if Units(work.database).commit_received(wanted, content, counts, chunk, tally.took):
        look_up.remember(work.database, place, stored, filtered)


def _unit(place: catalog.Place) -> UnitId:
    return UnitId(place.incarnation, place.batch_id, EVENTS, place.partition)


def _content_hash(records: Records, fates: NDArray[np.int8]) -> str:
    # Of all rows with their fates, duplicates too: a replay must judge each record the same. Independent of order: mix
    # each row into 64 bits, then add and xor the rows. The constants are splitmix64's.
    with np.errstate(over="ignore"):
        mixed = records.high * np.uint64(0x9E3779B97F4A7C15) ^ records.low * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= records.payload.view(np.uint64) * np.uint64(0x94D049BB133111EB) ^ fates.astype(np.uint64)
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
    total = int(mixed.sum(dtype=np.uint64))
    return f"{total:016x}{int(np.bitwise_xor.reduce(mixed)):016x}"
