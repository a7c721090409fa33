"""The sources that a pipeline can declare, except Kafka. Pure data, checked when it is made."""

from __future__ import annotations

import re
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, Literal

from onlyonce.api import ddl
from onlyonce.api.declaration import NONE, Named, Several, check_one_of, declaration
from onlyonce.api.declared_source import EARLIEST as EARLIEST
from onlyonce.api.declared_source import LATEST as LATEST
from onlyonce.api.declared_source import DeclaredSource
from onlyonce.api.declared_source import Start as Start
from onlyonce.api.messages import Kafka as Kafka
from onlyonce.api.resolve import OWN
from onlyonce.core import records
from onlyonce.core.encodings import ENCODINGS, UTF_8
from onlyonce.core.errors import Refused
from onlyonce.core.line_values import DELIMITERS, csv_layout
from onlyonce.core.locations import Location, check_inbox, in_openlineage, is_url, location
from onlyonce.core.table_versions import CHANGE_COLUMNS, CHANGE_TYPE, COMMIT_VERSION


def check_start(whose: str, start: object, *, times: bool = True) -> None:
    """Raise Refused for a value that is not a start of a source. `times`: whether the source knows times.

    A source's start is declared; the first run resolves it once and stores it in the manifest.
    """
    if start in (EARLIEST, LATEST):
        return
    if not isinstance(start, datetime) or not times:
        others = ", or a datetime with its zone" if times else ""
        raise Refused(f"{whose}: start={start!r} is not a start", hint=f"'earliest' or 'latest'{others}")
    if start.tzinfo is None:
        raise Refused(f"{whose}: the start {start} has no time zone", hint="datetime(2026, 1, 1, tzinfo=UTC)")


def before_start(start: Start, modified_ns: int) -> bool:
    """Return whether input that existed at the first run, and was last changed at that time, is before the start."""
    if isinstance(start, datetime):
        return modified_ns < round(start.timestamp() * 1_000_000) * 1000
    return start == LATEST


# The sources that are read in ranges: files that grow, and the user's own readers.
#
# A file or part may be incomplete when it is found. Before a run reads, it stores the range [begin, end) of each file
# or part that it will read. A replay reads the same ranges.


MEGABYTE = 1 << 20
PARTS_A_BATCH = 1000


@declaration
class Growing(DeclaredSource):
    """A folder of files that are appended to, as logs are, one record a line.

    Only whole lines (csv: whole records) are read; the rest waits.

    A file is identified by its inode, its birth and its first line, whatever its name. So rotate by renaming in the
    folder: what was not read of the renamed file is read under its new name. If a file is cut short or rewritten in
    place before the end of what was read, it is `invalid` as a file, and nothing more of it is read. Names that end in
    .gz, .bz2 or .zst are left alone, unless `compressed`.

    inbox               the folder; by default <home>/inbox/<pipeline>. Names that begin with a dot or an underscore are
                        left alone. Files that a rotation moves into an object store are read there by Files, as a
                        second source (docs/how-to/object-store.md)
    max_files_a_batch   how many files one batch reads from at most
    max_bytes_a_batch   how many bytes one batch reads at most, up to the end of a record
    format              'json': an object on each line. 'csv': the declared columns in order, as in Files
    delimiter           csv: what separates the values, as in Files
    encoding            csv: of the files' bytes, as in Files
    null                csv: the words for null, as in Files
    compressed          also read compressed files: each as a whole, complete when it appears. If a rotation compresses
                        a file that was read, it is read again
    start               'earliest', 'latest', or a time with its zone: if a file existed at the first run (and was last
                        changed before that time), only what is appended later is read. Decided once, by the
                        first run
    max_record_bytes    a larger record is `invalid`, with its place, its size and its beginning. csv: an open quote is
                        closed within it
    links               whether a symbolic link is followed. Then everyone who may write to the inbox can have any file
                        read that the driver's user may read. Else a link is `invalid` as a file, as are pipes, sockets
                        and device files
    """

    found_by = "ranges of files"
    has_inbox = in_ranges = True

    inbox: str | None = None
    max_files_a_batch: int = PARTS_A_BATCH
    max_bytes_a_batch: int = 256 * MEGABYTE
    format: Literal["json", "csv"] = "json"
    compressed: bool = False
    start: Literal["earliest", "latest"] | datetime = EARLIEST
    max_record_bytes: int = records.DEFAULT
    links: bool = False
    delimiter: str = ","
    encoding: str = UTF_8
    null: Several[str] = NONE

    def __post_init__(self) -> None:
        check_one_of("Growing", "format", self.format, ("json", "csv"))
        _check_csv_options(self)
        check_start("Growing", self.start)
        _refuse_store(self.inbox)
        check_inbox("Growing", self.inbox)
        _at_least_one(self, "max_files_a_batch")
        _at_least_one(self, "max_bytes_a_batch")
        records.check_record_size("Growing", self.max_record_bytes)

    @property
    def has_no_names(self) -> str | None:
        """See DeclaredSource."""
        return _without_names(self)

    def described(self, inbox: str) -> str:
        """See DeclaredSource."""
        return f"files that grow, in {inbox}, {self.max_files_a_batch} files a batch"

    def layout(self) -> str:
        """Return how a file is cut into records and columns, in words."""
        return f"growing {self.format}{_csv_words(self)}"

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Raise Refused for declared columns (in DDL) that the format can't hold. Any of them may be the record id."""
        _refuse_nested_csv(self.format, pipeline, columns)


