"""The MySQL sink as the conformance suite sees it: its units are the product's own tasks, without Spark, on a real
MariaDB."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from onlyonce.api.pipeline import MySQL, Output
from onlyonce.commitlog import units
from onlyonce.database.connect import Database
from onlyonce.sinks.base.content import HASH
from onlyonce.sinks.base.pinned import PARTITION
from onlyonce.sinks.mysql import mysql_rows
from onlyonce.sinks.mysql.sink_mysql import MySQLTable
from onlyonce.sinks.postgres import postgres_unit, sink_postgres
from onlyonce.testing import scratch
from onlyonce.testing.scratch import Log, Processes
from onlyonce.testing.suite import Guarantee, OfLog, Row, Rows, hashed, run_unit
from tests.contract.conftest import platform_of
from tests.support.mariadb import MariaDB

VARIABLE = "TEST_MYSQL"
STALE = 0.15
"""InnoDB looks at its transactions anew only when nobody has read the list for 0.1 s: who asks more often reads the
first answer for ever."""


class MySQLAppend(OfLog):
    """A table; rows and unit are one transaction, in another database than the log."""

    write_mode: ClassVar[str] = "append"
    keys: ClassVar[tuple[str, ...]] = ()

    def __init__(self, log: Log, text: str, server: MariaDB) -> None:
        super().__init__(log, text)
        self.server, self.name = server, server.new_database()
        self.database = Database(server.url(self.name))
        self._given = mock.patch.dict(os.environ, {VARIABLE: self.database.url})
        self._given.start()
        units.adopt_authority(log.database, self.driver, VARIABLE)
        kinds = {"id": StringType(), "key": StringType(), "n": LongType(), self.text: StringType()}
        schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
        MySQLTable(self.database, Output(name=self.output, transform="a:b", sink=self.sink()), self.sink(), "").prepare(
            schema
        )

    def sink(self) -> MySQL:
        """As it is declared."""
        return MySQL(table="kept", connection=VARIABLE, write=self.write_mode, keys=self.keys)  # type: ignore[arg-type]

    def close(self) -> None:
        """Its database goes."""
        self._given.stop()
        self.server.rows("", f"DROP DATABASE {self.name}")

    def restart(self) -> None:
        """The new driver tells its epoch there, and ends the sessions of the older one."""
        super().restart()
        units.adopt_authority(self.log.database, self.driver, VARIABLE)

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """A task for each partition."""
        names = ("id", "key", "n", self.text)
        for partition, parts in self.brought(rows, cut):
            batches = (hashed(batch_of([[row[name] for name in names] for row in part]), partition) for part in parts)
            self.task(self.work(batch), batches, partition, mysql_rows.Loaded(names, (False,) * 4))

    def work(self, batch: int) -> postgres_unit.Work:
        """What the driver tells a task."""
        return postgres_unit.Work(
            self.driver.session(self.database, platform_of(self.log)),
            self.unit(batch),
            self.driver.epoch,
            "",
            "kept",
            self.write_mode,
            self.keys,
            (),
        )

    def task(
        self, work: postgres_unit.Work, brought: Iterator[pa.RecordBatch], partition: int, loaded: mysql_rows.Loaded
    ) -> None:
        """One unit."""
        run_unit(postgres_unit.write_unit(work, mysql_rows.putting(loaded)), brought, partition)

    def seen(self) -> list[Row]:
        """The table."""
        found = self.server.rows(self.name, "SELECT * FROM kept")
        return [dict(zip(("id", "key", "n", "text"), row, strict=True)) for row in found]

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """Moved away; taken from the writer; a table without room, at the third row."""
        raises = "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {}, MESSAGE_TEXT = 'no'"
        trigger = "CREATE TRIGGER no BEFORE INSERT ON kept FOR EACH ROW "
        return {
            "missing": lambda: self._while("RENAME TABLE kept TO gone", "RENAME TABLE gone TO kept"),
            "read-only": lambda: self._while(trigger + raises.format(1290), "DROP TRIGGER no"),
            "full": lambda: self._while(
                f"{trigger} IF NEW.n % 100 > 2 THEN {raises.format(1021)}; END IF", "DROP TRIGGER no"
            ),
        }

    @contextmanager
    def _while(self, first: str, then: str) -> Iterator[None]:
        self.server.rows(self.name, first)
        with mock.patch.dict("os.environ", {"ONLYONCE_DATABASE_PATIENCE": "0"}):
            yield
        self.server.rows(self.name, then)


class MySQLUpsert(MySQLAppend):
    """A row replaces the one of its keys."""

    write_mode = "upsert"
    keys = ("n",)  # the suite's longest text is no key here: an index takes 255 characters, and a longer one is refused


class MySQLPlain(MySQLAppend):
    """An append of a pipeline that is at least once."""

    guarantee = Guarantee.AT_LEAST_ONCE

    def task(
        self, work: postgres_unit.Work, brought: Iterator[pa.RecordBatch], partition: int, loaded: mysql_rows.Loaded
    ) -> None:
        """Epoch, rows and a note in one transaction; no claim."""
        rows = (batch.drop_columns([HASH, PARTITION]) for batch in brought)
        run_unit(sink_postgres.write_rows(work, mysql_rows.putting(loaded)), rows, partition)


class ProcessesThere(Processes):
    """Processes that wait for each other in the MariaDB, too."""

    def __init__(self, log: Log, folder: Path, server: MariaDB) -> None:
        super().__init__(log, folder)
        self._server = server

    def _waits(self) -> bool:
        return super()._waits() or bool(self._transactions("trx_state = 'LOCK WAIT'"))

    def _alone(self) -> None:
        super()._alone()
        scratch._await_end(lambda: not self._transactions("true"), "a killed process left a transaction in MariaDB")

    def _transactions(self, which: str) -> list[object]:
        time.sleep(STALE)
        return self._server.rows(
            "", f"SELECT 1 FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID() AND {which}"
        )


def batch_of(rows: list[list[object]]) -> pa.RecordBatch:
    """Rows as Spark brings them: each a JSON array of texts."""
    texts = [json.dumps([None if value is None else str(value) for value in row], ensure_ascii=False) for row in rows]
    return pa.RecordBatch.from_pydict({mysql_rows.ROW: pa.array(texts, pa.string())})
