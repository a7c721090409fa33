"""The sinks that an output can declare, and what each promises. Pure data, checked when made."""

from __future__ import annotations

import re
from dataclasses import field
from datetime import timedelta
from typing import Literal

from jobs.model import shards as model
from jobs.model.declaration import check_one_of, declaration
from jobs.model.errors import Refused


@declaration
class Delta:
    """A Delta table at <home>/tables/<path>; exactly once by txnAppId and txnVersion.

    path    the folder; by default <pipeline>/<output>
    write   'append': each row once. 'upsert': a row replaces the one with the same keys
    keys    what identifies a row of an upsert
    """

    path: str | None = None
    write: Literal["append", "upsert"] = "append"
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_write("Delta", self.write, self.keys, ("append", "upsert"))

    def target(self, default: str) -> str:
        """Where the rows go, as text: the same text means the same place. `default` is <pipeline>/<output>."""
        return f"delta:{self.path or default}"


@declaration
class Postgres:
    """A PostgreSQL table; exactly once, since the rows and the unit commit in one transaction.

    table       'schema.table'; made if it is missing
    write       'append', 'upsert', or 'increment': numbers are added to the row with the same keys; the
                window's columns are left out unless they are keys
    keys        what identifies a row of an upsert or increment
    connection  the environment variable that holds the database's URL; by default the platform's database
    """

    table: str
    write: Literal["append", "upsert", "increment"] = "append"
    keys: tuple[str, ...] = ()
    connection: str | None = None

    def __post_init__(self) -> None:
        _check_write("Postgres", self.write, self.keys, ("append", "upsert", "increment"))
        if self.table.count(".") != 1:
            raise Refused(f"Postgres: table {self.table!r} has no schema", hint="write it as 'schema.table'")
        if self.table.split(".")[0].startswith("onlyonce"):
            raise Refused(f"Postgres: {self.table!r} is in the platform's own schema", hint="choose another schema")

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"postgres:{self.connection or ''}:{self.table}"


