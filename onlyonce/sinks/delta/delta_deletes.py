"""Hard deletes of a Delta upsert: the keys of deleted rows and their newest_by are kept in a table beside,
`<path>_deleted`.

A commit of Delta is of one table, so a batch has two, under one transaction id. First its deletes go to the table
beside, then the upsert removes and writes rows. A kill between the two is repeated by the replay. A position beside
never goes back, and nothing takes one out. So what a batch does to a key depends on the newest delete alone, whatever
came in between. A batch reads those files of the table beside that may hold a key of its own. There is one row for each
key that was ever deleted, of its keys and its newest_by alone.

Who calls it: `sink_delta`. Errors: Refused for a table beside that is somebody else's, and for a target that is such a
table; else those of `delta.once`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.declare.declaration import declared_at
from onlyonce.declare.outputs.newest import HISTORY
from onlyonce.declare.pipeline import Delta, Output
from onlyonce.failpoints import passing
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import VALID_FROM
from onlyonce.session.names import quoted
from onlyonce.sinks.delta import delta_rows, delta_upsert
from onlyonce.sources.parse import columns
from onlyonce.storage import changing, delta, opening, table_files
from onlyonce.storage.beside import PROPERTIES, beside, is_ours


def refuse_as_target(path: Location, output: Output) -> None:
    """Raise Refused for an output whose own table would be what another one remembers its deletes in."""
    if is_ours(path):
        raise Refused(
            f"{declared_at(output)}output {output.name}: {path} keeps the keys that another output has deleted",
            data="nothing was written",
            hint="name another path for the output",
        )


@dataclass(frozen=True)
class Deletes:
    """The deletes of one output with the option; `path`: its table."""

    path: Location
    sink: Delta

    @property
    def column(self) -> str:
        """The column of the rows that says so."""
        assert self.sink.deletes is not None
        return self.sink.deletes

    def prepare(self, session: SparkSession, schema: StructType, output: Output) -> None:
        """Make the table beside."""
        path = beside(self.path)
        if delta.exists(path) and not is_ours(path):
            raise Refused(
                f"{declared_at(output)}output {output.name}: there is a table {path}, which is not the platform's",
                data="nothing was written; what is deleted would be remembered there",
                hint="move that table, or name another path for the output",
            )
        kept = StructType([field for name in self._kept for field in schema.fields if field.name == name])
        delta.make(path, kept, session, [], PROPERTIES)
        columns.fit(path, kept, f"output {output.name}, what it deletes")

    def remember(self, rows: DataFrame, commit: delta.Commit, *, replayed: bool) -> None:
        """Commit the deletes of a batch, once; nothing where it has none."""
        gone = rows.filter(F.col(quoted(self.column))).select(*map(quoted, self._kept))
        if gone.isEmpty():
            return
        path = beside(self.path)
        passing("delta-before-deletes")
        changing.change(
            path, commit, delta_upsert.Upsert(gone, path, self._identity, self.is_newer()), replayed=replayed
        )
        passing("delta-after-deletes")

    def standing(self, rows: DataFrame) -> DataFrame:
        """The rows that are not older than a delete of their key."""
        path = beside(self.path)
        table = opening.table(path)
        files = table_files.holding(table, delta_upsert.bounds(rows, self.sink.keys))
        if not files:
            return rows
        there = delta_rows.read(rows.sparkSession, path, table, files).alias("t")
        return rows.alias("s").join(there, delta_upsert.matched(self.sink.keys) & ~self.is_newer(), "left_anti")

    def is_newer(self) -> Column:
        """Whether an arriving row is as new as what is there of its key, or newer."""
        return delta_upsert.as_new(self.sink.newest_by)

    @property
    def _identity(self) -> tuple[str, ...]:
        """Of a history each delete of a key is one of its changes."""
        return (*self.sink.keys, *(self.sink.newest_by if self.sink.write == HISTORY else ()))

    @property
    def _kept(self) -> list[str]:
        return [
            *dict.fromkeys(
                [*self.sink.keys, *self.sink.newest_by, *([VALID_FROM] if self.sink.write == HISTORY else [])]
            )
        ]


def of(path: Location, sink: Delta) -> Deletes | None:
    """The deletes of an output, if it has any."""
    return Deletes(path, sink) if sink.deletes else None
