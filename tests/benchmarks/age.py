"""A platform after so many batches, in a process of its own, which takes in real batches without a JVM.

A batch is the product's own code from its begin to the merge after it: the lines of a file are read, judged and written
by the driver (`in_driver`), one Delta commit names the files, and PostgreSQL has begin, units and end. Not in it:
Spark's own offsets and commits, the manifest of files, the outputs.

What came before is made in bulk (`ageing.py`), as the hourly collection and `maintain` would have left it: the rows of
the log, a day of the catalog, `events` in large files, and a day of entries of its Delta log. Then an hour of batches
is real, with collection and compaction at its end; then come those that are measured.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psutil
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

from onlyonce import settings
from onlyonce.catalog import chunks as catalog
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.core.batch import Plan
from onlyonce.database.connect import Database
from onlyonce.engine import worker
from onlyonce.operate import compact, gc
from onlyonce.receive import batch_files, events, loop
from onlyonce.sources.line_reader import Range
from onlyonce.sources.lines import Lines
from onlyonce.sources.values import fast_json
from onlyonce.tables import attempt_files, own_tables
from onlyonce.tables import commit as tables_commit
from onlyonce.tables.commit import Appended
from tests.benchmarks import ageing
from tests.benchmarks.ageing import EACH, START
from tests.contract.conftest import ask
from tests.support.shop import SHOP

AN_HOUR = 60
"""A batch a minute."""
MEASURED = 60

INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([
    ("id", pa.string()), ("shop", pa.string()), ("at", INSTANT), ("cents", pa.int64()), ("weight", pa.float64()),
    ("oo_kind", pa.string()), ("oo_high", pa.int64()), ("oo_low", pa.int64()), ("oo_event_time", INSTANT), ("oo_ingestion_time", INSTANT),
    ("oo_incarnation", pa.string()), ("oo_batch", pa.int64()), ("oo_partition", pa.int32()), ("oo_frontier", events.FRONTIER_ROW),
    ("oo_reason", pa.string()), ("oo_raw", pa.string()), ("oo_unknown", pa.string()),
])  # fmt: skip
"""Of the pipeline `shop`, and the platform's columns (`events.PLATFORM`): Spark alone reads the text of either."""


