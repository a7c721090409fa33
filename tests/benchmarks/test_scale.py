"""What one driver does for a batch, by how many files, partitions and windows it has: 10, 100 and 1,000 of each, and
more windows; and for as many outputs.

No JVM.

What the executors do grows with the records and is spread over them. This does not spread: it bounds how far cores pay.
`docs/explanation/scale.md` computes from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection

from onlyonce.commitlog import batches, units
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import Batch, Outcome, to_micros
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import run
from onlyonce.sources.listing import new_files
from onlyonce.tables import arrow_files, own_tables
from onlyonce.tables import commit as tables_commit
from onlyonce.tables.commit import Appended
from tests.benchmarks import measure, page, plot, scaling
from tests.contract.conftest import Log, plan_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NUMBERS = (10, 100, 1_000)
WINDOWS = (*NUMBERS, 100_000, 1_000_000)
ROUNDS = 5
POSTGRES_CORES = (2, 8, 32)
START = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = Content(0, "0" * 32)


def test_scale(log: Log, tmp_path: Path) -> None:
    """Seconds of the driver, the median of five: of an inbox's new files, of the files that a commit names, of a
    batch's units, of its windows, and of a batch of each of many outputs in which one window closes."""
    found = {
        "files_listed": {number: _median(_listed, tmp_path / f"inbox-{number}", number) for number in NUMBERS},
        "files_committed": {number: _median(_committed, tmp_path / f"table-{number}", number) for number in NUMBERS},
        "partitions_ended": {number: _units(log, number) for number in NUMBERS},
        "windows_closed": {number: _windows(log, number) for number in WINDOWS},
        "outputs_closed": {number: _outputs(log, number) for number in NUMBERS},
    }
    shown = Table("", *(f"{number:,}" for number in WINDOWS), title="seconds of the driver for a batch")
    for name, each in found.items():
        shown.add_row(name, *(f"{each[number]:.3f}" if number in each else "" for number in WINDOWS))
    Console(width=110).print(shown)
    measure.keep(
        "scale",
        **{name: {str(number): seconds for number, seconds in each.items()} for name, each in found.items()},
        **measure.circumstances(),
    )
    kept = {name: measure.kept("scale")[name] for name in found}
    _compute(kept)
    plot.by_size(kept, page.DOCS / "scale.svg", f"one driver, 2 cores, {date.today()}")
    # In proportion, or nearly: nothing of it grows with the square of anything.
    for each in found.values():
        numbers = sorted(each)
        assert each[numbers[-1]] / max(each[numbers[-2]], 0.02) < 30


def _compute(found: dict[str, dict[str, float]]) -> None:
    """How far cores pay, by what receive's benchmark has measured of a record, and that of a pipeline that runs on of a
    small batch."""
    of_record = measure.kept("receive")["cpu_by_process_a_million"]["exactly_once"]

    def slope(name: str) -> float:
        return (found[name]["1000"] - found[name]["100"]) / 900

    costs = scaling.Costs(
        of_record=(of_record["jvm"] + of_record["workers"]) / 1e6, of_postgres=of_record["postgres"] / 1e6,
        of_batch=min(measure.kept("running")["batch_seconds"].values()), of_partition=slope("partitions_ended") + 2 * slope("files_committed"),
    )  # fmt: skip
    tables = {
        str(cores): scaling.table(costs, cores) | {"last_core_that_pays": scaling.last_that_pays(costs, cores)}
        for cores in POSTGRES_CORES
    }
    measure.keep("scale", costs=asdict(costs), receive_by_cores_of_postgres=tables)
    _tell(found, of_record, tables)


def _tell(found: dict[str, dict[str, float]], of_record: dict[str, float], tables: dict[str, Any]) -> None:
    """Into the page."""
    at, sizes = page.DOCS / "scale.md", [str(number) for number in WINDOWS]
    rows = [
        [name.replace("_", " "), *(f"{each[size]:.3f}" if size in each else "" for size in sizes)]
        for name, each in found.items()
    ]
    page.table("scale", ["", *(f"{number:,}" for number in WINDOWS)], rows, at)
    costs = {
        "Spark's JVM": "jvm",
        "Python workers": "workers",
        "PostgreSQL": "postgres",
        "the driver in Python": "driver",
    }
    page.table(
        "record_costs",
        ["", "processor seconds for a million records"],
        [[name, f"{of_record[kind]:.2f}"] for name, kind in costs.items()],
        at,
    )
    head = [
        "cores of PostgreSQL",
        *(f"{cores} cores: records/s (of proportional)" for cores in scaling.CORES),
        "pays up to",
    ]
    of_cores = [
        [
            by,
            *(f"{one[str(c)]['records_per_second']:,} ({one[str(c)]['of_proportional']:.2f})" for c in scaling.CORES),
            f"{one['last_core_that_pays']:,} cores",
        ]
        for by, one in tables.items()
    ]
    page.table("cores", head, of_cores, at)