@declaration
class Custom(DeclaredSource):
    """A source of your own: a Python class that numbers its records. Its contract is docs/how-to/own-source.md.

    reader                  'module:Class', or the name that a package has for it among its entry points
                            `onlyonce.sources`; made with `options`, it has ends() and read(part, start, end)
    needs_dedup             whether the same record may come under two numbers. If so, the pipeline must name record_id
                            columns; else its record_id may be (): then a record is its part and number
    options                 the arguments of the class. Never passwords: name an environment variable
    max_records_a_batch     how many records one batch takes at most
    start                   'earliest': number 0 of each part. 'latest': the ends at the first run. Decided once, by
                            that run
    max_record_bytes        a larger record is `invalid`, with its place, its size and its beginning
    """

    found_by = "numbers"
    is_own = in_ranges = True
    has_no_names = "a Custom source, whose reader gives the declared columns"
    typed_by = "types"

    reader: Named
    needs_dedup: bool
    options: dict[str, Any] = field(default_factory=dict)
    max_records_a_batch: int = 1_000_000
    start: Literal["earliest", "latest"] = EARLIEST
    max_record_bytes: int = records.DEFAULT

    def __post_init__(self) -> None:
        if not OWN.fullmatch(self.reader):
            raise Refused(f"Custom: reader {self.reader!r} is no 'module:Class', and no name of an entry point")
        check_start("Custom", self.start, times=False)
        _at_least_one(self, "max_records_a_batch")
        records.check_record_size("Custom", self.max_record_bytes)

    @property
    def max_files_a_batch(self) -> int:
        """Return how many parts one batch reads from."""
        return PARTS_A_BATCH

    @property
    def format(self) -> Literal["columns"]:
        """Return the form of its records: columns."""
        return "columns"

    @property
    def reads(self) -> None:
        """Return None: two readers of one class may read from different places."""
        return None

    def described(self, inbox: str) -> str:
        """See DeclaredSource."""
        return f"`{self.reader}`, {self.max_records_a_batch:,} records a batch"

    def layout(self) -> str:
        """Return where its records come from, in words."""
        return f"columns of {self.reader}"

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Raise Refused if the source needs deduplication and the pipeline names no ids."""
        if self.needs_dedup and not record_id:
            raise Refused(
                f"pipeline {pipeline}: its source {self.reader} needs dedup, but record_id is ()",
                data="a record that comes under two numbers would be kept twice",
                hint="name the columns that identify a record; or, if none can come twice, say needs_dedup=False",
            )


def _refuse_store(inbox: str | None) -> None:
    if inbox is not None and is_url(inbox):
        raise Refused(
            f"Growing: inbox {inbox!r} is a URL: no object is appended to, and nothing tells a file that was moved "
            "there from a copy of it",
            data="nothing was read or written",
            hint="read rotated files there by Files(inbox=…), a second source next to Growing, with "
            "id_space='shared': a record that comes by both is one (docs/how-to/object-store.md)",
        )


def _at_least_one(source: object, option: str) -> None:
    value = getattr(source, option)
    if value < 1:
        raise Refused(f"{type(source).__name__}: {option} is {value}", hint="at least 1; leave it out")


# A Delta table as a source.


TABLE_NAME = re.compile(r"[^.`\s/]+(\.[^.`\s/]+){1,2}")
"""The name of a table in a catalog: its schema, and its catalog if it is not Spark's default one."""


