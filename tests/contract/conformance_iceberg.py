"""The Iceberg sink as the conformance suite sees it: the product's own unit and data files, without Spark, in a SQL
catalog on the real PostgreSQL."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg2
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql.types import LongType, StringType, StructField, StructType

from onlyonce import settings
from onlyonce.api.pipeline import Iceberg, Output
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core.ownership import Place
from onlyonce.core.units import Content
from onlyonce.sinks.iceberg import iceberg_catalogs, iceberg_commits, sink_iceberg
from onlyonce.sinks.iceberg.sink_iceberg import Batched
from onlyonce.testing.scratch import answers_lost
from onlyonce.testing.suite import Guarantee, OfLog, Row, Rows, hash_of, pieces
from tests.contract.conftest import Log

CATALOG = "conformance"


@dataclass
class IcebergAppend(OfLog):
    """A table; a batch is one reference unit and one commit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._given = configured(self.log, Path(str(settings.home())))
        self._given.start()
        schema = StructType(
            [StructField(name, LongType() if name == "n" else StringType()) for name in ("id", "key", "n", self.text)]
        )
        output = Output(name=self.output, transform="a:b", sink=Iceberg(table=self.place.where, catalog=CATALOG))
        with iceberg_catalogs.open_catalog(CATALOG) as found:
            wanted = sink_iceberg.columns_of(output, schema)
            sink_iceberg.fit_table(output, sink_iceberg.make_table(found, self.place.where, wanted), wanted)

    @cached_property
    def place(self) -> Place:
        """Where, as the log has it."""
        return Place(f"iceberg:{CATALOG}:results.{self.output}")

    def close(self) -> None:
        """Its catalog is no longer configured."""
        self._given.stop()

    def write(self, batch: int, rows: Rows, cut: int = 3) -> None:
        """As the driver does it: a task for each piece of rows, then one commit."""
        with iceberg_catalogs.open_catalog(CATALOG) as found:
            table = iceberg_catalogs.table(found, self.place, self.output)
            self.put(
                table,
                Batched(self.unit(batch), self.driver.incarnation, self.driver.epoch, content_of(rows)),
                lambda there: self.files(there, rows, cut),
            )

    def put(self, table: Table, batch: Batched, files: sink_iceberg.Files) -> None:
        """One unit."""
        sink_iceberg.write_unit(self.driver.session(self.log.database), table, batch, files)

    def files(self, table: Table, rows: Rows, cut: int) -> list[DataFile]:
        """What the tasks write."""
        work = sink_iceberg.writing(table)
        named = [{self.text if name == "text" else name: value for name, value in row.items()} for row in rows]
        tasks = (pa.RecordBatch.from_pylist(part, schema=self._arrow) for part in pieces(named, cut))
        return sink_iceberg.read(row for task in tasks for told in work(iter([task])) for row in told.to_pylist())

    @property
    def _arrow(self) -> pa.Schema:
        return pa.schema([("id", pa.string()), ("key", pa.string()), ("n", pa.int64()), (self.text, pa.string())])

    def seen(self) -> list[Row]:
        """The table, as a reader of Iceberg sees it."""
        with iceberg_catalogs.open_catalog(CATALOG) as found:
            rows = iceberg_catalogs.table(found, self.place, self.output).scan().to_arrow().to_pylist()
        return [{"text" if name == self.text else name: value for name, value in row.items()} for row in rows]

    def answers_lost(self) -> Iterator[AbstractContextManager[object]]:
        """Those of the log and those of the catalog."""
        return map(_told_or_not, answers_lost())

    def broken(self) -> dict[str, Callable[[], AbstractContextManager[object]]]:
        """Its name is another's; the store takes no new files, or has no room."""
        return {
            "missing": self._away,
            "read-only": lambda: _refusing(errno.EROFS),
            "full": lambda: _refusing(errno.ENOSPC),
        }

    @contextmanager
    def _away(self) -> Iterator[None]:
        self._rename(self.place.where, "results.gone")
        yield
        self._rename("results.gone", self.place.where)

    def _rename(self, one: str, other: str) -> None:
        with iceberg_catalogs.open_catalog(CATALOG) as found:
            found.rename_table(one, other)


class IcebergPlain(IcebergAppend):
    """Of a pipeline that is at least once: the property of the table still keeps a replay out."""

    guarantee = Guarantee.AT_LEAST_ONCE

    def put(self, table: Table, batch: Batched, files: sink_iceberg.Files) -> None:
        """No claim; the log alone says that the driver was overtaken, as it begins the batch."""
        session = self.driver.session(self.log.database)
        Incarnations(session).check_epoch(self.driver.incarnation, self.driver.epoch)
        sink_iceberg.write_plainly(table, batch, f"offsets of {batch.unit.batch_id}", files)


class IcebergExpiring(IcebergAppend):
    """A team rewrites files and expires snapshots after each batch."""

    def put(self, table: Table, batch: Batched, files: sink_iceberg.Files) -> None:
        """One unit; then no snapshot is there that has told of it."""
        super().put(table, batch, files)
        expire(table)


class AsksSnapshotsOnly(IcebergExpiring):
    """Wrong: looks for the batch in the snapshots, which expire."""

    def put(self, table: Table, batch: Batched, files: sink_iceberg.Files) -> None:
        """As if there were no property."""
        with mock.patch.object(iceberg_commits, "last", return_value=None):
            super().put(table, batch, files)


class LeavesItToPyiceberg(IcebergAppend):
    """Wrong: looks whether the batch is there, then lets pyiceberg's transaction commit.

    That repeats after a conflict, and looks no more.
    """

    def put(self, table: Table, batch: Batched, files: sink_iceberg.Files) -> None:
        """One call less."""
        with mock.patch.object(iceberg_commits, "_put", _left_to_pyiceberg):
            super().put(table, batch, files)


def _left_to_pyiceberg(
    table: Table, commit: iceberg_commits.Commit, written: Sequence[DataFile], schema: int, instead_of: object
) -> None:
    with table.transaction() as change:
        with change.update_snapshot(snapshot_properties=commit.summary()).fast_append() as added:
            for file in written:
                added.append_data_file(file)
        change.set_properties({commit.key: commit.note()})


def expire(table: Table) -> None:
    """What a team's own maintenance leaves: one snapshot, of nobody's batch."""
    table.refresh()
    with table.transaction() as change, change.update_snapshot().fast_append():
        pass
    old = [snapshot.snapshot_id for snapshot in table.refresh().snapshots() if snapshot != table.current_snapshot()]
    table.maintenance.expire_snapshots().by_ids(old).commit()


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
