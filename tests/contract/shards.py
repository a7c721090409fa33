"""A file sink without Spark: the product's own task over Arrow batches, its batches in the log, and its files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyspark

from onlyonce.api.pipeline import Output
from onlyonce.api.sinks import FileSink
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.files import Files
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.batch import Outcome, to_micros
from onlyonce.core.units import UnitId
from onlyonce.core.windows import Fixed
from onlyonce.database.connect import run
from onlyonce.sinks.base.content import HASH
from onlyonce.sinks.base.pinned import PARTITION
from onlyonce.sinks.files import sink_files
from onlyonce.sinks.files.file_stores import folder_of, store_of
from onlyonce.testing.suite import Context, hash_of
from tests.contract.conftest import NOON, Log, plan_of

MINUTE = timedelta(minutes=1)
LINE = pa.schema([("oo_line", pa.string())])
Sale = dict[str, Any]


def sales(count: int, minute: int = 0, first: int = 0) -> list[Sale]:
    """Sales of one minute, each different."""
    at = NOON + minute * MINUTE
    return [{"window_start": at, "id": f"s{minute}-{n}"} for n in range(first, first + count)]


@dataclass
class Shards:
    """One output with a file sink: `batch` writes and commits one, as outputs do."""

    log: Log
    driver: Driver
    sink: FileSink = field(default_factory=lambda: FileSink(shards=4))
    partitions: int = 2
    place: str = "shop/sales"

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return folder_of(self.place)

    @property
    def output(self) -> Output:
        """The output as it is declared."""
        return Output(name="sales", transform="a:b", window=Fixed(MINUTE), sink=self.sink)

    def begin(self, number: int = 0) -> None:
        """The batch row."""
        plan = plan_of(self.driver, number, partitions=self.partitions)
        Batches(self.log.database).begin(self.driver, "shop", plan, None)

    def unit(self, number: int, partition: int) -> UnitId:
        """A unit of this sink."""
        return UnitId(self.driver.incarnation, number, "sales", partition)

    def task(self, number: int, partition: int, rows: list[Sale], attempt: int = 0, **changed: Any) -> int:
        """One attempt at one partition; gives how many files of it count."""
        work = sink_files.Work(
            self.log.database, self.unit(number, 0), self.driver.number, self.driver.epoch, self.sink, self.place,
            store_of(self.place), LINE, (), self.partitions, self.windows(rows),
        )  # fmt: skip
        with mock.patch.object(pyspark.TaskContext, "get", return_value=Context(partition, attempt)):
            made = list(sink_files.write_unit(replace(work, **changed))(self.pieces(rows, partition)))
        return int(made[0].column("files")[0].as_py())

    def windows(self, rows: list[Sale]) -> tuple[Any, ...]:
        """The windows of a batch, in microseconds."""
        return tuple(sorted({(to_micros(r["window_start"]), to_micros(r["window_start"] + MINUTE)) for r in rows}))

    def pieces(self, rows: list[Sale], partition: int, size: int = 3) -> Iterator[pa.RecordBatch]:
        """The rows of one partition as Spark's plan gives them: placed, sorted, cut anywhere."""
        placed = [self._placed(row) for row in rows]
        mine = sorted(
            (row for row in placed if row["oo_shard"] % self.partitions == partition),
            key=lambda row: (row["oo_start"], row["oo_shard"], row[HASH]),
        )
        for first in range(0, len(mine), size):
            yield pa.RecordBatch.from_pylist(mine[first : first + size])

    def _placed(self, row: Sale) -> dict[str, Any]:
        number = hash_of(row)
        start = to_micros(row["window_start"])
        assert start is not None
        shard = number % self.sink.shards
        return {
            "oo_line": text(row), "oo_start": start, "oo_end": start + MINUTE // timedelta(microseconds=1),
            "oo_shard": shard, HASH: number, PARTITION: shard % self.partitions,
        }  # fmt: skip

    def end(self, number: int = 0) -> None:
        """The batch is committed, its files become panes."""
        plan = plan_of(self.driver, number, partitions=self.partitions)

        def work(conn: Any) -> None:
            sink_files.give_pane_names(Files(conn), self.output, self.place, self.driver.incarnation, number)
            batch = Batches(conn).find(plan.incarnation, number)
            Batches(conn).end(self.driver, batch, Outcome(in_time=0, late=0))

        run(self.log.database, work)

    def batch(self, number: int, rows: list[Sale]) -> None:
        """A whole batch."""
        self.begin(number)
        for partition in range(self.partitions):
            self.task(number, partition, rows)
        self.end(number)

    def names(self) -> list[str]:
        """The final names that are there."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if self._is_final(path))

    def pending(self) -> list[str]:
        """The temporaries that are there."""
        return sorted(path.name for path in (self.folder / ".pending").glob("*"))

    def lines(self) -> Counter[str]:
        """All lines of all final files."""
        return Counter(line for name in self.names() for line in (self.folder / name).read_text().splitlines())

    def _is_final(self, path: Path) -> bool:
        return path.is_file() and ".pending" not in path.parts


def text(row: Sale) -> str:
    """A row as a line."""
    return json.dumps({"id": row["id"], "at": row["window_start"].isoformat()})


def wanted(*rows: Sale) -> Counter[str]:
    """What final files must hold, all together."""
    return Counter(text(row) for row in rows)


def name_of(minute: int, shard: int, shards: int = 4, pane: int = 0) -> str:
    """The final name by the default naming."""
    start = NOON + minute * MINUTE
    times = "-".join(f"{time:%Y%m%dT%H%M%S}Z" for time in (start, start + MINUTE))
    return f"sales-{times}-pane-{pane}-{shard:05}-of-{shards:05}.jsonl"
