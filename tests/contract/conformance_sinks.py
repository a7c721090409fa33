"""The platform's sinks as the conformance suite sees them. Their units are the product's own tasks, without Spark."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest import mock

import pyarrow as pa
from psycopg2 import sql
from pyspark.sql.types import LongType, StringType, StructField, StructType

from onlyonce import settings
from onlyonce.api.pipeline import FileSink, Output, Postgres
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.files import Files
from onlyonce.core.batch import Batch, Outcome, to_micros
from onlyonce.database.connect import run
from onlyonce.sinks.base.content import HASH
from onlyonce.sinks.base.pinned import PARTITION
from onlyonce.sinks.files import finalize, sink_files
from onlyonce.sinks.files.file_stores import Counted, folder_of, store_of
from onlyonce.sinks.postgres import postgres_unit, sink_postgres
from onlyonce.sinks.postgres.postgres_table import SinkTable
from onlyonce.testing.scratch import NOON, plan_of
from onlyonce.testing.suite import PARTITIONS, Guarantee, OfLog, Row, Rows, hash_of, hashed, run_unit

SHARDS = 4
MINUTE = 60_000_000


@dataclass
class PostgresAppend(OfLog):
    """A table; rows and unit are one transaction."""

    write_mode: ClassVar[str] = "append"
    keys: ClassVar[tuple[str, ...]] = ()
    sequence_by: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        output = Output(name=self.output, transform="a:b", sink=self.sink())
        kinds = {"id": StringType(), "key": StringType(), "n": LongType(), self.text: StringType()}
        SinkTable(self.log.database, output, self.sink(), "").prepare(
            StructType([StructField(name, kind) for name, kind in kinds.items()])
        )

    def sink(self) -> Postgres:
        """As it is declared."""
        keys = tuple(self.text if key == "text" else key for key in self.keys)
        return Postgres(table=f"results.{self.output}", write=self.write_mode, keys=keys, sequence_by=self.sequence_by)  # type: ignore[arg-type]

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """A task for each partition."""
        schema = pa.schema([("id", pa.string()), ("key", pa.string()), ("n", pa.int64()), (self.text, pa.string())])
        for partition, parts in self.brought(rows, cut):
            brought = (hashed(pa.RecordBatch.from_pylist(part, schema), partition) for part in parts)
            self.task(self.work(batch), brought, partition)

    def work(self, batch: int) -> postgres_unit.Work:
        """What the driver tells a task."""
        return postgres_unit.Work(
            self.driver.session(self.log.database), self.unit(batch), self.driver.epoch, "results", self.output,
            self.write_mode, self.sink().keys, (), sequence_by=self.sequence_by,
        )  # fmt: skip

    def task(self, work: postgres_unit.Work, brought: Iterator[pa.RecordBatch], partition: int) -> None:
        """One unit."""
        run_unit(postgres_unit.write_unit(work), brought, partition)

    def seen(self) -> list[Row]:
        """The table."""
        columns = sql.SQL(", ").join(map(sql.Identifier, ["id", "key", "n", self.text]))
        found = self.log.rows(sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier("results", self.output)))  # type: ignore[arg-type]
        return [dict(zip(("id", "key", "n", "text"), row, strict=True)) for row in found]

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """Moved away; taken from the writer; a disk without room, at the third row."""
        table, raises = f"results.{self.output}", "EXECUTE FUNCTION results.fail"
        return {
            "missing": lambda: self._while(
                f"ALTER TABLE {table} RENAME TO gone", f"ALTER TABLE results.gone RENAME TO {self.output}"
            ),
            "read-only": lambda: self._while(
                f"CREATE TRIGGER no BEFORE INSERT ON {table} FOR EACH ROW {raises}('25006')",
                f"DROP TRIGGER no ON {table}",
            ),
            "full": lambda: self._while(
                f"CREATE TRIGGER no BEFORE INSERT ON {table} FOR EACH ROW WHEN (NEW.n % 100 > 2) {raises}('53100')",
                f"DROP TRIGGER no ON {table}",
            ),
        }

    @contextmanager
    def _while(self, first: str, then: str) -> Iterator[None]:
        fail = "BEGIN RAISE EXCEPTION USING ERRCODE = TG_ARGV[0], MESSAGE = 'no'; END"
        self.log.rows(
            f"CREATE OR REPLACE FUNCTION results.fail() RETURNS trigger LANGUAGE plpgsql AS $${fail}$$; {first}"
        )
        # The product waits a minute for a database without room; here it need not.
        with mock.patch.dict("os.environ", {"ONLYONCE_DATABASE_PATIENCE": "0"}):
            yield
        self.log.rows(then)


class PostgresUpsert(PostgresAppend):
    """A row replaces the one of its keys."""

    write_mode = "upsert"
    keys = ("key", "id")


class PostgresNewest(PostgresUpsert):
    """The newest row of its keys stays."""

    sequence_by = ("n",)


class PostgresIncrement(PostgresAppend):
    """A number is added to the row of its keys, so a second time would show in the sum."""

    write_mode = "increment"
    keys = ("id", "key", "text")
    huge = 2000  # a text is a key here, and an index takes no more


class PostgresPlain(PostgresAppend):
    """An append of a pipeline that is at least once."""

    guarantee = Guarantee.AT_LEAST_ONCE

    def task(self, work: postgres_unit.Work, brought: Iterator[pa.RecordBatch], partition: int) -> None:
        """Epoch, rows and a note in one transaction; no claim."""
        rows = (batch.drop_columns([HASH, PARTITION]) for batch in brought)
        run_unit(sink_postgres.write_rows(work), rows, partition)


@dataclass
class Shards(OfLog):
    """Sharded files, JSON lines; read after finalize. All rows are of one window."""

    compared: ClassVar[bool] = True
    folder_name: ClassVar[str] = "files \U0001f6d2 it's"
    sink: ClassVar[FileSink] = FileSink(shards=SHARDS)

    @property
    def place(self) -> str:
        """Where, as the log has it."""
        return str(settings.home() / f"{self.output} {self.folder_name}")

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """The batch, as its driver does it; then finalize."""
        begun = self._begin(batch)
        for partition, parts in self.brought(rows, cut):
            self._task(batch, partition, [row for part in parts for row in part], cut, empty=not rows)
        if not begun.committed:
            run(self._session, lambda conn: self._end(conn, begun))
        finalize.main([])

    @property
    def _session(self) -> Any:
        return self.driver.session(self.log.database)

    def _begin(self, batch: int) -> Batch:
        mode = "exactly_once" if self.guarantee is Guarantee.EXACTLY_ONCE else "at_least_once"
        plan = plan_of(self.driver, batch, partitions=PARTITIONS, mode=mode)
        return Batches(self._session).begin(self.driver, "shop", plan, None)

    def _end(self, connection: Any, begun: Batch) -> None:
        Files(connection).give_panes(begun.plan.incarnation, begun.plan.batch_id, self.output)
        Batches(connection).end(self.driver, begun, Outcome(in_time=0, late=0))

    def _task(self, batch: int, partition: int, rows: list[Row], cut: int, *, empty: bool) -> None:
        start = (to_micros(NOON) or 0) + batch * MINUTE
        work = sink_files.Work(
            self._session, self.unit(batch), self.driver.number, self.driver.epoch, self.sink, self.place,
            store_of(self.place), pa.schema([("oo_line", pa.string())]), (), PARTITIONS,
            () if empty else ((start, start + MINUTE),), self.compared,
        )  # fmt: skip
        placed = [
            {
                "oo_line": json.dumps(row), "oo_start": start, "oo_end": start + MINUTE,
                "oo_shard": hash_of(row) % (SHARDS // PARTITIONS) * PARTITIONS + partition, HASH: hash_of(row),
                PARTITION: partition,
            }
            for row in rows
        ]  # fmt: skip
        placed.sort(key=lambda row: (row["oo_shard"], row[HASH]))
        brought = (pa.RecordBatch.from_pylist(placed[n : n + cut]) for n in range(0, len(placed), cut))
        run_unit(sink_files.write_unit(work), brought, partition)

    def seen(self) -> list[Row]:
        """All lines of all final files."""
        folder = folder_of(self.place)
        names = [path for path in folder.rglob("*.jsonl") if ".pending" not in path.parts]
        lines = [json.loads(line) for path in names for line in path.read_bytes().split(b"\n") if line]
        return [{"text" if name == self.text else name: value for name, value in row.items()} for row in lines]

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """A file stands in its place; the disk takes no new files, or has no room."""
        return {
            "missing": self._in_the_way,
            "read-only": lambda: _refusing(errno.EROFS),
            "full": lambda: _refusing(errno.ENOSPC),
        }

    @contextmanager
    def _in_the_way(self) -> Iterator[None]:
        folder = folder_of(self.place)
        aside = folder.with_name("aside")
        if folder.exists():
            folder.rename(aside)
        folder.write_text("I am no folder")
        yield
        folder.unlink()
        if aside.exists():
            aside.rename(folder)


class ShardsPlain(Shards):
    """The same of a pipeline that is at least once: whatever the first attempt has written stays."""

    guarantee = Guarantee.AT_LEAST_ONCE
    compared = False


@contextmanager
def _refusing(number: int) -> Iterator[None]:
    def refuse(self: Any, data: Any) -> int:
        raise OSError(number, "no")

    with mock.patch.object(Counted, "write", refuse):
        yield
