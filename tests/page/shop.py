"""A pipeline `shop` in the log by the product's own functions: receive, an output, windows, late rows, backfills,
ids."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from sqlalchemy import Connection

from onlyonce.catalog import chunks as catalog
from onlyonce.catalog.chunks import Chunks
from onlyonce.commitlog import backfills, drivers, units
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.batches import COUNTED, WRITTEN, Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.units import Units
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Outcome
from onlyonce.core.units import Content, Counts, UnitId
from onlyonce.database.connect import run
from onlyonce.sources import record_id
from tests.contract.conftest import Log, plan_of
from tests.support.shop import SHOP

DAY = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PARTITIONS = 2
EVIL = "<script>alert('x')</script>&\"<b>"
"""What a name may be that nobody has checked."""


@dataclass
class Shop:
    """The drivers of one instance, and what they have committed so far."""

    log: Log
    instance: str = "shop"
    drivers: dict[str, Driver] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=lambda: {"receive": 0, "per_shop": 0})

    def __post_init__(self) -> None:
        self.drivers = self.drivers or {query: self.log.start(self.instance, query) for query in self.next}

    def on(self, log: Log) -> Shop:
        """The same in a copy of its database."""
        return replace(self, log=log, next=dict(self.next))

    def do(self, *works: Any) -> None:
        """Some of the works below, in one transaction."""

        def all_of_them(connection: Connection) -> None:
            for work in works:
                work(connection)

        run(self.log.database, all_of_them)

    def receive(self, *, duplicate: int = 3, invalid: int = 0, ends: bool = True, run_id: str | None = None) -> Any:
        """One receive batch: two units, their ids in the catalog, a commit of `events`."""
        return lambda connection: self._receive(connection, duplicate, invalid, ends, run_id)

    def _receive(self, connection: Connection, duplicate: int, invalid: int, ends: bool, run_id: str | None) -> None:
        number, driver = self._number("receive", run_id)
        bucket = 1000 + number // 20
        plan = plan_of(
            driver, number, bucket=bucket, partitions=PARTITIONS, ingestion_time=DAY + number * timedelta(minutes=10),
            source_to={"batch_no": number, "lines": 20 + duplicate + invalid},
        )  # fmt: skip
        batch = Batches(connection).begin(driver, self.instance, plan, None)
        for partition in range(PARTITIONS):
            place = catalog.Place(self.instance, bucket, 0, driver.incarnation, number, partition, PARTITIONS)
            Chunks(connection).add(place, bytes(16 * 10), bytes(24))
            first = partition == 0
            counts = Counts(10, invalid * first, 0, duplicate * first, 0, DAY + number * HOUR)
            unit = UnitId(driver.incarnation, number, "events", partition)
            self._unit(connection, driver, unit, 10, counts)
            in_vain = int(first and number % 25 == 0)
            took = catalog.LookUps(10 * (number + 1) - in_vain, in_vain + duplicate * first, in_vain)
            Chunks(connection).note_look_ups(str(unit), took)
        if ends:
            read = 20 + duplicate + invalid
            Batches(connection).end_receive(driver, batch, read, number + 1, bounded=False)

    def output(self, *, late: int = 0, run_id: str | None = None) -> Any:
        """The output's next batch: it has read the next version, met the hour of that batch, and closed it."""
        return lambda connection: self._output(connection, late, run_id)

    def _output(self, connection: Connection, late: int, run_id: str | None) -> None:
        number, driver = self._number("per_shop", run_id)
        plan = plan_of(driver, number, partitions=1, source_to={"reservoirVersion": number + 2, "index": -1})
        batch = Batches(connection).begin(driver, self.instance, plan, None)
        self._unit(connection, driver, UnitId(driver.incarnation, number, "per_shop", 0), 4)
        window = {"window_start": DAY + number * HOUR, "window_end": DAY + (number + 1) * HOUR}
        counts = [window | {"in_time": 20 - late, "late": late}]
        Batches(connection).count_windows(batch, "per_shop", pa.Table.from_pylist(counts, COUNTED))
        written = pa.Table.from_pylist([window | {"rows": 4}], WRITTEN)
        Batches(connection).add_panes(batch, self.instance, "per_shop", written, final=True)
        Batches(connection).end(driver, batch, Outcome(in_time=20 - late, late=late))

    def driven_by(self, dag_id: str, run_id: str) -> None:
        """A driver of a run of a DAG, which may have any name, has begun and ended."""
        with drivers.noted_run(self.log.database, dag_id, run_id, self.instance):
            pass

    def backfill(self, first: int, last: int, run_id: str) -> None:
        """The windows of some hours, recomputed."""
        span = Span.of(DAY + first * HOUR, DAY + last * HOUR)
        asked = backfills.Request(self.instance, "per_shop", span, "person", "d1")
        driver = Backfills(self.log.database).open_incarnation(asked, run_id)
        number = Backfills(driver.session(self.log.database)).begin(driver, asked, 10**6)
        panes = [
            {"window_start": DAY + n * HOUR, "window_end": DAY + (n + 1) * HOUR, "rows": 5} for n in range(first, last)
        ]
        counts = {"windows": len(panes), "rows": 5 * len(panes), "in_time": 20 * len(panes), "late": 1}

        def end(connection: Connection) -> None:
            self._unit(connection, driver, UnitId(driver.incarnation, number, "per_shop", 0), 5 * len(panes))
            made = pa.Table.from_pylist(panes, backfills.MADE)
            Backfills(connection).end(driver, asked, number, span, {"per_shop": made}, counts)

        run(driver.session(self.log.database), end)

    def break_books(self) -> None:
        """One record less is kept by a batch than its units say: what no code of the product can do."""
        statement = "UPDATE onlyonce_private.batches SET kept = kept - 1, read = read - 1 WHERE (incarnation, batch_id) = (%s, %s)"
        self.log.rows(statement, self.drivers["receive"].incarnation, self.next["receive"] - 2)

    def _unit(
        self, connection: Connection, driver: Driver, unit: UnitId, rows: int, counts: Counts | None = None
    ) -> None:
        kind: Any = "reference" if counts else "data"
        Units(connection).claim(units.Claim(unit, driver.epoch, "0.0", kind))
        Units(connection).fill(unit, Content(rows, f"hash of {unit}"), counts)

    def _number(self, query: str, run_id: str | None) -> tuple[int, Driver]:
        driver, number = self.drivers[query], self.next[query]
        self.next[query] += 1
        return number, replace(driver, run_id=run_id or f"scheduled__{number // 40}")