@declaration
class FileSink:
    """Files: `shards` of them for each window, which `onlyonce finalize` gives their final names.

    path        the folder; by default <home>/files/<pipeline>/<output>. Or a URL of an object store (s3://bucket/folder)
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
    format: str = "jsonl"
    shards: int = 10
    keys: tuple[str, ...] = ()
    naming: str = model.NAMING
    prefix: str | None = None
    extension: str | None = None
    skip_empty: bool = False

    def __post_init__(self) -> None:
        if ":" in self.format and not re.fullmatch(r"[\w.]+:\w+", self.format):
            raise Refused(f"FileSink: format {self.format!r} is no 'module:function'")
        if ":" not in self.format:
            check_one_of("FileSink", "format", self.format, tuple(model.EXTENSIONS))
        elif self.extension is None:
            raise Refused("FileSink: a writer of your own needs an extension", hint="extension='bin', for example")
        if not 1 <= self.shards <= model.MOST:
            raise Refused(f"FileSink: shards={self.shards}", hint=f"from 1 to {model.MOST}; 10 is the default")
        model.check_naming(self.naming, self.prefix, self.extension)

    @property
    def write(self) -> Literal["files"]:
        """How rows get there, as the other sinks say it: each pane is files of its own, and nothing is replaced."""
        return "files"

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"files:{self.path or default}"

    def place(self, target: str, suffix: str) -> str:
        """The folder or URL of a pipeline on its stream, or of a bounded run by its suffix (@1)."""
        folder, mark, options = target.removeprefix("files:").partition("?")
        return folder + suffix + mark + options

    def name(self, output: str, shard: model.Shard) -> str:
        """The final name of a shard; {pane} stays as it is, since the end of its batch numbers the panes."""
        extension = self.extension or model.EXTENSIONS[self.format]
        return model.name(self.naming, self.prefix or output, extension, shard)


@declaration
class Webhook:
    """An HTTP endpoint that is called once for each row (a mail, a payment): by way of the outbox, with an Idempotency-Key.

    url            where each row is POSTed as JSON, or instead of it
    connection     the environment variable that holds the URL, which may be a secret
    authorization  the environment variable that holds the header Authorization
    keys           rows of the same values are sent in order, each after the answer to the one before
    order_by       what orders the rows of a key within a batch, after their window
    remembers      how long the endpoint is known to recognise a key: a row that was sent again later than this, after
                   an answer was lost, is marked as uncertain. By default it is not known to recognise any
    attempts       how often a row is sent before it is a dead letter
    pause          the pause before the second attempt; twice as long before each later one, up to ten minutes
    timeout        how long an answer is waited for
    at_once        how many requests are under way at once
    """

    url: str | None = field(default=None, repr=False)
    connection: str | None = field(default=None, repr=False)
    authorization: str | None = field(default=None, repr=False)
    keys: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    # How it is sent decides no result: it may change under a begun batch, so it is not in the fingerprint.
    remembers: timedelta = field(default=timedelta(0), repr=False)
    attempts: int = field(default=12, repr=False)
    pause: timedelta = field(default=timedelta(seconds=1), repr=False)
    timeout: timedelta = field(default=timedelta(seconds=30), repr=False)
    at_once: int = field(default=8, repr=False)

    def __post_init__(self) -> None:
        if (self.url is None) == (self.connection is None):
            raise Refused("Webhook: it needs one place", hint="url='https://…', or connection='NAME_OF_A_VARIABLE'")
        if self.url is not None and not self.url.startswith(("https://", "http://")):
            raise Refused(f"Webhook: url {self.url!r} is no http:// or https:// address")
        if self.order_by and not self.keys:
            raise Refused("Webhook: order_by without keys", hint="rows are in order within a key only: name the keys")
        _check_delivery("Webhook", self)

    @property
    def write(self) -> Literal["post"]:
        """How rows are written."""
        return "post"

    def target(self, default: str) -> str:
        """Where the rows go, like `Delta.target`: the outbox. Their endpoint may move, and may be a secret."""
        return f"webhook:{default}"


@declaration
class BigQuery:
    """A BigQuery table, by streaming inserts (`insertAll`): by way of the outbox, each row with an insert id of its own.

    table          'project.dataset.table'; it must be there
    remembers      how long the server drops an insert id that it knows. Google promises about a minute, at best effort
    attempts, pause, timeout, at_once
                   as for a Webhook; at_once counts requests of up to 500 rows
    """

    table: str
    remembers: timedelta = field(default=timedelta(minutes=1), repr=False)
    attempts: int = field(default=12, repr=False)
    pause: timedelta = field(default=timedelta(seconds=1), repr=False)
    timeout: timedelta = field(default=timedelta(seconds=60), repr=False)
    at_once: int = field(default=8, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w:.-]+\.\w+\.[\w-]+", self.table):
            raise Refused(f"BigQuery: table {self.table!r}", hint="write it as 'project.dataset.table'")
        _check_delivery("BigQuery", self)

    @property
    def write(self) -> Literal["insert"]:
        """How rows are written."""
        return "insert"

    @property
    def keys(self) -> tuple[str, ...]:
        """Rows of a table have no order."""
        return ()

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"bigquery:{self.table}"


Sink = Delta | Postgres | FileSink | Webhook | BigQuery
Sent = Webhook | BigQuery
"""The sinks behind the outbox: what was sent there can't be taken back."""


def _check_delivery(kind: str, sink: Sent) -> None:
    if sink.attempts < 1 or sink.at_once < 1:
        raise Refused(f"{kind}: attempts={sink.attempts}, at_once={sink.at_once}", hint="each is 1 or more")
    if min(sink.pause, sink.timeout) <= timedelta(0) or sink.remembers < timedelta(0):
        raise Refused(
            f"{kind}: pause={sink.pause}, timeout={sink.timeout}, remembers={sink.remembers}",
            hint="give lengths of time; only remembers may be 0",
        )


def _check_write(kind: str, write: str, keys: tuple[str, ...], known: tuple[str, ...]) -> None:
    check_one_of(kind, "write", write, known)
    if (write == "append") == bool(keys):
        raise Refused(
            f"{kind}: write={write!r} with keys={keys!r}", hint="upsert and increment need keys, append has none"
        )
