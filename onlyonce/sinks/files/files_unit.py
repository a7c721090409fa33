"""The work of one task of a file sink on an executor: write temporary files, claim the unit, record the files, commit.

The files are written before the transaction, since a transaction that waits for a disk holds up others. So two attempts
of a task may write beside each other, under different names. The claim decides whose files count, and the other attempt
removes its own. A killed task leaves files that nobody reads; `onlyonce.sinks.files.sweep` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from onlyonce.commitlog import units
from onlyonce.commitlog.sinks.files import Files
from onlyonce.commitlog.units import Units
from onlyonce.database.connect import Database
from onlyonce.declare.outputs.sinks import FileSink
from onlyonce.failpoints import passing
from onlyonce.model.batch import to_time
from onlyonce.model.errors import CommitStateUnknown, InvariantBroken, Retryable
from onlyonce.model.sinks.shards import Shard, Temporary, Written
from onlyonce.model.units import Content, UnitId, compare
from onlyonce.session.worker import attempt_name, session_of
from onlyonce.sinks.content_hash import HASH, Tally
from onlyonce.sinks.files import formats
from onlyonce.sinks.files.stores import Store
from onlyonce.sinks.postgres.pinned import Batches, counted

START, END, SHARD = "oo_start", "oo_end", "oo_shard"
RESULT = "partition int, files long"

Window = tuple[int | None, int | None]
Key = tuple[Window, int]


@dataclass(frozen=True)
class Work:
    """All that a task needs to know; the driver fixes it.

    place     where, as the log has it; `store` is the same, opened anywhere
    schema    the columns of the files, in Arrow
    windows   those of the batch, in microseconds: each has all its shards, also without rows
    compared  whether a replay must mean the same rows (not at least once: there the first attempt's stay)
    """

    database: Database
    unit: UnitId
    lineage_no: int
    epoch: int
    sink: FileSink
    place: str
    store: Store
    schema: pa.Schema
    floats: tuple[str, ...]
    partitions: int
    windows: tuple[Window, ...]
    compared: bool = True


def write_unit(work: Work) -> Callable[[Batches], Batches]:
    """The Arrow function of a batch: the rows of one partition, sorted by window and shard → (partition, files)."""

    def run_task(batches: Batches) -> Batches:
        context: Any = TaskContext.get()
        here = replace(work, unit=replace(work.unit, partition=context.partitionId()))
        tally = Tally(HASH, dict(zip(work.floats, work.floats, strict=True)))
        made = _commit(here, counted(here.unit, batches, tally), tally)
        passing("files-unit-after-commit")
        yield pa.RecordBatch.from_pydict(
            {"partition": pa.array([here.unit.partition], pa.int32()), "files": pa.array([made], pa.int64())}
        )

    return run_task


def _commit(work: Work, batches: Batches, tally: Tally) -> int:
    with session_of(work.database, work.unit) as database:
        there = Units(database).find(work.unit)
    if there is not None:
        for _ in batches:
            pass
        _agree(work, there, tally)
        return 0
    attempt = Temporary(
        work.lineage_no, work.unit.batch_id, work.unit.sink, work.unit.partition, work.epoch, uuid4().hex
    )
    begun: list[str] = []
    try:
        made = list(_write(work, attempt, batches, begun))
        _check_whole(work, made, tally)
        work.store.settle(begun)
    except BaseException:
        _discard(work, begun)
        raise
    passing("files-unit-before-claim")
    try:
        won = _record(work, made, tally)
    except CommitStateUnknown:
        won = _settle(work, made, tally)
    if not won:
        _discard(work, begun)
    return len(made) if won else 0


def _record(work: Work, made: list[Written], tally: Tally) -> bool:
    """The unit's transaction; gives whether this attempt's files count."""
    with session_of(work.database, work.unit) as database, Units.once(database) as log:
        there = log.claim(units.Claim(work.unit, work.epoch, attempt_name(), "data"))
        passing("files-unit-after-claim")
        if there is not None:
            _agree(work, there, tally)
            return False
        Files(log.scope).record(work.unit, work.place, work.sink.shards, made)
        log.fill(work.unit, tally.content())
        passing("files-unit-before-commit")
    return True


def _settle(work: Work, made: list[Written], tally: Tally) -> bool:
    """The answer to COMMIT was lost: read the log, then decide. docs/specification/unit.md."""
    with session_of(work.database, work.unit) as database:
        there, temporaries = Units(database).find(work.unit), Files(database).of_unit(work.unit)
    if there is None:
        # Its files stay for the sweep: nobody can say that the COMMIT is not still on its way.
        raise Retryable(f"unit {work.unit}: the COMMIT did not arrive", data="none of its files count")
    _agree(work, there, tally)
    return temporaries == {file.temporary for file in made}


def _agree(work: Work, there: Content, tally: Tally) -> None:
    if work.compared:
        compare(work.unit, there, tally.content())


def _discard(work: Work, temporaries: list[str]) -> None:
    for temporary in temporaries:
        work.store.remove(temporary)


def _write(work: Work, attempt: Temporary, batches: Batches, begun: list[str]) -> Iterator[Written]:
    """Each shard of each window, one open file at a time; then those that have no rows."""
    seen: set[Key] = set()
    for key, pieces in groupby(_pieces(work, batches), key=lambda piece: piece[0]):
        if key in seen:
            raise InvariantBroken(
                f"unit {work.unit}: the rows of shard {key[1]} came in two parts",
                data="nothing of this attempt was committed",
                hint="Spark has not kept a sort within its partition: report this with the Spark version",
            )
        seen.add(key)
        yield _file(work, attempt, key, (piece[1] for piece in pieces), begun)
    for window in work.windows:
        for shard in range(work.unit.partition, work.sink.shards, work.partitions):
            if (window, shard) not in seen:
                yield _file(work, attempt, (window, shard), iter(()), begun)


def _file(work: Work, attempt: Temporary, key: Key, batches: Batches, begun: list[str]) -> Written:
    (start, end), number = key
    shard = Shard(to_time(start), to_time(end), number, work.sink.shards)
    name = work.sink.name(work.unit.sink, shard)
    temporary = attempt.file(len(begun), name.rsplit(".", 1)[-1])
    rows = 0

    def passed() -> Batches:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    begun.append(temporary)
    with work.store.create(temporary) as file:
        formats.of(work.sink.format)(file, work.schema, passed())  # type: ignore[arg-type]
        passing("files-unit-mid-file")
    return Written(shard.window_start, shard.window_end, number, temporary, name, rows, file.bytes, file.checksum)


def _pieces(work: Work, batches: Batches) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """The batches cut where window or shard changes."""
    for batch in batches:
        if not batch.num_rows:
            continue
        keys = np.stack(
            [pc.fill_null(batch.column(name), 0).cast(pa.int64()).to_numpy() for name in (START, END, SHARD)]
        )
        cuts = [0, *(np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1).tolist(), batch.num_rows]
        body = batch.select(work.schema.names).cast(work.schema)
        windowed = batch.column(START).null_count == 0
        for first, last in pairwise(cuts):
            start, end, shard = keys[:, first].tolist()
            yield ((start, end) if windowed else (None, None), shard), body.slice(first, last - first)


def _check_whole(work: Work, made: list[Written], tally: Tally) -> None:
    wanted, written = tally.content().rows, sum(file.rows for file in made)
    if wanted != written:
        raise InvariantBroken(
            f"unit {work.unit}: {wanted} rows came, but {work.sink.format} has taken {written} of them",
            data="nothing of this attempt was committed",
            hint="a writer of your own must read its batches to their end",
        )
