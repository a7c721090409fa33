"""A sink of a user's own as the suite sees it: rows staged by the product's own task, then delivered."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from onlyonce.commitlog.sinks.outbox import OutboxRows
from onlyonce.declare.pipeline import CustomSink, Output, Sent
from onlyonce.model import stored_names
from onlyonce.model.units import UnitId
from onlyonce.sinks.outbox import deliver
from onlyonce.sinks.postgres import postgres_unit
from onlyonce.testing.suite.cases import Row, Rows
from onlyonce.testing.suite.of_log import OfLog
from onlyonce.testing.suite.task import hashed, run_unit

STAGED = pa.schema(
    [
        ("instance", pa.string()),
        ("output", pa.string()),
        ("unit", pa.string()),
        ("seq", pa.int64()),
        ("life", pa.string()),
        ("state", pa.string()),
        ("key", pa.string()),
        ("payload", pa.string()),
    ]
)


@dataclass
class OfOutbox(OfLog):
    """What all of them share. `keyed`: rows of a key are sent in order."""

    keyed: ClassVar[bool] = True

    def sink(self) -> Sent:
        """As it is declared."""
        raise NotImplementedError

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """A task for each partition; then one delivery, which leaves when another is at work."""
        work = postgres_unit.Work(
            self.driver.session(self.log.database), self.unit(batch), self.driver.epoch,
            stored_names.PRIVATE_SCHEMA, "outbox", "append", (), (),
        )  # fmt: skip
        life = OutboxRows(self.log.database).origin(self.driver.lineage).life
        for partition, parts in self.brought(rows, cut):
            # As Spark's sort within the partition puts them, however they were cut.
            ordered = sorted((row for part in parts for row in part), key=lambda row: (str(row["key"]), row["id"]))
            unit = str(UnitId(self.driver.lineage, batch, self.output, partition))
            staged = [
                {
                    "instance": "shop",
                    "output": self.output,
                    "unit": unit,
                    "seq": seq,
                    "life": life,
                    "state": "waiting",
                    "key": json.dumps({"key": row["key"]}) if self.keyed else str(seq % 50),
                    "payload": json.dumps(row, ensure_ascii=False),
                }
                for seq, row in enumerate(ordered)
            ]
            brought = (pa.RecordBatch.from_pylist(staged[n : n + cut], STAGED) for n in range(0, len(staged), cut))
            run_unit(postgres_unit.write_unit(work), (hashed(batch, partition) for batch in brought), partition)
        deliver.deliver(self.log.database, "shop", Output(name=self.output, transform="a:b", sink=self.sink()))

    def restart(self) -> None:
        """A new driver; and the lock of a deliverer that stands still is taken from it."""
        self.log.rows(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = %s AND xact_start IS NOT NULL",
            f"onlyonce/shop/{self.output}/deliver",
        )
        super().restart()

    def plain(self, rows: list[Row]) -> list[Row]:
        """Rows with the column of texts under the suite's name."""
        return [{"text" if name == self.text else name: value for name, value in row.items()} for row in rows]


@dataclass
class OwnSink(OfOutbox):
    """Yours: say `target_class`, the `guarantee` that it declares, and `where`, and write `seen` and `broken`."""

    target_class: ClassVar[str]

    @property
    @abstractmethod
    def where(self) -> str:
        """Where it writes: another place for each test, so that tests don't see each other's rows.

        `self.output` is unique.
        """

    def sink(self) -> Sent:
        """As a user declares it."""
        return CustomSink(target_class=self.target_class, where=self.where, keys=("key",))
