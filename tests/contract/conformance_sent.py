"""The sinks behind the outbox as the conformance suite sees them: rows staged by the product's own task, then delivered."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from onlyonce import settings
from onlyonce.commitlog.sinks import outbox
from onlyonce.database.connect import run
from onlyonce.declare.pipeline import BigQuery, CustomSink, Output, Sent, Webhook
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.units import UnitId
from onlyonce.sinks.outbox import deliver
from onlyonce.sinks.postgres import postgres_unit
from tests.contract.conformance import Guarantee, Row, Rows, make_rows
from tests.contract.conformance_processes import answers_lost
from tests.contract.conformance_sinks import OfLog, run_unit
from tests.contract.task import hashed
from tests.support.endpoints import DROPPED, LOST, OK, BigQueryServer, Endpoint, Reply

STAGED = pa.schema([
    ("instance", pa.string()), ("output", pa.string()), ("unit", pa.string()), ("seq", pa.int64()), ("life", pa.string()),
    ("state", pa.string()), ("key", pa.string()), ("payload", pa.string()),
])  # fmt: skip
SOON = timedelta(milliseconds=5)


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
            self.driver.session(self.log.database), self.unit(batch), self.driver.epoch, "onlyonce_private", "outbox",
            "append", (), (),
        )  # fmt: skip
        life = run(self.log.database, lambda conn: outbox.origin(conn, self.driver.lineage)).life
        for partition, parts in self.brought(rows, cut):
            # As Spark's sort within the partition puts them, however they were cut.
            ordered = sorted((row for part in parts for row in part), key=lambda row: (str(row["key"]), row["id"]))
            unit = str(UnitId(self.driver.lineage, batch, self.output, partition))
            staged = [
                {
                    "instance": "shop", "output": self.output, "unit": unit, "seq": seq, "life": life, "state": "waiting",
                    "key": json.dumps({"key": row["key"]}) if self.keyed else str(seq % 50),
                    "payload": json.dumps(row, ensure_ascii=False),
                }
                for seq, row in enumerate(ordered)
            ]  # fmt: skip
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
class OfServer(OfOutbox):
    """A sink that speaks to a server of the test."""

    server: Any = field(init=False)

    def close(self) -> None:
        """End the server."""
        self.server.__exit__(None, None, None)

    def replies(self, *replies: Reply) -> AbstractContextManager[None]:
        """What the server does with its next requests; then it is well again."""
        return self._replies(replies, for_ever=False)

    @contextmanager
    def _replies(self, replies: tuple[Reply, ...], *, for_ever: bool) -> Iterator[None]:
        first, script = len(self.server.requests), self.server.script

        def scripted(number: int, _request: Any) -> Reply:
            at = number - first
            return replies[min(at, len(replies) - 1)] if for_ever or at < len(replies) else OK

        self.server.script = scripted
        with suppress(OnlyonceError) if not for_ever else _nothing():
            yield
        self.server.script = script

    def answers_lost(self) -> Iterator[AbstractContextManager[object]]:
        """Those of PostgreSQL, and those of the server."""
        yield self.replies(DROPPED)
        yield self.replies(LOST, OK, DROPPED)
        yield from answers_lost()

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """The address is wrong; it may not be written."""
        return {
            "missing": lambda: self._replies((Reply(404, effect=False),), for_ever=True),
            "read-only": lambda: self._replies((Reply(403, effect=False),), for_ever=True),
        }


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@dataclass
class ToWebhook(OfServer):
    """An endpoint that honours the key: there each row is once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.server = Endpoint(honours=self.guarantee is Guarantee.EXACTLY_ONCE)
        self.server.__enter__()

    def sink(self) -> Sent:
        """One that does not wait long."""
        return Webhook(url=self.server.url, keys=("key",), pause=SOON, attempts=100, at_once=2)

    def seen(self) -> list[Row]:
        """What it has carried out."""
        return self.plain(self.server.effects)


class ToForgetfulWebhook(ToWebhook):
    """An endpoint that ignores the key."""

    guarantee = Guarantee.AT_LEAST_ONCE


@dataclass
class ToBigQuery(OfServer):
    """A server that remembers insert ids."""

    huge = 500_000  # a request takes 10 MB, and half of the signs are escapes there
    keyed = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.server = BigQueryServer()
        self.server.__enter__()
        import os

        os.environ["BIGQUERY_EMULATOR_HOST"] = self.server.url

    def sink(self) -> Sent:
        """One that does not wait long."""
        return BigQuery(table="p.d.t", pause=SOON, attempts=100)

    def seen(self) -> list[Row]:
        """Its rows."""
        return self.plain(self.server.rows)


@dataclass
class OwnSink(OfOutbox):
    """The example of a sink of one's own: an SQLite file."""

    name: ClassVar[str] = "Ledger"
    module: ClassVar[str] = "tests.support.ledger_sink"

    @property
    def file(self) -> str:
        """Where."""
        return str(settings.home() / f"{self.output} led'ger \U0001f6d2.db")

    def sink(self) -> Sent:
        """As a user declares it."""
        return CustomSink(target_class=f"{self.module}:{self.name}", where=self.file, keys=("key",))

    def seen(self) -> list[Row]:
        """Its rows."""
        with sqlite3.connect(self.file) as file:
            return self.plain([json.loads(row) for (row,) in file.execute("SELECT row FROM rows")])

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """A folder is in its place; no row may be added; there is no room for the third."""
        return {
            "missing": self._in_the_way,
            "read-only": lambda: self._while(
                "CREATE TRIGGER no BEFORE INSERT ON rows BEGIN SELECT RAISE(ABORT, 'no'); END", "DROP TRIGGER no"
            ),
            "full": lambda: self._while(
                "CREATE TRIGGER no BEFORE INSERT ON rows WHEN NEW.seq > 1 BEGIN SELECT RAISE(ABORT, 'full'); END",
                "DROP TRIGGER no",
            ),
        }

    @contextmanager
    def _in_the_way(self) -> Iterator[None]:
        file = Path(self.file)
        aside = file.rename(file.with_suffix(".aside")) if file.exists() else None
        file.mkdir()
        yield
        file.rmdir()
        if aside:
            aside.rename(file)

    @contextmanager
    def _while(self, first: str, then: str) -> Iterator[None]:
        self.write(99, make_rows(99))
        with sqlite3.connect(self.file) as file:
            file.execute("DELETE FROM rows WHERE unit LIKE '%/99/%'")
            file.executescript(first)
        file.close()
        yield
        with sqlite3.connect(self.file) as file:
            file.executescript(then)
        file.close()


class OwnSinkPlain(OwnSink):
    """One that knows no units, and says so."""

    guarantee = Guarantee.AT_LEAST_ONCE
    name = "Diary"
