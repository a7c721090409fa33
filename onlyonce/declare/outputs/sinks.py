"""The sinks that are tables and files, and what each promises.

Sinks to which rows are sent are in `sent`. Pure data, checked when it is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from onlyonce.declare.declaration import check_one_of, declaration
from onlyonce.declare.outputs import newest
from onlyonce.declare.outputs.sent import Sent
from onlyonce.declare.several import NONE, Several
from onlyonce.declare.sources.tables import NAME
from onlyonce.model.errors import Refused
from onlyonce.model.operate.dropping import Place
from onlyonce.model.sinks import names
from onlyonce.model.sinks import shards as model
from onlyonce.model.storage.folders import check_folder
from onlyonce.model.storage.location import is_url, location
from onlyonce.model.stored_names import WINDOW_END, WINDOW_START


@declaration
class Delta:
    """A Delta table at <home>/tables/<path>; exactly once by txnAppId and txnVersion.

    path       the folder, below <home>/tables or from / on; by default <pipeline>/<output>. Or 's3://bucket/table',
               where ONLYONCE_DATA is in S3 too
    write      'append': each row once. 'upsert': a row replaces the one with the same keys; where the window is not
               among them, the row of the later window stays, whichever comes first. 'history' (SCD type 2) as
               `Postgres` has it
    keys       what identifies a row of an upsert, and whose history it is
    newest_by  of an upsert without windows, the columns that say which row of a key is the newest, as `Postgres` has it
    table      its name in a catalog of Spark's, 'sales.orders' or 'lake.sales.orders', for readers: each run looks that
               the catalog has this table under that name, and enters it where it has none. A bounded run's table has no
               name
    deletes    a boolean column of the rows, which is not stored: where it is true the row of those keys is removed. The
               key and its newest_by stay in a table beside, <path>_deleted, by a commit before that of the rows, so
               that no older row comes back
    """

    path: str | None = None
    write: Literal["append", "upsert", "history"] = "append"
    keys: Several[str] = NONE
    newest_by: Several[str] = NONE
    deletes: str | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        if self.table is not None and not NAME.fullmatch(self.table):
            raise Refused(
                f"Delta: table {self.table!r} is no name of a table in a catalog",
                data="nothing was read or written",
                hint="'schema.table' or 'catalog.schema.table', beside path, which is its folder",
            )
        _check_write("Delta", self.write, self.keys, ("append", "upsert", "history"))
        newest.check_sink("Delta", self)
        if self.path and is_url(self.path):
            location(self.path, "Delta: path")
        else:
            check_folder("Delta: path", self.path)

    def target(self, default: str) -> str:
        """Where the rows go, as text: the same text means the same place. `default` is <pipeline>/<output>."""
        return f"delta:{self.path or default}"


@declaration
class Postgres:
    """A PostgreSQL table; exactly once, since the rows and the unit commit in one transaction.

    table       'schema.table'; made if it is missing
    write       'append', 'upsert' (as `Delta` has it), or 'increment': numbers are added to the row with the same keys;
                the window's columns are left out unless they are keys. 'history' (SCD type 2): each row is a version of
                its keys from its column valid_from on; the platform adds valid_to and is_current
    keys        what identifies a row of an upsert or increment, and whose history it is
    newest_by   of an upsert without windows, the columns that say which row of a key is the newest, such as a position
                in a database's log. An older one that comes later changes nothing. Of a history the order of the
                versions: a late one finds its place
    deletes     a boolean column of the rows, which is not stored: where it is true the row of those keys is removed; of
                a history its last version ends. The key and its newest_by stay in <table>_deleted, in the same
                transaction, so that no older row comes back
    connection  the environment variable that holds the database's URL; by default the platform's database. A lineage
                that has written by it is refused where it names another database later
    """

    table: str
    write: Literal["append", "upsert", "increment", "history"] = "append"
    keys: Several[str] = NONE
    connection: str | None = None
    newest_by: Several[str] = NONE
    deletes: str | None = None

    def __post_init__(self) -> None:
        _check_write("Postgres", self.write, self.keys, ("append", "upsert", "increment", "history"))
        newest.check_sink("Postgres", self)
        if self.table.count(".") != 1:
            raise Refused(f"Postgres: table {self.table!r} has no schema", hint="write it as 'schema.table'")
        if self.table.split(".")[0].startswith("onlyonce"):
            raise Refused(f"Postgres: {self.table!r} is in the platform's own schema", hint="choose another schema")
        if max(names.POSTGRES.size(part) for part in self.table.split(".")) > names.POSTGRES.most:
            raise Refused(
                f"Postgres: {self.table!r} is longer than PostgreSQL's names",
                hint=f"{names.POSTGRES.most} bytes at most, for the schema and for the table",
            )

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"postgres:{self.connection or ''}:{self.table}"


@declaration
class MySQL:
    """A table of MySQL or MariaDB; exactly once, since the rows and the unit commit in one transaction there.

    table       in the database that the URL names; made if it is missing. One that is there must be of InnoDB
    connection  the environment variable that holds the URL, mysql://user:password@host/database. A lineage that has
                written by it is refused where it names another database later
    write       'append', 'upsert' as `Delta` has it, or 'history' as `Postgres` has it
    keys        what identifies a row of an upsert: the primary key. None of them may be null
    newest_by   as `Postgres` has it
    deletes     as `Postgres` has it
    """

    table: str
    connection: str
    write: Literal["append", "upsert", "history"] = "append"
    keys: Several[str] = NONE
    newest_by: Several[str] = NONE
    deletes: str | None = None

    def __post_init__(self) -> None:
        _check_write("MySQL", self.write, self.keys, ("append", "upsert", "history"))
        newest.check_sink("MySQL", self)
        if not re.fullmatch(r"[^./\\\0]{1,64}", self.table) or self.table != self.table.strip():
            raise Refused(
                f"MySQL: table {self.table!r}",
                hint="the name alone, of at most 64 characters: the URL names the database",
            )
        if self.table.lower().startswith(
            ("onlyonce_", "oo_")
        ):  # `oo_`: temporary tables of a unit, which would hide it
            raise Refused(f"MySQL: {self.table!r} has a name of the platform's own tables", hint="choose another name")
        if "://" in self.connection:
            raise Refused(
                "MySQL: connection is a URL", hint="name the environment variable that holds it: it has a password"
            )

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"mysql:{self.connection}:{self.table}"


@declaration
class Iceberg:
    """A table of an Iceberg catalog; exactly once, since the commit of a batch also names it in a property of the
    table.

    table     'namespace.table'; made if it is missing, and so is its namespace. One that is there may be partitioned by
              columns as they are (identity), not by days or buckets
    catalog   the name of the catalog in pyiceberg's own configuration: .pyiceberg.yaml, or
              PYICEBERG_CATALOG__<NAME>__URI and its companions
    write     'append'. Rows are not replaced by key so far
    keys      for the message only: an append has none
    """

    table: str
    catalog: str = "default"
    write: Literal["append"] = "append"
    keys: Several[str] = NONE

    def __post_init__(self) -> None:
        if str(self.write) == "upsert":
            raise Refused(
                "Iceberg: write='upsert' is not possible so far",
                hint="append; or declare Delta(…) or Postgres(…) for rows by key",
            )
        _check_write("Iceberg", self.write, self.keys, ("append",))
        if not re.fullmatch(r"[^\s.:/@]+(\.[^\s.:/@]+)+", self.table):
            raise Refused(
                f"Iceberg: table {self.table!r}", hint="write it as 'namespace.table', without spaces and without : / @"
            )
        if not re.fullmatch(r"\w+", self.catalog):
            raise Refused(
                f"Iceberg: catalog {self.catalog!r} is no name",
                hint="name a catalog of pyiceberg's configuration; its address is there",
            )

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"iceberg:{self.catalog.lower()}:{self.table}"


@declaration
class FileSink:
    """Files: `shards` of them for each window, which `onlyonce finalize` gives their final names.

    path        the folder; by default <home>/files/<pipeline>/<output>. Or a URL of an object store
                (s3://bucket/folder)
    format      'jsonl', 'csv', 'text' (one column of text), 'parquet', 'avro', or a writer of your own as
                'module:function': it gets a binary file, a pyarrow schema and the record batches of one shard, which
                may be none
    shards      how many files each window has
    keys        rows of the same values are in the same shard; by default the hash of the whole row decides
    naming      the final name in the folder, made of {prefix}, {window_start}, {window_end}, {pane}, {shard}, {shards}
                and {ext}. It may have folders
    prefix      what stands for {prefix}; by default the output's name
    extension   what stands for {ext}; by default the format's own
    skip_empty  leave a shard without rows out; by default it is an empty, valid file, so each window has all its files
    """

    path: str | None = None
    format: Literal["jsonl", "csv", "text", "parquet", "avro"] | str = "jsonl"
    shards: int = 10
    keys: Several[str] = NONE
    naming: str = model.NAMING
    prefix: str | None = None
    extension: str | None = None
    skip_empty: bool = False

    def __post_init__(self) -> None:
        if ":" in self.format and not re.fullmatch(r"[\w.]+:\w+", self.format):
            raise Refused(f"FileSink: format {self.format!r} is not of the form 'module:function'")
        if ":" not in self.format:
            check_one_of("FileSink", "format", self.format, tuple(model.EXTENSIONS))
        elif self.extension is None:
            raise Refused("FileSink: a writer of your own needs an extension", hint="extension='bin', for example")
        if not 1 <= self.shards <= model.MOST:
            raise Refused(f"FileSink: shards={self.shards}", hint=f"from 1 to {model.MOST}; 10 is the default")
        model.check_naming(self.naming, self.prefix, self.extension)
        if "://" not in (self.path or "") or (self.path or "").startswith("file:"):
            check_folder("FileSink: path", self.path)

    @property
    def write(self) -> Literal["files"]:
        """How rows get there, as the other sinks say it: each pane is files of its own, and nothing is replaced."""
        return "files"

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"files:{self.path or default}"

    def place(self, target: str, suffix: str) -> str:
        """The folder or URL of a pipeline on its stream, or of a bounded run by its suffix (@1)."""
        return Place(target).of_run(suffix).where

    def name(self, output: str, shard: model.Shard) -> str:
        """The final name of a shard; {pane} stays as it is, since the end of its batch numbers the panes."""
        return model.name(self.naming, self.prefix or output, self._extension, shard)

    def check_length(self, output: str) -> None:
        """Raise Refused if a file of an output can have a name that is too long."""
        model.check_length(self.naming, output, self.prefix or output, self._extension)

    @property
    def _extension(self) -> str:
        return self.extension or model.EXTENSIONS[self.format]


Sink = Delta | Postgres | MySQL | Iceberg | FileSink | Sent


def later_window_wins(write: str, keys: Iterable[str], columns: Iterable[str]) -> bool:
    """Whether rows of several windows are one row of the target: an upsert whose keys don't say the window."""
    return write == "upsert" and WINDOW_START in columns and not {WINDOW_START, WINDOW_END} & {*keys}


def _check_write(kind: str, write: str, keys: tuple[str, ...], known: tuple[str, ...]) -> None:
    check_one_of(kind, "write", write, known)
    if (write == "append") == bool(keys):
        raise Refused(
            f"{kind}: write={write!r} with keys={keys!r}",
            hint="upsert and increment need keys, and so does history; append has none",
        )
