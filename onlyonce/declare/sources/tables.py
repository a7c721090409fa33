"""A Delta table as a source. Pure data, checked when it is made."""

from __future__ import annotations

import re
from typing import Literal

from onlyonce.declare import ddl
from onlyonce.declare.declaration import declaration
from onlyonce.declare.sources.starts import EARLIEST
from onlyonce.model import record_size
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import is_url, location
from onlyonce.model.storage.table_versions import CHANGE_COLUMNS, CHANGE_TYPE, COMMIT_VERSION

NAME = re.compile(r"[^.`\s/]+(\.[^.`\s/]+){1,2}")
"""Of a table in a catalog: its schema, and its catalog if it is not Spark's default one."""


@declaration
class DeltaSource:
    """The rows that each version of a Delta table appends, version by version, each row once.

    No version is passed over in silence.

    A version that only puts rows into other files (OPTIMIZE) has nothing new and is passed over. One that deletes or
    rewrites rows is refused by its number, unless `ignore_deletes` or `changes` says what to do with it. A table that
    was made again under its path is refused.

    path                the table's folder, or a prefix of an object store (s3://bucket/table); a path that is not
                        absolute is below <home>/tables, as that of the sink Delta
    table               in its place the name of the table in a catalog that Spark has: 'sales.orders',
                        'lake.sales.orders'. Each run asks Spark where it is; a table that is elsewhere than it was is
                        refused
    changes             read the change data feed: `_change_type`, `_commit_version` and `_commit_timestamp` may be
                        declared as columns, and a row that is deleted or updated is a record of its own
                        (docs/how-to/delta-source.md)
    ignore_deletes      pass over a version that only deletes whole files
    start               'earliest': version 0. A number: that version; rows of earlier ones are not read. A later change
                        of it has no effect
    max_files_a_batch   how many data files one batch takes
    max_record_bytes    a larger record is `invalid`, with its place, its size and how it begins
    """

    path: str | None = None
    table: str | None = None
    changes: bool = False
    ignore_deletes: bool = False
    start: Literal["earliest"] | int = EARLIEST
    max_files_a_batch: int = 1000
    max_record_bytes: int = record_size.DEFAULT

    def __post_init__(self) -> None:
        if (self.path is None) == (self.table is None):
            raise Refused(
                "DeltaSource: one of path and table says which table is read",
                hint="path='shop/per_shop', or table='sales.orders' by a catalog of Spark's",
            )
        if self.table is not None and not NAME.fullmatch(self.table):
            raise Refused(
                f"DeltaSource: table {self.table!r} is no name of a table in a catalog",
                hint="'schema.table' or 'catalog.schema.table'; path=… is for a folder",
            )
        if self.path is not None and is_url(self.path):
            location(self.path, "DeltaSource: path")
        if self.path is not None and (not self.path or ".." in self.path.split("/")):
            raise Refused(
                f"DeltaSource: path {self.path!r} is no table's folder",
                hint="its whole path, or its path below <home>/tables: 'flights/per_carrier'",
            )
        if self.start != EARLIEST and (type(self.start) is not int or self.start < 0):
            raise Refused(
                f"DeltaSource: start={self.start!r}", hint="'earliest', or the number of a version of the table"
            )
        if self.changes and self.ignore_deletes:
            raise Refused(
                "DeltaSource: changes=True has the deletes, and ignore_deletes=True leaves them out",
                hint="one of the two",
            )
        if self.max_files_a_batch < 1:
            raise Refused("DeltaSource: max_files_a_batch must be at least 1", hint="1000 is the default")
        record_size.check_record_size("DeltaSource", self.max_record_bytes)

    @property
    def where(self) -> str:
        """What people call the table."""
        return str(self.path or self.table)

    @property
    def inbox(self) -> None:
        """It has no folder of its own: nothing in the table's is moved or deleted by a pipeline that reads it."""
        return

    @property
    def links(self) -> Literal[False]:
        """No link is followed."""
        return False

    @property
    def format(self) -> Literal["parquet"]:
        """What the data files are."""
        return "parquet"

    @property
    def header(self) -> Literal[False]:
        """They have none."""
        return False

    def layout(self) -> str:
        """How a version is cut into records, in text."""
        return "the changes of a delta table" if self.changes else "a delta table"

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Refuse columns (in DDL) that only the change data feed has, and a record id that two changes of one row would
        share."""
        types = {name: kind for name, kind in ddl.types(", ".join(columns)).items() if name in CHANGE_COLUMNS}
        if not self.changes and types:
            raise Refused(
                f"pipeline {pipeline}: {next(iter(types))} is a column of the change data feed",
                hint="DeltaSource(changes=True), or leave the column out",
            )
        for name, kind in types.items():
            if kind != CHANGE_COLUMNS[name]:
                raise Refused(
                    f"pipeline {pipeline}: {name} is declared as {kind}", hint=f"{name} {CHANGE_COLUMNS[name]}"
                )
        if self.changes and CHANGE_TYPE not in types:
            raise Refused(
                f"pipeline {pipeline} reads changes, and has no column {CHANGE_TYPE}: a deleted row would look "
                "like a new one",
                hint=f"declare `{CHANGE_TYPE} {CHANGE_COLUMNS[CHANGE_TYPE]}`",
            )
        if self.changes and record_id and not {CHANGE_TYPE, COMMIT_VERSION} <= {*record_id}:
            raise Refused(
                f"pipeline {pipeline}: an update is two changes of one row, and by record_id={record_id!r} the "
                "second would be a duplicate",
                hint=f"record_id=(), so that a change is known by its place; or add {CHANGE_TYPE!r} and "
                f"{COMMIT_VERSION!r} to it",
            )
