"""The Iceberg sink as the conformance suite sees it: the product's own unit and data files, without Spark, in a SQL catalog on the real PostgreSQL."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import psycopg2
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql.types import LongType, StringType, StructField, StructType

from onlyonce import settings
from onlyonce.commitlog import lineages
from onlyonce.database.connect import run
from onlyonce.declare.pipeline import Iceberg, Output
from onlyonce.model.operate.dropping import Place
from onlyonce.model.units import Content
from onlyonce.sinks.iceberg import catalogs, columns, data_files, iceberg_unit
from onlyonce.sinks.iceberg.iceberg_unit import Batched
from onlyonce.testing.suite.cases import Guarantee, Row, Rows, pieces
from onlyonce.testing.suite.of_log import OfLog
from onlyonce.testing.suite.processes import answers_lost
from onlyonce.testing.suite.task import hash_of
from tests.contract.conftest import Log

CATALOG = "conformance"


@dataclass
class IcebergAppend(OfLog):
    """A table; a batch is one witness unit and one commit."""

    sink_class: ClassVar[type[Iceberg]] = Iceberg

    def __post_init__(self) -> None:
        super().__post_init__()
        self._given = configured(self.log, Path(str(settings.home())))
        self._given.start()
        schema = StructType([StructField(name, LongType() if name == "n" else StringType()) for name in ("id", "key", "n", self.text)])
        output = Output(name=self.output, transform="a:b", sink=Iceberg(table=self.place.where, catalog=CATALOG))
        with catalogs.opened(CATALOG) as found:
            wanted = columns.of(output, schema)
            columns.fit(output, columns.make(found, self.place.where, wanted), wanted)

    @cached_property
    def place(self) -> Place:
        """Where, as the log has it."""
        return Place(f"iceberg:{CATALOG}:results.{self.output}")

    def close(self) -> None:
        """Its catalog is no longer configured."""
        self._given.stop()

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """As the driver does it: a task for each piece of rows, then one commit."""
        with catalogs.opened(CATALOG) as found:
            table = catalogs.table(found, self.place, self.output)
            self.put(table, Batched(self.unit(batch), self.driver.epoch, content_of(rows)), lambda there: self.files(there, rows, cut))

    def put(self, table: Table, batch: Batched, files: iceberg_unit.Files) -> None:
        """One unit."""
        iceberg_unit.write(self.driver.session(self.log.database), table, batch, files)

    def files(self, table: Table, rows: Rows, cut: int) -> list[DataFile]:
        """What the tasks write."""
        work = data_files.writing(table)
        named = [{self.text if name == "text" else name: value for name, value in row.items()} for row in rows]
        tasks = (pa.RecordBatch.from_pylist(part, schema=self._arrow) for part in pieces(named, cut))
        return data_files.read(row for task in tasks for told in work(iter([task])) for row in told.to_pylist())

    @property
    def _arrow(self) -> pa.Schema:
        return pa.schema([("id", pa.string()), ("key", pa.string()), ("n", pa.int64()), (self.text, pa.string())])

    def seen(self) -> list[Row]:
        """The table, as a reader of Iceberg sees it."""
        with catalogs.opened(CATALOG) as found:
            rows = catalogs.table(found, self.place, self.output).scan().to_arrow().to_pylist()
        return [{"text" if name == self.text else name: value for name, value in row.items()} for row in rows]

    def answers_lost(self) -> Iterator[AbstractContextManager[object]]:
        """Those of the log and those of the catalog."""
        return map(_told_or_not, answers_lost())

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """Its name is another's; the store takes no new files, or has no room."""
        return {"missing": self._away, "read-only": lambda: _refusing(errno.EROFS), "full": lambda: _refusing(errno.ENOSPC)}

    @contextmanager
    def _away(self) -> Iterator[None]:
        self._rename(self.place.where, "results.gone")
        yield
        self._rename("results.gone", self.place.where)

    def _rename(self, one: str, other: str) -> None:
        with catalogs.opened(CATALOG) as found:
            found.rename_table(one, other)


class IcebergPlain(IcebergAppend):
    """Of a pipeline that is at least once: the property of the table still keeps a replay out."""

    guarantee = Guarantee.AT_LEAST_ONCE

    def put(self, table: Table, batch: Batched, files: iceberg_unit.Files) -> None:
        """No claim; the log alone says that the driver was overtaken, as it begins the batch."""
        session = self.driver.session(self.log.database)
        run(session, lambda conn: lineages.check_epoch(conn, self.driver.lineage, self.driver.epoch))
        iceberg_unit.write_plainly(table, batch, f"offsets of {batch.unit.batch_id}", files)


class LetsPyicebergRepeat(IcebergAppend):
    """Looks whether the batch is there, then leaves the commit to pyiceberg's transaction: it repeats it after a conflict, and looks no more."""

    def put(self, table: Table, batch: Batched, files: iceberg_unit.Files) -> None:
        """Wrong."""
        with mock.patch.object(type(table.catalog), "commit_table", _repeating(type(table.catalog).commit_table)):
            super().put(table, batch, files)


def _repeating(commit: Callable[..., Any]) -> Callable[..., Any]:
    def without_requirement(catalog: Catalog, table: Table, requirements: Any, updates: Any) -> Any:
        for _ in range(3):
            change = table.refresh().transaction()
            added = [one.snapshot for one in updates if hasattr(one, "snapshot")]
            manifests = [entry.data_file for one in added for file in one.manifests(table.io) if file.added_snapshot_id == one.snapshot_id
                         for entry in file.fetch_manifest_entry(table.io)]  # fmt: skip
            with change.update_snapshot().fast_append() as again:
                for file in manifests:
                    again.append_data_file(file)
            kept = tuple(one for one in updates if hasattr(one, "updates"))
            return commit(catalog, table, (), change._updates + kept)
        return None

    return without_requirement


def configured(log: Log, home: Path) -> Any:
    """The variables by which pyiceberg knows a SQL catalog in the database of a test."""
    prefix = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
    given = {"TYPE": "sql", "URI": log.url, "WAREHOUSE": f"file://{home}/warehouse"}
    return mock.patch.dict(os.environ, {f"{prefix}{name}": value for name, value in given.items()})


def content_of(rows: Rows) -> Content:
    """Their number and a hash that knows no order."""
    return Content(len(rows), f"{sum(map(hash_of, rows)) % 2**64:016x}")


@contextmanager
def _told_or_not(lost: AbstractContextManager[object]) -> Iterator[None]:
    with suppress(psycopg2.OperationalError), lost:  # the catalog's own commit tells the driver's error
        yield


@contextmanager
def _refusing(number: int) -> Iterator[None]:
    def refuse(self: Any, overwrite: bool = False) -> Any:
        raise OSError(number, "no")

    with mock.patch.object(PyArrowFile, "create", refuse):
        yield
