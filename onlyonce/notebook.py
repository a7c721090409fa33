"""Read a pipeline's results and the fates of its records as pandas DataFrames, for a notebook. No JVM, read only.

    import onlyonce
    flights = onlyonce.open("flights")
    flights.output("per_carrier"), flights.late(), flights.trace("UA", 1545, "EWR", "2013-01-01 05:15")

delta-rs reads Delta tables, pyiceberg Iceberg tables, psycopg2 PostgreSQL tables, and pandas files. pyarrow reads late,
invalid and expired records from the table `events`. A result is loaded into memory as a whole. Each function raises
Refused for an unknown name or an output without readable rows, and Retryable while a database is unreachable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from onlyonce.api.pipeline import Delta, FileSink, Iceberg, MySQL, Output, Pipeline, Postgres, target
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import Place
from onlyonce.environment import variable

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

T = TypeVar("T")
NO_ROWS = "nothing was read; this only reads"
ALL = 1 << 31


def open(name: str, pipelines: str | Path | list[Path] | None = None) -> Opened:
    """Open a declared pipeline, or a bounded run of it (flights@1).

    `pipelines` is a file with declarations; the default is ONLYONCE_PIPELINES. ONLYONCE_HOME names the platform. Raise
    Refused with the nearest known name.
    """
    from onlyonce.api import load

    files = [Path(pipelines)] if isinstance(pipelines, str | Path) else pipelines
    return Opened(load.one(name.partition("@")[0], files), name)


@dataclass(frozen=True)
class Opened:
    """One pipeline, or a bounded run of it. Nothing is cached: each call reads the present state."""

    pipeline: Pipeline
    instance: str

    def output(self, name: str) -> pd.DataFrame:
        """Return the rows of an output as its table has them; of files, the newest final ones of each window."""
        output = self.pipeline.output(name)
        if isinstance(output.sink, Delta):
            return self._delta(output)
        if isinstance(output.sink, Postgres):
            return self._postgres(output, output.sink)
        if isinstance(output.sink, MySQL):
            return self._mysql(output, output.sink)
        if isinstance(output.sink, Iceberg):
            return self._iceberg(output)
        if isinstance(output.sink, FileSink):
            return self._files(output, output.sink)
        raise Refused(
            f"output {name} is sent ({type(output.sink).__name__}), so its rows are where they were sent to",
            data=NO_ROWS,
            hint="onlyonce outbox shows what waits and what is a dead letter",
        )

    def late(self, output: str | None = None) -> pd.DataFrame:
        """Return the records that met a closed window, once for each output and window; of one output or all."""
        if output is not None:
            self.pipeline.output(output)
        return self._fates(lambda left_out: left_out.late(self.pipeline, self.instance, ALL, output))

    def rejected(self, output: str | None = None) -> pd.DataFrame:
        """Return the records that the function of an output has rejected, with the reason; of one output or all.

        A record appears once for each output and window.
        """
        from onlyonce import settings
        from onlyonce.database.connect import Database
        from onlyonce.records import left_out

        if output is not None:
            self.pipeline.output(output)
        database = Database(_there(settings.reader_url), "onlyonce-rejected")
        return _frame(left_out.rejected_rows(database, self.pipeline, self.instance, ALL, output)[1])

    def invalid(self) -> pd.DataFrame:
        """Return the invalid records, with the reason and the line as it came."""
        return self._fates(lambda left_out: left_out.invalid(self.pipeline, self.instance, ALL))

    def expired(self) -> pd.DataFrame:
        """Return the records from before the dedup horizon."""
        return self._fates(lambda left_out: left_out.expired(self.pipeline, self.instance, ALL))

    def trace(self, *record_id: Any) -> pd.DataFrame:
        """Return what became of one record, by the values of its id columns in order: its fate, batch and unit.

        It has the columns of `onlyonce trace`. There are no rows if the record was never seen. `windows` has its
        windows.
        """
        return self._traced("fates", record_id)

    def windows(self, *record_id: Any) -> pd.DataFrame:
        """Return the windows that a kept record falls in, of each output: in time or late, open or final, and by
        what they were made."""
        return self._traced("windows", record_id)

    def _traced(self, table: str, record_id: tuple[Any, ...]) -> pd.DataFrame:
        from onlyonce import settings
        from onlyonce.database.connect import Database
        from onlyonce.records import trace
        from onlyonce.sources.record_id import asked

        wanted = asked(self.pipeline, [str(value) for value in record_id])
        database = Database(_there(settings.reader_url), "onlyonce-trace")
        report, _ = trace.trace(database, self.pipeline, self.instance, wanted)
        return _frame(report.tables.get(table, []))

    def _fates(self, of: Callable[[Any], tuple[int, list[dict[str, Any]]]]) -> pd.DataFrame:
        from onlyonce.records import left_out

        return _frame(of(left_out)[1])

    @property
    def _suffix(self) -> str:
        return self.instance[len(self.pipeline.name) :]

    def _where(self, output: Output) -> str:
        return Place(target(self.pipeline, output)).of_run(self._suffix).where

    def _delta(self, output: Output) -> pd.DataFrame:
        from onlyonce import settings
        from onlyonce.tables import opening

        path = settings.table_location(self._where(output))
        if not opening.any_in(path):
            raise self._not_yet(output, str(path))
        table = opening.table(path)
        if on := opening.unreadable(table):
            raise Refused(f"{path} has {', '.join(on)}, which only Spark reads", data=NO_ROWS, hint="read it by Spark")
        frame: pd.DataFrame = table.to_pandas()
        return frame

    def _postgres(self, output: Output, sink: Postgres) -> pd.DataFrame:
        from psycopg2 import sql

        from onlyonce import settings

        where = self._where(output)
        schema, table = where.split(".", 1)
        there = sql.Identifier(schema, table)
        url = _there(settings.reader_url) if sink.connection is None else variable(sink.connection)
        if not url:
            raise Refused(
                f"the environment variable {sink.connection} is not set",
                data=NO_ROWS,
                hint="set it to the database's URL",
            )

        def rows(connection: Connection) -> pd.DataFrame:
            cursor: Any = connection.connection.cursor()
            cursor.execute("SELECT to_regclass(%s) IS NULL", (f'"{schema}"."{table}"',))
            if cursor.fetchone()[0]:
                raise self._not_yet(output, where)
            cursor.execute(sql.SQL("SELECT * FROM {}").format(there))
            return _frame(cursor.fetchall(), [column.name for column in cursor.description])

        return _read(url, rows)

    def _mysql(self, output: Output, sink: MySQL) -> pd.DataFrame:
        from onlyonce.database import mysql
        from onlyonce.sinks.mysql.mysql_table import database_of

        where = self._where(output)

        def rows(connection: Connection) -> pd.DataFrame:
            if not mysql.tables(connection, where):
                raise self._not_yet(output, where)
            found = connection.exec_driver_sql(f"SELECT * FROM {mysql.quoted(connection, where)}")
            return _frame(list(map(tuple, found)), list(found.keys()))

        return _read(database_of(sink).url, rows)

    def _iceberg(self, output: Output) -> pd.DataFrame:
        from onlyonce.sinks.iceberg import iceberg_catalogs

        place = Place(target(self.pipeline, output)).of_run(self._suffix).text
        if (frame := iceberg_catalogs.table_frame(place)) is None:
            raise self._not_yet(output, place)
        return frame

    def _files(self, output: Output, sink: FileSink) -> pd.DataFrame:
        import pandas as pd

        from onlyonce import settings
        from onlyonce.commitlog.health import Views
        from onlyonce.database.connect import Database
        from onlyonce.sinks.files.file_stores import folder_of

        readers = {
            "jsonl": lambda place: pd.read_json(place, lines=True),
            "csv": pd.read_csv,
            "parquet": pd.read_parquet,
        }
        if "://" in (sink.path or ""):
            raise Refused(
                f"output {output.name} is in an object store, where manifests say what is final", data=NO_ROWS,
                hint="read the files that the manifests name",
            )  # fmt: skip
        if sink.format not in readers:
            raise Refused(
                f"output {output.name}: pandas has no reader for {sink.format}", data=NO_ROWS, hint="read its files"
            )
        with Views.once(Database(_there(settings.reader_url), "onlyonce-notebook")) as views:
            known = views.rows("files_of", instance=self.instance, n=ALL)
        final = [file for file in known if file["output"] == output.name and file["state"] == "final"]
        places = [folder_of(file["place"]) / file["name"] for file in final if file["rows"]]
        return (
            pd.concat([readers[sink.format](place) for place in places], ignore_index=True)
            if places
            else pd.DataFrame()
        )

    def _not_yet(self, output: Output, place: str) -> Refused:
        return Refused(
            f"output {output.name} of {self.instance} has no rows yet: {place} is not there",
            data=NO_ROWS,
            hint=f"a window is written when it closes: onlyonce run {self.pipeline.name}",
        )


def _frame(rows: list[Any], columns: list[str] | None = None) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)


def _there(url: Callable[[], str]) -> str:
    from onlyonce import settings

    try:
        return url()
    except FileNotFoundError as error:
        raise Refused(
            f"there is no platform under {settings.home()} yet",
            data=NO_ROWS,
            hint="`onlyonce up --no-airflow` makes it (with Airflow: `onlyonce up`); ONLYONCE_HOME names one elsewhere",
        ) from error


def _read(url: str, work: Callable[[Connection], T]) -> T:
    from onlyonce.database.connect import Database, transaction

    with transaction(Database(url, "onlyonce-notebook")) as connection:
        return work(connection)