@declaration
class DeltaSource(DeclaredSource):
    """The rows that each version of a Delta table appends, version by version, each row once.

    No version is skipped silently.

    A version that only rewrites rows into other files (OPTIMIZE) has no new rows and is skipped. A version that deletes
    or changes rows is refused by its number, unless `ignore_deletes` or `changes` says what to do with it. A table that
    was created again under its path is refused.

    path                the table's folder, or a prefix of an object store (s3://bucket/table); a path that is not
                        absolute is below <home>/tables, as for the sink Delta
    table               in place of the path the name of the table in a Spark catalog: 'sales.orders',
                        'lake.sales.orders'. Each run asks Spark where it is; a table that has moved is refused
    changes             read the change data feed: `_change_type`, `_commit_version` and `_commit_timestamp` may be
                        declared as columns, and a row that is deleted or updated is a record of its own
                        (docs/how-to/delta-source.md)
    ignore_deletes      skip a version that only deletes whole files
    start               'earliest': version 0. A number: that version; rows of earlier ones are not read. Changing it
                        later has no effect
    max_files_a_batch   how many data files one batch takes at most
    max_record_bytes    a larger record is `invalid`, with its place, its size and its beginning
    """

    found_by = "versions"
    is_table = in_ranges = True
    has_no_names = "a DeltaSource, whose table has names that a declaration can have"
    typed_by = "types"
    one_of = ("path", "table")

    path: str | None = None
    table: str | None = None
    changes: bool = False
    ignore_deletes: bool = False
    start: Literal["earliest"] | int = EARLIEST
    max_files_a_batch: int = 1000
    max_record_bytes: int = records.DEFAULT

    def __post_init__(self) -> None:
        if (self.path is None) == (self.table is None):
            raise Refused(
                "DeltaSource: one of path and table says which table is read",
                hint="path='shop/per_shop', or table='sales.orders' by a catalog of Spark's",
            )
        if self.table is not None and not TABLE_NAME.fullmatch(self.table):
            raise Refused(
                f"DeltaSource: table {self.table!r} is not the name of a table in a catalog",
                hint=f"'schema.table' or 'catalog.schema.table'; a folder is named by path={self.table!r}",
            )
        if self.path is not None and is_url(self.path):
            location(self.path, "DeltaSource: path")
        if self.path is not None and (not self.path or ".." in self.path.split("/")):
            raise Refused(
                f"DeltaSource: path {self.path!r} is not a table's folder",
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
        records.check_record_size("DeltaSource", self.max_record_bytes)

    @property
    def start_to_resolve(self) -> bool:
        """Return False: its start is the number of a version."""
        return False

    @property
    def where(self) -> str:
        """Return the path or name of the table."""
        return str(self.path or self.table)

    @property
    def reads(self) -> str:
        """See DeclaredSource."""
        return f"the table {self.where}"

    def described(self, inbox: str) -> str:
        """See DeclaredSource."""
        rows = "changes" if self.changes else "appends"
        return f"the {rows} of the Delta table `{self.where}`, {self.max_files_a_batch} files a batch"

    def dataset(self, at: Location | None) -> tuple[str, str]:
        """See DeclaredSource. A name in a catalog is Spark's."""
        return in_openlineage(at) if at and self.path else ("spark", self.where)

    @property
    def format(self) -> Literal["parquet"]:
        """Return the format of the data files."""
        return "parquet"

    def layout(self) -> str:
        """Return how a version is cut into records, in words."""
        return "the changes of a delta table" if self.changes else "a delta table"

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Raise Refused for columns (in DDL) that only the feed has, and for an id that two changes would share."""
        types = {name: kind for name, kind in ddl.plain_types(columns).items() if name in CHANGE_COLUMNS}
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


# Files and Pub/Sub.


FORMATS = ("json", "csv", "parquet", "avro")
IN_COLUMNS = ("parquet", "avro", "columns")
"""The formats whose records come in columns and not in lines."""
SUBSCRIPTION = re.compile(r"projects/([^/\s]+)/subscriptions/([^/\s]+)")
MESSAGE_ID = "message_id"
"""The column of a message's own id."""
LARGEST_MESSAGE = 10 * 1024 * 1024
"""Pub/Sub takes no larger message."""


@declaration
class Files(DeclaredSource):
    """An inbox of files, one record a line or row. A file is complete when it appears: write it elsewhere, then rename.

    Names that end in .gz, .bz2 or .zst are compressed files. A file that is cut short or damaged is `invalid` as a
    file: nothing of it is read.

    inbox               the folder; by default <home>/inbox/<pipeline>. Names of files and folders that begin with a dot
                        or an underscore are left alone. Or a prefix of an object store, s3://bucket/prefix: the objects
                        directly below it (docs/how-to/object-store.md)
    recursive           read the files in folders below the inbox too (dt=2026-03-01/part-0.jsonl), at any depth.
                        False: such a folder is skipped, and each run and the doctor report it
    max_files_a_batch   how many files one batch takes at most; with their sorted names it determines the batches
    format              'json': an object on each line. 'csv': the declared columns in order, with the delimiter between
                        them; a string with a delimiter, quote or line feed in double quotes, a quote doubled; nothing
                        between delimiters is null. 'parquet', 'avro': columns by name. A file is `invalid` as a file if
                        the type of a column does not fit the declared one, if the record id or the event time is
                        missing, or if the file is cut short or damaged
    delimiter           csv: what separates the values: ',', ';', '\\t' or '|'
    encoding            csv: 'utf-8', or the code page of Windows in which the files are written: 'windows-874', or
                        'windows-1250' to 'windows-1258' (Western Europe: 'windows-1252'). A line with a byte that the
                        code page does not define is `invalid`. A file with a byte order mark of UTF-8 or UTF-16 is then
                        `invalid` as a file
    null                csv: the words that mean null, in any column: 'NULL', or ('NA', '-'). Nothing between delimiters
                        is null too. A string in double quotes is never null
    header              csv: the first line of each file has the names of the declared columns; a file with other names
                        there is `invalid` as a file
    start               'earliest': all files. 'latest': files that exist at the first run are not read. A time with its
                        zone: of the files that exist at the first run, those that were last changed before that time
                        are not read. Later files are always read. Decided once, by the first run
    max_record_bytes    a larger record is `invalid`, with its place, its size and its beginning. csv: an open quote is
                        closed within it
    links               whether a symbolic link is followed. Then everyone who may write to the inbox can have any file
                        read that the driver's user may read. Else a link is `invalid` as a file, as are pipes, sockets
                        and device files
    """

    found_by = "files"
    has_inbox = True

    inbox: str | None = None
    max_files_a_batch: int = 1000
    format: Literal["json", "csv", "parquet", "avro"] = "json"
    header: bool = False
    start: Literal["earliest", "latest"] | datetime = EARLIEST
    max_record_bytes: int = records.DEFAULT
    links: bool = False
    recursive: bool = False
    delimiter: str = ","
    encoding: str = UTF_8
    null: Several[str] = NONE

    def __post_init__(self) -> None:
        check_one_of("Files", "format", self.format, FORMATS)
        _check_csv_options(self)
        if self.header and self.format != "csv":
            raise Refused(
                f"Files: header=True is for CSV, and format is {_format_in_words(self)}",
                hint="leave header out, or say format='csv'",
            )
        check_start("Files", self.start)
        _check_files(self)

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Raise Refused for declared columns (in DDL) that the format can't hold. Any of them may be the record id."""
        _refuse_nested_csv(self.format, pipeline, columns)

    @property
    def in_store(self) -> bool:
        """See DeclaredSource."""
        return self.inbox is not None and is_url(self.inbox)

    @property
    def has_no_names(self) -> str | None:
        """See DeclaredSource."""
        return _without_names(self)

    @property
    def typed_by(self) -> str | None:
        """See DeclaredSource."""
        return "types" if self.format in IN_COLUMNS else None

    def described(self, inbox: str) -> str:
        """See DeclaredSource."""
        return f"{inbox}, {self.max_files_a_batch} files a batch"

    def layout(self) -> str:
        """Return how a file is cut into records and columns, in words."""
        return f"{self.format}{_csv_words(self)}{' with a header' if self.header else ''}"


@declaration
class PubSub(DeclaredSource):
    """A Pub/Sub subscription, of this pipeline alone. Its messages become files in an inbox, then are acknowledged.

    subscription          'projects/P/subscriptions/S'. It must exist: messages published before it are not delivered
    record_id_attribute   the attribute that identifies a record, for publishers that may send one twice (each time
                          under a new message id); None: the message id
    inbox                 where the messages are written; by default <home>/inbox/<pipeline>
    max_files_a_batch     how many pulled files (each the answer to one request) one batch takes at most
    max_messages          how many messages one request asks for at most; Pub/Sub gives 1000 at most
    max_bytes             how large the answer to a request may be; a pull run takes about five times as much memory
    drained_after         a pull run ends when no message has come for this long
    pull_for              a pull run ends after this long in any case; the next one continues
    max_record_bytes      a larger record is `invalid`, with its place, its size and its beginning
    """

    found_by = "files"
    has_inbox = is_pulled = True
    in_several = False

    subscription: str
    record_id_attribute: str | None = None
    inbox: str | None = None
    max_files_a_batch: int = 1000
    max_messages: int = 1000
    max_bytes: int = 64 * 1024 * 1024
    drained_after: timedelta = timedelta(seconds=5)
    pull_for: timedelta = timedelta(minutes=5)
    max_record_bytes: int = records.DEFAULT

    def __post_init__(self) -> None:
        _check_files(self)
        if not SUBSCRIPTION.fullmatch(self.subscription):
            raise Refused(
                f"PubSub: subscription {self.subscription!r}",
                hint="its whole name: projects/PROJECT/subscriptions/NAME",
            )
        if self.record_id_attribute == "":
            raise Refused("PubSub: record_id_attribute is empty", hint="leave it out: then the message id is the id")
        if not 1 <= self.max_messages <= 1000:
            raise Refused(f"PubSub: max_messages is {self.max_messages}", hint="from 1 to 1000, which is the default")
        if self.max_bytes < 2 * LARGEST_MESSAGE:
            raise Refused(
                f"PubSub: max_bytes is {self.max_bytes}, but one message may have {LARGEST_MESSAGE}",
                hint=f"at least {2 * LARGEST_MESSAGE}, so that any message can be pulled",
            )
        if self.drained_after <= timedelta(0) or self.pull_for <= timedelta(0):
            raise Refused("PubSub: drained_after and pull_for must be longer than zero", hint="leave them out")

    @property
    def format(self) -> Literal["json"]:
        """Return the form of pulled messages: JSON lines."""
        return "json"

    @property
    def start(self) -> Literal["earliest"]:
        """Return 'earliest': all pulled messages are read, and the subscription decides the first of them."""
        return EARLIEST

    @property
    def own_columns(self) -> tuple[str, ...]:
        """See DeclaredSource."""
        return (self.id_column,)

    def described(self, inbox: str) -> str:
        """See DeclaredSource."""
        return f"Pub/Sub, `{self.subscription}`, pulled into {inbox}, {self.max_files_a_batch} files a batch"

    def dataset(self, at: Location | None) -> tuple[str, str]:
        """See DeclaredSource."""
        return "pubsub", self.subscription.replace("projects/", "", 1).replace("/subscriptions/", ":")

    def layout(self) -> str:
        """Return how a pulled file is cut into records and columns, in words."""
        return self.format

    @property
    def id_column(self) -> str:
        """Return the declared column that holds a pulled message's id."""
        return self.record_id_attribute or MESSAGE_ID

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Raise Refused unless the pipeline's record id is the message's."""
        typed = ddl.plain_types(columns)
        if record_id != (self.id_column,) or typed[self.id_column] != "string":
            raise Refused(
                f"pipeline {pipeline}: the record id of its messages is {self.id_column!r}, as PubSub declares it",
                hint=f"record_id=({self.id_column!r},), and `{self.id_column}` string in the schema; "
                "record_id_attribute names another",
            )

    def create_command(self) -> str:
        """Return the command with which a person creates the subscription."""
        found = SUBSCRIPTION.fullmatch(self.subscription)
        assert found is not None
        return (
            f"gcloud pubsub subscriptions create {found[2]} --project={found[1]} --topic=TOPIC --ack-deadline=60 "
            "--message-retention-duration=7d --expiration-period=never"
        )


Source = Files | PubSub | Growing | Custom | DeltaSource | Kafka


def _check_csv_options(source: Files | Growing) -> None:
    whose = type(source).__name__
    if source.delimiter not in DELIMITERS:
        raise Refused(
            f"{whose}: delimiter={source.delimiter!r}", hint=f"choose one of: {', '.join(map(repr, DELIMITERS))}"
        )
    if source.encoding not in ENCODINGS:
        raise Refused(
            f"{whose}: encoding={source.encoding!r}",
            hint=f"choose one of: {', '.join(map(repr, ENCODINGS))}. Convert files of another encoding to UTF-8 before "
            "they go into the inbox (iconv -f NAME -t UTF-8)",
        )
    for name, value, default in (
        ("delimiter", source.delimiter, ","),
        ("encoding", source.encoding, UTF_8),
        ("null", source.null, ()),
    ):
        if value != default and source.format != "csv":
            raise Refused(
                f"{whose}: {name}={value!r} is for CSV, and format is {_format_in_words(source)}",
                hint=f"leave {name} out, or say format='csv'",
            )
    for word in source.null:
        if not word or word != word.strip(" ") or {*word} & {source.delimiter, *'"\r\n\0'}:
            raise Refused(
                f"{whose}: null has {word!r}, which no value without double quotes can be",
                hint="a word without the delimiter, quotes, line ends, or spaces around it, such as null='NULL'; "
                "nothing between delimiters is null without it",
            )


def _format_in_words(source: Files | Growing) -> str:
    return f"{source.format!r}{' (the default)' if source.format == 'json' else ''}"


def _refuse_nested_csv(format: str, pipeline: str, columns: list[str]) -> None:
    nested = [column.strip() for column in columns if {*ddl.plain_types([column]).values()} & {"struct", *ddl.PARTS}]
    if nested and format == "csv":
        raise Refused(f"pipeline {pipeline}: CSV has no nested columns: {nested[0]}", hint="declare it as a string")


def _without_names(source: Files | Growing) -> str | None:
    if source.format == "csv" and not source.header:
        return "CSV without a header, in which a column is known by its position"
    return None


def _csv_words(source: Files | Growing) -> str:
    separated = "" if source.delimiter == "," else f" separated by {source.delimiter!r}"
    nulls = f", null as {' or '.join(map(repr, source.null))}" if source.null else ""
    return separated + ("" if source.encoding == UTF_8 else f" in {source.encoding}") + nulls


def line_layout(source: Source) -> str:
    """Return how a line of a source is read: 'json', or the layout of CSV by `line_values.csv_layout`."""
    return csv_layout(source.delimiter, source.null) if source.format == "csv" else source.format


def _check_files(source: Files | PubSub) -> None:
    if source.in_store:
        _check_prefix(source)
    else:
        check_inbox(type(source).__name__, source.inbox)
    records.check_record_size(type(source).__name__, source.max_record_bytes)
    if source.max_files_a_batch < 1:
        raise Refused(f"{type(source).__name__}: max_files_a_batch must be at least 1", hint="1000 is the default")


def _check_prefix(source: Files | PubSub) -> None:
    assert source.inbox
    location(source.inbox, "Files: inbox")
    if source.links:
        raise Refused(f"Files: links=True of {source.inbox}", hint="an object store has no links: leave it out")