def filled(log: Log, batches_each: int = 120) -> Shop:
    """A pipeline of so many batches, the last one begun only; the output has two versions still to read."""
    shop = Shop(log)
    received = [shop.receive(duplicate=n % 5, invalid=n % 50 == 7) for n in range(batches_each)]
    shop.do(*received, shop.receive(ends=False))
    shop.do(*(shop.output(late=3 if n % 30 == 4 else 0) for n in range(batches_each - 2)))
    shop.backfill(3, 6, "manual__backfill")
    shop.backfill(4, 5, "manual__again")
    for dag_id, run_id in (("hourly", "scheduled__0"), ("hourly", "scheduled__1"), ("again", "manual__backfill")):
        shop.driven_by(dag_id, run_id)
    return shop


def events(home: Path, instance: str = "shop") -> None:
    """The table `events` with a few records: three kept, one of them with odd values, and two invalid.

    One kept and one invalid record have an id of the pipeline in `tests/support/shop.py`.
    """
    declared = record_id.of_values(SHOP, {"id": "R0000970"})
    records = [
        _record("kept", declared.high, declared.low, {"shop": "south", "sale": 4, "at": DAY + 2 * HOUR}),
        _record("invalid", 8, 8, {}, reason="no time", place="/data/in/a.jsonl, byte 99", raw='{"id": "R0000971"}'),
        _record("kept", 1, -2, {"shop": "north", "sale": 1, "at": DAY}),
        _record("kept", 2**63 - 1, 5, {"shop": EVIL, "sale": 2, "at": DAY + HOUR}),
        _record("invalid", 7, 7, {}, reason="the line is blank", place="/data/in/a.jsonl, byte 12", raw=EVIL),
    ]
    schema = pa.schema([
        ("shop", pa.string()), ("sale", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("oo_kind", pa.string()),
        ("oo_high", pa.int64()), ("oo_low", pa.int64()), ("oo_event_time", pa.timestamp("us", tz="UTC")),
        ("oo_ingestion_time", pa.timestamp("us", tz="UTC")), ("oo_incarnation", pa.string()), ("oo_batch", pa.int64()),
        ("oo_partition", pa.int32()), ("oo_reason", pa.string()), ("oo_place", pa.string()), ("oo_raw", pa.string()),
    ])  # fmt: skip
    path = home / "data" / instance / "events"
    write_deltalake(str(path), pa.Table.from_pylist(records, schema=schema), partition_by=["oo_kind"])


def _record(kind: str, high: int, low: int, values: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "shop": None, "sale": None, "at": None, **values, "oo_kind": kind, "oo_high": high, "oo_low": low,
        "oo_event_time": values.get("at"), "oo_ingestion_time": DAY, "oo_incarnation": "shop/receive/1", "oo_batch": 3,
        "oo_partition": 1, "oo_reason": None, "oo_place": None, "oo_raw": None,
    } | {f"oo_{name}": value for name, value in more.items()}  # fmt: skip