@dataclass
class Aged:
    """One platform and a driver that has just started.

    It is made with nothing in it, unless there is a `next` batch; `grow` makes it old, `step` takes in a batch.
    """

    url: str
    home: Path
    next: int = 0
    known: str = '{"id": "never"}'
    driver: Driver = field(init=False)

    def __post_init__(self) -> None:
        # Spark reads the text of a schema in its JVM.
        vars(fast_json)["schemas"] = SimpleNamespace(of=_of_plain_types)
        os.environ |= {"ONLYONCE_HOME": str(self.home), "ONLYONCE_DATABASE_URL": self.url}
        if not self.next:
            self._make()
        incarnation = Incarnations(self.database).register("shop", "receive", uuid4())
        self.driver = Incarnations(self.database).bump(incarnation, "bench")

    def _make(self) -> None:
        Incarnations(self.database).add_instance("shop", "shop")
        self.events.mkdir(parents=True)
        DeltaTable.create(str(self.events), SCHEMA, partition_by=["oo_kind"], configuration=events.PROPERTIES)  # type: ignore[arg-type]

    @property
    def database(self) -> Database:
        """Where the log is."""
        return Database(self.url)

    @property
    def events(self) -> Path:
        """The table."""
        return settings.data_dir("shop") / "events"

    # --- what is measured ----------------------------------------------------------------------------

    def step(self) -> tuple[float, float]:
        """Take in the next batch, of which one record came before; gives seconds by the clock and of this process's
        processor."""
        number, self.next = self.next, self.next + 1
        lines = self._input(number)
        began, used = time.perf_counter(), time.process_time()
        self._take_in(number, lines)
        return time.perf_counter() - began, time.process_time() - used

    def _take_in(self, number: int, lines: Lines) -> None:
        at = START + timedelta(minutes=number)
        plan = Plan(
            incarnation=self.driver.incarnation, batch_id=number, source_from=None, offsets_hash=f"hash {number}", partitions=2,
            source_to={"reservoirVersion": number + 1, "index": -1, "batch_no": number, "lines": EACH}, ingestion_time=at,
            bucket=int(at.timestamp()) // catalog.BUCKET_SECONDS, settings={"spark.sql.shuffle.partitions": "2"},
            mode="exactly_once", declaration_hash="d1",
        )  # fmt: skip
        batch = Batches(self.database).begin(self.driver, "shop", plan, None)
        # What `written` asks of a run and of a query, where it needs no Spark.
        context: Any = SimpleNamespace(pipeline=SHOP, instance="shop", bounded=False, spark=None)
        query: Any = SimpleNamespace(database=self.database, driver=self.driver, incarnation=self.driver.incarnation)
        commit = tables_commit.Commit(
            f"{plan.incarnation}/events",
            number,
            f"{plan.incarnation}/{number}/events",
            self.driver.epoch,
            plan.offsets_hash,
        )
        written = own_tables.append(
            lambda folder: batch_files.write_batch(context, query, batch, lines, folder), Appended(self.events), commit
        )
        version = own_tables.exactly(self.events, written)
        Batches(self.database).end_receive(self.driver, batch, EACH, version, bounded=False)
        loop.merge_catalog(self.database, self.driver, "shop", plan)

    def _input(self, number: int) -> Lines:
        at = (START + timedelta(minutes=number)).isoformat()
        new = [
            json.dumps({"id": f"{number}-{n}", "shop": "a", "at": at, "cents": n, "weight": 0.5})
            for n in range(EACH - 1)
        ]
        path = self.home / "inbox" / f"{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([*new, self.known if number else new[0]]) + "\n")
        self.known = new[0]
        size = path.stat().st_size
        return Lines([Range(str(path), number, 0, size, size)], None)

    def grow(self, upto: int) -> None:
        """As it is after so many batches. The first one is real: the rows of `events` are like its rows."""
        self.step()
        if upto > self.next:
            ageing.log(self.url, self.driver, self.next, upto)
            ageing.catalog_of(self.database, self.driver, upto)
            ageing.events_of(self.events, self.driver, upto)
            self.next = upto

    def tidy(self) -> None:
        """What the hourly jobs do."""
        gc.collect_instance(self.database, "shop", SHOP, [])
        gc.fold_sums(self.database)
        compact.compact(self.database, "shop", [], dry_run=False)
        attempt_files.sweep_attempts("shop", 0, [])

    def found(self) -> dict[str, float]:
        """What there is now."""
        [(size,)] = ask(self.url, "SELECT pg_database_size(current_database())")
        [(filters,)] = ask(
            self.url,
            "SELECT count(*) FROM onlyonce_private.catalog_chunks c JOIN onlyonce_private.pipelines p USING (instance) "
            "WHERE c.partition = 0 AND c.bucket >= p.gc_floor",
        )
        return {
            "files": len(DeltaTable(str(self.events)).file_uris()), "filters": filters, "database_bytes": size,
            "log_bytes": sum(file.stat().st_size for file in (self.events / "_delta_log").iterdir()),
            "driver_mb": round(psutil.Process().memory_info().rss / 2**20, 1),
        }  # fmt: skip


def _of_plain_types(ddl: str) -> StructType:
    kinds = {"string": StringType(), "timestamp": TimestampType(), "long": LongType(), "double": DoubleType()}
    return StructType(
        [StructField(*field) for field in ((n, kinds[k]) for n, k in (one.split() for one in ddl.split(",")))]
    )


# --- processes ----------------------------------------------------------------------------------------

_here: list[Aged] = []


def prepare(url: str, home: Path, upto: int) -> str:
    """In a process of its own, as the jobs have: a platform as it is before those batches that are measured; gives the
    last new record."""
    aged = Aged(url, home)
    aged.grow(max(upto - MEASURED - AN_HOUR, 1))
    while aged.next < upto - MEASURED:
        aged.step()
    aged.tidy()
    return aged.known


def begin(url: str, home: Path, upto: int, known: str) -> None:
    """In its process: the driver of those batches starts."""
    _here.append(Aged(url, home, upto - MEASURED, known))
    worker.leave_out_what_is_here()  # as a driver does whose session has started


def step() -> tuple[float, float]:
    """In its process: a batch."""
    return _here[0].step()


def found() -> dict[str, float]:
    """In its process: what there is."""
    return _here[0].found()
