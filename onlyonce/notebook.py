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
from typing import TYPE_CHECKING, Any

from onlyonce.api.pipeline import Pipeline
from onlyonce.sinks.base import frames

if TYPE_CHECKING:
    import pandas as pd


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
        """Return the rows in an output's table; of files, the newest final rows of each window."""
        from onlyonce.sinks import targets

        output = self.pipeline.output(name)
        return targets.implementation(output.sink).frame(self.pipeline, output, self.instance)

    def late(self, output: str | None = None) -> pd.DataFrame:
        """Return the records that met a closed window, once for each output and window; of one output or all."""
        if output is not None:
            self.pipeline.output(output)
        return self._fates(lambda left_out: left_out.late(self.pipeline, self.instance, frames.ALL, output))

    def rejected(self, output: str | None = None) -> pd.DataFrame:
        """Return the records that the function of an output has rejected, with the reason; of one output or all.

        A record appears once for each output and window.
        """
        from onlyonce.database.connect import Database
        from onlyonce.records import left_out

        if output is not None:
            self.pipeline.output(output)
        database = Database(frames.reader_url(), "onlyonce-rejected")
        return frames.as_frame(left_out.rejected_rows(database, self.pipeline, self.instance, frames.ALL, output)[1])

    def invalid(self) -> pd.DataFrame:
        """Return the invalid records, with the reason and the line as it came."""
        return self._fates(lambda left_out: left_out.invalid(self.pipeline, self.instance, frames.ALL))

    def expired(self) -> pd.DataFrame:
        """Return the records from before the dedup horizon."""
        return self._fates(lambda left_out: left_out.expired(self.pipeline, self.instance, frames.ALL))

    def trace(self, *record_id: Any) -> pd.DataFrame:
        """Return what became of one record, by the values of its id columns in order: its fate, batch and unit.

        The table has the columns of `onlyonce trace`. There are no rows if the record was never seen. `windows` has its
        windows.
        """
        return self._traced("fates", record_id)

    def windows(self, *record_id: Any) -> pd.DataFrame:
        """Return the windows that a kept record falls in, of each output: in time or late, open or final, and by
        what they were made."""
        return self._traced("windows", record_id)

    def _traced(self, table: str, record_id: tuple[Any, ...]) -> pd.DataFrame:
        from onlyonce.database.connect import Database
        from onlyonce.records import trace
        from onlyonce.sources.record_id import asked

        wanted = asked(self.pipeline, [str(value) for value in record_id])
        database = Database(frames.reader_url(), "onlyonce-trace")
        report, _ = trace.trace(database, self.pipeline, self.instance, wanted)
        return frames.as_frame(report.tables.get(table, []))

    def _fates(self, of: Callable[[Any], tuple[int, list[dict[str, Any]]]]) -> pd.DataFrame:
        from onlyonce.records import left_out

        return frames.as_frame(of(left_out)[1])
