"""The pipeline `shop` without Spark: its log by the product's own functions, its Delta tables by deltalake, its
checkpoints.

What Spark writes is stood in for by a few lines: the rows of `events`, one commit with its transaction for each batch,
and the files `offsets/<n>` and `commits/<n>`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.catalog import chunks as catalog
from onlyonce.catalog import look_up
from onlyonce.commitlog import batches, incarnations, units
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Declarations, Driver, Incarnations
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import Batch, Outcome, Plan, to_micros, to_time
from onlyonce.core.frontier import Frontier
from onlyonce.core.locations import Location
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import forget_connections, run
from onlyonce.database.statements import make_home
from onlyonce.receive import unit
from onlyonce.sources.record_id import of_values
from onlyonce.tables import commit as tables_commit
from onlyonce.tables import stores
from tests.contract.conftest import Log, plan_of
from tests.contract.receiver import FATES

SHOP = str(Path(__file__).resolve().parents[1] / "support" / "shop.py")
START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BUCKET = 2_945_000
INSTANT = pa.timestamp("us", tz="UTC")
FRONTIER = pa.struct([(name, INSTANT) for name in ("max_event_time", "ended", "silent_max_event_time", "silent_clock")])
EVENTS = pa.schema([
    ("id", pa.string()), ("oo_kind", pa.string()), ("oo_high", pa.int64()), ("oo_low", pa.int64()),
    ("oo_event_time", INSTANT), ("oo_ingestion_time", INSTANT), ("oo_incarnation", pa.string()), ("oo_batch", pa.int64()),
    ("oo_partition", pa.int32()), ("oo_frontier", FRONTIER), ("oo_reason", pa.string()), ("oo_raw", pa.string()),
    ("oo_place", pa.string()),
])  # fmt: skip
QUERIES = ("receive", "per_shop", "balance")
Sale = tuple[str, datetime] | tuple[str, str]
"""(id, event time) of a record, or (line, reason) of an invalid one."""


def at(minutes: float) -> datetime:
    """An event time."""
    return START + timedelta(minutes=minutes)


class Shop:
    """One platform with `shop`, driven batch by batch. Each query has a driver with a session, until `die`."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.pipeline = declarations.load()["shop"]
        self.drivers: dict[str, Driver] = {}
        self.next: dict[str, int] = {}
        self.read: dict[str, dict[str, int]] = {}
        for query in QUERIES:
            self.open(query)
            Declarations(self.log.database).keep(self.declared(query))  # type: ignore[misc]

    def open(self, query: str) -> None:
        """The first incarnation of a query begins."""
        self.drivers[query], self.next[query] = self.log.start("shop", query), 0
        live = Incarnations(self.log.database).live("shop", query)
        assert live is not None
        at = self.checkpoint(query) / "metadata"
        stores.of(at).put(at, json.dumps({"id": str(live.checkpoint_id)}).encode())

    def declared(self, query: str) -> incarnations.Declared:
        """As a driver keeps it."""
        mark, parts = declarations.fingerprint(self.pipeline, query), declarations.parts(self.pipeline, query)
        return incarnations.Declared("shop", query, mark, parts)

    def checkpoint(self, query: str) -> Any:
        """The folder of a query's first incarnation: a path, or a URL where the data is in a store."""
        return settings.data_location("shop") / "checkpoints" / query / "1"

    @property
    def events(self) -> Any:
        """The table, likewise."""
        return settings.data_location("shop") / "events"

    # --- receive ------------------------------------------------------------------------------------

    def receive(self, *sales: Sale, upto: str = "end", bucket: int = BUCKET) -> str:
        """The next batch: begin, units, land, end; it stops after `upto`. Gives its name."""
        number, driver = self._number("receive")
        time = datetime.fromtimestamp(bucket * 600, UTC)
        offset = {"reservoirVersion": number + 1, "index": -1, "batch_no": number, "lines": len(sales)}
        batch = self._begin(driver, number, "receive", ingestion_time=time, bucket=bucket, source_to=offset)
        name = f"{driver.incarnation}/{number}"
        self._write(self.checkpoint("receive") / "offsets", number)
        if upto == "begin":
            return name
        rows = [row for partition in range(2) for row in self._unit(driver, batch, list(sales), partition)]
        if upto == "units":
            return name
        version = self.land(batch, rows)
        if upto == "land":
            return name
        Batches(self.log.database).end_receive(driver, batch, len(sales), version, bounded=False)
        self._write(self.checkpoint("receive") / "commits", number)
        return name

    def _unit(self, driver: Driver, batch: Batch, sales: list[Sale], partition: int) -> list[dict[str, Any]]:
        plan = batch.plan
        place = catalog.Place(
            "shop", plan.bucket, batch.gc_floor, plan.incarnation, plan.batch_id, partition, plan.partitions
        )  # fmt: skip
        mine = [sale for sale in sales if self._ids(sale)[0] % 2 == partition]
        columns = _columns([(*self._ids(sale), sale[1]) for sale in mine], partition)
        work = unit.Work(driver.session(self.log.database), place, driver.epoch)
        [verdicts] = unit.judge(work)(iter([columns]))
        fates = [FATES[code] for code in verdicts.fates.tolist() if code != unit.SEED]
        return [
            self._row(batch, sale, fate, partition)
            for sale, fate in zip(mine, fates, strict=True)
            if fate != "duplicate"
        ]

    def _ids(self, sale: Sale) -> tuple[int, int]:
        found = of_values(self.pipeline, {"id": sale[0]})
        return (found.high, found.low) if isinstance(sale[1], datetime) else (found.high, found.high)

    def _row(self, batch: Batch, sale: Sale, fate: str, partition: int) -> dict[str, Any]:
        high, low = self._ids(sale)
        kept = isinstance(sale[1], datetime)
        return {
            "id": sale[0] if kept else None, "oo_kind": fate, "oo_high": high, "oo_low": low,
            "oo_event_time": sale[1] if kept else None, "oo_ingestion_time": batch.plan.ingestion_time,
            "oo_incarnation": batch.plan.incarnation, "oo_batch": batch.plan.batch_id, "oo_partition": partition,
            "oo_frontier": {part: to_time(value) for part, value in vars(batch.frontier).items()},
            "oo_reason": None if kept else sale[1], "oo_raw": None if kept else sale[0],
        }  # fmt: skip

    def land(self, batch: Batch, rows: list[dict[str, Any]]) -> int:
        """The one commit of a batch to `events`, with its transaction."""
        return commit(
            self.events, pa.Table.from_pylist(rows, EVENTS), f"{batch.plan.incarnation}/events", batch.plan.batch_id
        )  # fmt: skip

    # --- an output ----------------------------------------------------------------------------------

    def output(
        self,
        query: str = "per_shop",
        *,
        upto: str = "end",
        closes: tuple[datetime, ...] = (),
        opens: tuple[datetime, ...] = (),
    ) -> str:
        """The next batch of an output: it reads all of `events`, writes the windows that begin at `closes`, and meets
        records of those that begin at `opens`."""
        number, driver = self._number(query)
        offset = {"reservoirVersion": tables_commit.latest(self.events) + 1, "index": -1}
        before, self.read[query] = self.read.get(query), offset
        batch = self._begin(driver, number, query, source_from=before, source_to=offset, facts={"stateless": False})
        name = f"{driver.incarnation}/{number}"
        self._write(self.checkpoint(query) / "offsets", number, json.dumps(offset))
        if upto == "begin":
            return name
        unit = UnitId(driver.incarnation, number, query, 0)
        self._claim(driver, unit)
        if upto == "units":
            return name
        if query == "per_shop":
            rows = pa.table({"window_start": pa.array(list(closes), INSTANT)})
            commit(settings.table_location(f"shop/{query}"), rows, f"{driver.incarnation}/{query}", number)
        written = [{"window_start": start, "window_end": start + MINUTE, "rows": 1} for start in closes]
        met = [{"window_start": start, "window_end": start + MINUTE, "in_time": 1, "late": 0} for start in opens]

        def end(conn: Any) -> None:
            Batches(conn).count_windows(batch, query, pa.Table.from_pylist(met, batches.COUNTED))
            Batches(conn).add_panes(batch, "shop", query, pa.Table.from_pylist(written, batches.WRITTEN), final=True)
            Batches(conn).end(driver, batch, Outcome(in_time=0, late=0))

        run(self.log.database, end)
        self._write(self.checkpoint(query) / "commits", number)
        return name

    def _claim(self, driver: Driver, unit: UnitId) -> None:
        def work(conn: Any) -> None:
            Units(conn).claim(units.Claim(unit, driver.epoch, "task", "data"))
            Units(conn).fill(unit, Content(1, "hash"))

        run(driver.session(self.log.database), work)

    # --- drivers ------------------------------------------------------------------------------------

    def work(self) -> None:
        """All drivers have a session, as at work."""
        for driver in self.drivers.values():
            run(driver.session(self.log.database), lambda conn: conn.exec_driver_sql("SELECT 1"))

    def die(self) -> None:
        """All drivers are gone with their sessions; the server has noticed."""
        forget_connections()
        self.log.rows(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE 'onlyonce/%%/%%' "
            "AND datname = current_database()"
        )
        look_up.forget()

    def finish(self, name: str) -> None:
        """What a run would do with a begun output batch: the next driver ends it."""
        incarnation, number = name.rsplit("/", 1)
        query = incarnation.split("/")[1]
        driver = self.drivers[query] = self.log.restart(self.drivers[query])
        batch = Batches(self.log.database).find(incarnation, int(number))
        Batches(self.log.database).end(driver, batch, Outcome(in_time=0, late=0))
        self._write(self.checkpoint(query) / "commits", int(number))

    def _number(self, query: str) -> tuple[int, Driver]:
        self.next[query] += 1
        return self.next[query] - 1, self.drivers[query]

    def _begin(self, driver: Driver, number: int, query: str, **changed: Any) -> Batch:
        plan: Plan = plan_of(driver, number, declaration_hash=self.declared(query).hash, **changed)
        return Batches(driver.session(self.log.database)).begin(
            driver, "shop", plan, None if query == "receive" else Frontier()
        )

    def _write(self, folder: Location, number: int, offset: str = "{}") -> None:
        lines = ["v1", "{}", offset] if folder.name == "offsets" else ["v1", "{}"]
        stores.of(folder).put(folder / str(number), "\n".join(lines).encode())


