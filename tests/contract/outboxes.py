"""Rows in the outbox as a stream's task commits them, and their delivery in this process or one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyspark

from onlyonce.api.pipeline import Output, Sent
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.outbox import OutboxRows
from onlyonce.core.units import UnitId
from onlyonce.settings import ROOT
from onlyonce.sinks.outbox import deliver
from onlyonce.sinks.postgres import postgres_unit
from onlyonce.testing.suite import Context, hashed
from tests.contract.conftest import Log

Row = dict[str, Any]


@dataclass
class Outbox:
    """The outbox of one output of the pipeline `shop`."""

    log: Log
    output: str = "notify"
    driver: Driver = field(init=False)
    next: int = 0

    def __post_init__(self) -> None:
        self.driver = self.log.start("shop", self.output)

    def put(self, rows: Sequence[Row], key: str | None = "shop", partition: int = 0) -> str:
        """One unit with these rows, as the task of a new batch commits it; gives its id."""
        self.next += 1
        return self.commit(self.driver, self.next - 1, rows, key, partition)

    def commit(
        self, driver: Driver, batch: int, rows: Sequence[Row], key: str | None = "shop", partition: int = 0
    ) -> str:
        """The same for a batch of some driver, of a stream or a backfill."""
        unit = UnitId(driver.incarnation, batch, self.output, 0)
        origin = OutboxRows(self.log.database).origin(driver.incarnation)
        there = UnitId(unit.incarnation, unit.batch_id, unit.sink, partition)
        columns = [
            {
                "instance": "shop", "output": self.output, "unit": str(there), "seq": seq, "checkpoint_id": origin.checkpoint_id,
                "state": origin.state, "key": row[key] if key else None, "payload": json.dumps(row), "oo_float_0": 0.5,
            }
            for seq, row in enumerate(rows)
        ]  # fmt: skip
        work = postgres_unit.Work(
            self.log.database, unit, driver.epoch, "onlyonce_private", "outbox", "append", (), (),
            beside=(("oo_float_0", "weight"),),
        )  # fmt: skip
        schema = pa.schema(
            [(n, pa.int64() if n == "seq" else pa.float64() if n[:2] == "oo" else pa.string()) for n in columns[0]]
        )
        batch = hashed(pa.RecordBatch.from_pylist(columns, schema), partition)
        with mock.patch.object(pyspark.TaskContext, "get", return_value=Context(partition)):
            list(postgres_unit.write_unit(work)(iter([batch])))
        return str(there)

    def deliver(self, sink: Sent) -> bool:
        """One delivery in this process."""
        return deliver.deliver(self.log.database, "shop", Output(name=self.output, transform="a:b", sink=sink))

    def states(self) -> Counter[Any]:
        """How many rows are in which state."""
        return self.log.multiset("SELECT state FROM onlyonce.outbox")

    def ids(self, where: str) -> set[str]:
        """The ids of some rows."""
        return {i for (i,) in self.log.rows(f"SELECT payload::json->>'id' FROM onlyonce.outbox WHERE {where}")}


def sales(number: int, shops: int = 3) -> list[Row]:
    """Rows with ids, spread over shops, in order."""
    return [{"id": f"s{n:04}", "shop": f"shop {n % shops}", "n": n} for n in range(number)]


def ids(rows: Sequence[Row]) -> Counter[str]:
    """Each id once: what must be at the target."""
    return Counter(row["id"] for row in rows)


def run_process(
    log: Log, url: str, folder: Path, point: str, nth: int = 1, pipelines: str = "tests/support/sending.py"
) -> tuple[int, str]:
    """A delivery as a process and session of its own, which a fail-point kills: exit code and output."""
    environment = os.environ | {
        "ONLYONCE_FAILPOINTS": f"{point}:{nth}:kill", "ONLYONCE_FAILPOINT_DIR": str(folder),
        "ONLYONCE_DATABASE_URL": log.url, "ONLYONCE_HOME": str(folder), "TEST_ENDPOINT": url,
        "ONLYONCE_PIPELINES": str(ROOT / pipelines), "BIGQUERY_EMULATOR_HOST": url,
    }  # fmt: skip
    started = subprocess.Popen(
        [sys.executable, "-m", "onlyonce.sinks.outbox.deliver"], cwd=ROOT, start_new_session=True, text=True, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output, _ = started.communicate(timeout=120)
    # A server with much to do hears a moment later that its client was killed, and the next deliverer would find the
    # output held.
    log.rows(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE "
        "'onlyonce/%/deliver' AND datname = current_database()"
    )
    return started.returncode, output
