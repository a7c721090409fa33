"""What one driver does for a batch, by how many files, partitions and windows it has: 10, 100 and 1,000 of each, and more windows. No JVM.

What the executors do grows with the records and is spread over them. This does not spread: it bounds how far cores pay. `docs/explanation/scale.md` computes from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from onlyonce.commitlog import batches, units
from onlyonce.database.connect import run
from onlyonce.model.batch import Outcome
from onlyonce.model.units import Content, UnitId
from onlyonce.sources.files.listing import new_files
from onlyonce.storage import delta, own_tables
from onlyonce.storage.appended import Appended
from onlyonce.storage.stores import arrow
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
    """Seconds of the driver, the median of five: of an inbox's new files, of the files that a commit names, of a batch's units and of its windows."""
    found = {
        "files_listed": {number: _median(_listed, tmp_path / f"inbox-{number}", number) for number in NUMBERS},
        "files_committed": {number: _median(_committed, tmp_path / f"table-{number}", number) for number in NUMBERS},
        "partitions_ended": {number: _units(log, number) for number in NUMBERS},
        "windows_closed": {number: _windows(log, number) for number in WINDOWS},
    }
    shown = Table("", *(f"{number:,}" for number in WINDOWS), title="seconds of the driver for a batch")
    for name, each in found.items():
        shown.add_row(name, *(f"{each[number]:.3f}" if number in each else "" for number in WINDOWS))
    Console(width=110).print(shown)
    measure.keep("scale", **{name: {str(number): seconds for number, seconds in each.items()} for name, each in found.items()}, **measure.circumstances())
    kept = {name: measure.kept("scale")[name] for name in found}
    _compute(kept)
    plot.by_size(kept, page.DOCS / "scale.svg", f"one driver, 2 cores, {date.today()}")
    # In proportion, or nearly: nothing of it grows with the square of anything.
    for each in found.values():
        numbers = sorted(each)
        assert each[numbers[-1]] / max(each[numbers[-2]], 0.02) < 30


def _compute(found: dict[str, dict[str, float]]) -> None:
    """How far cores pay, by what receive's benchmark has measured of a record, and that of a pipeline that runs on of a small batch."""
    of_record = measure.kept("receive")["cpu_by_process_a_million"]["exactly_once"]

    def slope(name: str) -> float:
        return (found[name]["1000"] - found[name]["100"]) / 900

    costs = scaling.Costs(
        of_record=(of_record["jvm"] + of_record["workers"]) / 1e6, of_postgres=of_record["postgres"] / 1e6,
        of_batch=min(measure.kept("running")["batch_seconds"].values()), of_partition=slope("partitions_ended") + 2 * slope("files_committed"),
    )  # fmt: skip
    tables = {str(cores): scaling.table(costs, cores) | {"last_core_that_pays": scaling.last_that_pays(costs, cores)} for cores in POSTGRES_CORES}
    measure.keep("scale", costs=asdict(costs), receive_by_cores_of_postgres=tables)


def _median(work: Callable[[Path, int], float], at: Path, number: int) -> float:
    return round(measure.median([work(at / str(round_), number) for round_ in range(ROUNDS)]), 4)


def _listed(inbox: Path, number: int) -> float:
    """Files of a thousand lines each, found and counted."""
    inbox.mkdir(parents=True)
    line = b'{"id":"r","at":"2026-01-01T00:00:00Z","amount":1,"note":"about a hundred bytes of a record, as they come"}\n'
    for name in range(number):
        (inbox / f"{name}.jsonl").write_bytes(line * 1000)
    began = time.perf_counter()
    assert sum(file.lines for file in new_files(inbox, {})) == number * 1000
    return time.perf_counter() - began


def _committed(table: Path, number: int) -> float:
    """Files that tasks have written, named in one commit with their statistics."""
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "text": ["a"] * 100})
    DeltaTable.create(str(table), rows.schema)
    commit = delta.Commit("shop/receive/1/events", 0, "shop/receive/1/0/events", 1, "hash")

    def write(folder: Path) -> list[Path]:
        names = [folder / f"{name}.parquet" for name in range(number)]
        for name in names:
            arrow.write(name, rows)
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
        batch = run(log.database, lambda conn, batch_id=batch_id: batches.begin(conn, driver, "shop", plan_of(driver, batch_id, partitions=number), None))  # type: ignore[misc]
        run(log.database, lambda conn, batch_id=batch_id: units.commit_alike(conn, driver.lineage, batch_id, "rows", number, driver.epoch, NOTHING))  # type: ignore[misc]

        def end(conn: Any, batch: Any = batch) -> None:
            units.expect(units.of_batch(conn, driver.lineage, batch.plan.batch_id), "rows", number, driver.lineage, batch.plan.batch_id)
            batches.end(conn, driver, batch, Outcome(in_time=0, late=0))

        began = time.perf_counter()
        run(log.database, end)
        seconds.append(time.perf_counter() - began)
    return round(measure.median(seconds), 4)


def _windows(log: Log, number: int) -> float:
    """A batch in which so many windows have had records, and close."""
    driver = log.start(query=f"windows{number}")
    seconds = []
    for batch_id in range(ROUNDS if number < 1_000_000 else 1):
        batch = run(log.database, lambda conn, batch_id=batch_id: batches.begin(conn, driver, "shop", plan_of(driver, batch_id), None))  # type: ignore[misc]
        unit = UnitId(driver.lineage, batch_id, "rows", 0)
        run(log.database, lambda conn, unit=unit: units.commit_alike(conn, unit.lineage, unit.batch_id, unit.sink, 2, driver.epoch, NOTHING))  # type: ignore[misc]
        times = [START + timedelta(days=batch_id) + timedelta(milliseconds=at) for at in range(number)]
        bounds = [{"window_start": at, "window_end": at + timedelta(seconds=30)} for at in times]

        def end(conn: Any, batch: Any = batch, bounds: list[dict[str, Any]] = bounds) -> None:
            batches.count_windows(conn, batch, f"windows{number}", [one | {"in_time": 1, "late": 0, "rejected": 0} for one in bounds])
            same = {"instance": "shop", "output": f"windows{number}", "generation": 0, "final": True, "rows": 1}
            batches.add_panes(conn, batch, [same | one for one in bounds])
            batches.end(conn, driver, batch, Outcome(in_time=number, late=0))

        began = time.perf_counter()
        run(log.database, end)
        seconds.append(time.perf_counter() - began)
    return round(measure.median(seconds), 4)