def commit(path: Location, rows: pa.Table, app_id: str, version: int) -> int:
    """A Delta commit with its transaction; gives the table's version."""
    if isinstance(path, Path):
        path.mkdir(parents=True, exist_ok=True)
    write_deltalake(
        str(path), rows, mode="append", commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
        storage_options=stores.options_of_delta(path),
    )  # fmt: skip
    return tables_commit.latest(path)


def _columns(sales: list[tuple[int, int, Any]], partition: int) -> unit.Columns:
    """What Spark hands to the task of a partition: the records, and its seed."""
    kept = [isinstance(time, datetime) for _, _, time in sales]
    code = [unit.CANDIDATE if one else unit.INVALID for one in kept]
    times = [to_micros(time) if isinstance(time, datetime) else 0 for _, _, time in sales]
    zeros = [0] * (len(sales) + 1)
    high = np.array([high for high, _, _ in sales] + [partition], dtype=np.int64)
    low = np.array([low for _, low, _ in sales] + [0], dtype=np.int64)
    return (
        pa.array([*code, unit.SEED], pa.int8()), pa.array(high), pa.array(low), pa.array([*times, 0], pa.int64()),
        pa.array(zeros, pa.int64()), pa.array([False] * (len(sales) + 1)),
    )  # fmt: skip


@pytest.fixture
def shop(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    """A platform whose drivers have just started."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_READER_URL", log.server.url("reader", log.name))
    monkeypatch.setenv("ONLYONCE_PIPELINES", SHOP)
    return Shop(log)