def _median(work: Callable[[Path, int], float], at: Path, number: int) -> float:
    return round(measure.median([work(at / str(round_), number) for round_ in range(ROUNDS)]), 4)


def _listed(inbox: Path, number: int) -> float:
    """Files of a thousand lines each, found and counted."""
    inbox.mkdir(parents=True)
    line = (
        b'{"id":"r","at":"2026-01-01T00:00:00Z","amount":1,"note":"about a hundred bytes of a record, as they come"}\n'
    )
    for name in range(number):
        (inbox / f"{name}.jsonl").write_bytes(line * 1000)
    began = time.perf_counter()
    assert sum(file.lines for file in new_files(inbox, {})) == number * 1000
    return time.perf_counter() - began


def _committed(table: Path, number: int) -> float:
    """Files that tasks have written, named in one commit with their statistics."""
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "text": ["a"] * 100})
    DeltaTable.create(str(table), rows.schema)
    commit = tables_commit.Commit("shop/receive/1/events", 0, "shop/receive/1/0/events", 1, "hash")

    def write(folder: Path) -> list[Path]:
        names = [folder / f"{name}.parquet" for name in range(number)]
        for name in names:
            arrow_files.write(name, rows)
        began[0] = time.perf_counter()
        return names

    began = [0.0]
    own_tables.append(write, Appended(table), commit)  # type: ignore[arg-type]
    return time.perf_counter() - began[0]


def _units(log: Log, number: int) -> float:
    """The end of a batch that sees that each partition has its unit."""
    driver = log.start(query=f"units{number}")
    seconds = []
    for batch_id in range(ROUNDS):
        batch = Batches(log.database).begin(  # type: ignore[misc]
            driver, "shop", plan_of(driver, batch_id, partitions=number), None
        )
        Units(log.database).commit_same(  # type: ignore[misc]
            driver.incarnation, batch_id, "rows", number, driver.epoch, NOTHING
        )

        def end(conn: Any, batch: Any = batch) -> None:
            units.expect(
                Units(conn).of_batch(driver.incarnation, batch.plan.batch_id),
                "rows",
                number,
                driver.incarnation,
                batch.plan.batch_id,
            )
            Batches(conn).end(driver, batch, Outcome(in_time=0, late=0))

        began = time.perf_counter()
        run(log.database, end)
        seconds.append(time.perf_counter() - began)
    return round(measure.median(seconds), 4)


def _windows(log: Log, number: int) -> float:
    """A batch in which so many windows have had records, and close."""
    driver = log.start(query=f"windows{number}")
    seconds = []
    for batch_id in range(ROUNDS if number < 1_000_000 else 1):
        batch = Batches(log.database).begin(driver, "shop", plan_of(driver, batch_id), None)
        unit = UnitId(driver.incarnation, batch_id, "rows", 0)
        Units(log.database).commit_same(  # type: ignore[misc]
            unit.incarnation, unit.batch_id, unit.sink, 2, driver.epoch, NOTHING
        )
        end = partial(_end, driver=driver, batch=batch, output=f"windows{number}", closed=_closed(batch_id, number))
        began = time.perf_counter()
        run(log.database, end)
        seconds.append(time.perf_counter() - began)
    return round(measure.median(seconds), 4)


def _outputs(log: Log, number: int) -> float:
    """As many outputs, each of which ends a batch of its own in which one window closes."""
    drivers = [log.start(query=f"one{name}of{number}") for name in range(number)]
    seconds = []
    for batch_id in range(ROUNDS):
        begun = [
            (
                driver,
                Batches(log.database).begin(driver, "shop", plan_of(driver, batch_id), None),
            )
            for driver in drivers
        ]
        closed = _closed(batch_id, 1)
        began = time.perf_counter()
        for driver, batch in begun:
            run(log.database, partial(_end, driver=driver, batch=batch, output=driver.incarnation, closed=closed))
        seconds.append(time.perf_counter() - began)
    return round(measure.median(seconds), 4)


def _closed(batch_id: int, number: int) -> tuple[pa.Table, pa.Table]:
    """(what a batch has met, what it has written) of as many windows, in the order in which Spark gives groups:
    none."""
    starts = (to_micros(START + timedelta(days=batch_id)) or 0) + 1000 * np.random.default_rng(number).permutation(
        number
    )
    ends, ones, none = starts + 30_000_000, np.ones_like(starts), pa.nulls(number)
    met = pa.table([starts, ends, ones, 0 * ones, 0 * ones, none, none], batches.COUNTED.names)
    return met.cast(batches.COUNTED), pa.table([starts, ends, ones], batches.WRITTEN.names).cast(batches.WRITTEN)


def _end(conn: Connection, driver: Driver, batch: Batch, output: str, closed: tuple[pa.Table, pa.Table]) -> None:
    met, written = closed
    Batches(conn).count_windows(batch, output, met)
    Batches(conn).add_panes(batch, "shop", output, written, final=True)
    Batches(conn).end(driver, batch, Outcome(in_time=met.num_rows, late=0))
