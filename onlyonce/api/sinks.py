"""The sinks of outputs as a user declares them: tables, files, and external sinks behind the outbox.

Pure data, checked when it is made.

An upsert may keep the newest row of each key by columns of the rows (`sequence_by`), and remove rows (`delete_when`).
Changes of a database come repeatedly and out of order. Each change has a position in its source, so the newest row of a
key is known in any order. A deleted row leaves its key and position behind, so that a late older change does not bring
it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field, replace
from datetime import timedelta
from typing import Literal, Self
from urllib.parse import urlsplit

from onlyonce import settings
from onlyonce.api.declaration import NO_FUNCTION, NONE, Named, Several, check_one_of, declaration, not_a_path
from onlyonce.api.declared_sink import HISTORY as HISTORY
from onlyonce.api.declared_sink import DeclaredSink, check_sink
from onlyonce.api.resolve import OWN
from onlyonce.api.sources import TABLE_NAME
from onlyonce.core import file_names, ownership
from onlyonce.core import shards as shard_files
from onlyonce.core.durations import in_source
from onlyonce.core.errors import Refused
from onlyonce.core.file_names import Naming
from onlyonce.core.locations import Location, check_target, in_openlineage, is_url, location
from onlyonce.core.ownership import Place
from onlyonce.core.stored_names import WINDOW_END, WINDOW_START
from onlyonce.core.windows import Window

ORDERED = ("string", "bigint", "int", "smallint", "tinyint", "decimal", "date", "timestamp", "timestamp_ntz")
"""Types whose values have one order, in Spark and in each sink. Strings are compared by their bytes."""


# The sinks behind the outbox.
#
# Their rows are first committed to the outbox, where they never change, and then sent by `onlyonce deliver`
# (docs/specification/outbox-row.md).


MOST_IN_A_REQUEST = 1000
"""The most rows of a request: a crash may leave as many unanswered for each request that is open."""


HERE = ("localhost", "127.0.0.1", "::1")
"""Names of this machine in a URL."""


def in_clear_text(url: str) -> bool:
    """Return whether data sent to an address leaves this machine without encryption."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in HERE


@declaration
class Webhook(DeclaredSink):
    """An HTTP endpoint that is called for each row (a mail, a payment), by way of the outbox.

    Each row has a key that never changes.

    url            the address to which each row is POSTed as JSON; give it or `connection`
    connection     the environment variable that holds the URL, which may be a secret
    authorization  the environment variable that holds the header Authorization. Refused with http://, except to this
                   machine
    secret         the environment variable that holds the secret (whsec_…) with which requests are signed, by Standard
                   Webhooks: the headers webhook-id, webhook-timestamp and webhook-signature
    keys           rows of the same values are sent in order, each after the answer to the one before
    order_by       what orders the rows of a key within a batch, after their window
    remembers      how long the endpoint is known to recognise a key: a row that was sent again later than this, after
                   a lost answer, is marked as uncertain. By default no endpoint is known to recognise any key
    attempts       how often a row is sent before it is a dead letter
    pause          the pause before the second attempt; twice as long before each later one, up to ten minutes
    timeout        how long a whole request may take, to the end of its answer
    at_once        how many requests are open at once
    batch          how many rows a request has at most, up to 1,000 and a megabyte. 1: its body is the row, and the
                   header Idempotency-Key its key. More: its body is a list of CloudEvents
                   (application/cloudevents-batch+json), even for one row; each has the row as `data` and its key as
                   `id`. Such an endpoint takes all events of a request or none, or it recognises an earlier event by
                   its id: a row whose answer was lost comes again with the same id, among other rows. It answers 2xx
                   once it has all of them
    """

    module = "onlyonce.sinks.outbox.sink_outbox"
    write = "post"
    is_external = True
    one_of = ("url", "connection")

    # It may hold a secret, and an error may print the declaration.
    url: str | None = field(default=None, repr=False)
    connection: str | None = None
    authorization: str | None = None
    secret: str | None = None
    keys: Several[str] = NONE
    order_by: Several[str] = NONE
    # `identity` leaves out the options below: they say how rows are sent, not which, so they may change under a begun
    # batch.
    remembers: timedelta = timedelta(0)
    attempts: int = 12
    pause: timedelta = timedelta(seconds=1)
    timeout: timedelta = timedelta(seconds=30)
    at_once: int = 8
    batch: int = 1

    def __post_init__(self) -> None:
        if (self.url is None) == (self.connection is None):
            raise Refused(
                "Webhook: it needs either url or connection", hint="url='https://…', or connection='NAME_OF_A_VARIABLE'"
            )
        if self.url is not None and not self.url.startswith(("https://", "http://")):
            raise Refused(f"Webhook: url {self.url!r} is not an http:// or https:// address")
        if self.authorization and self.url and in_clear_text(self.url):
            raise Refused(
                "Webhook: authorization with an http:// address: anyone on the way could read the token",
                hint="write the address as https://; http:// with a token is for this machine (localhost) alone",
            )
        if self.order_by and not self.keys:
            raise Refused("Webhook: order_by without keys", hint="rows are in order within a key only: name the keys")
        if not 1 <= self.batch <= MOST_IN_A_REQUEST:
            raise Refused(
                f"Webhook: batch={self.batch}",
                hint=f"how many rows one request has at most: from 1 to {MOST_IN_A_REQUEST}",
            )
        _check_delivery("Webhook", self)

    def target(self, default: str) -> str:
        """Return where the rows go, like `Delta.target`: the outbox. The endpoint may move, and may be a secret."""
        return f"webhook:{default}"


@declaration
class BigQuery(DeclaredSink):
    """A BigQuery table, by streaming inserts (`insertAll`), by way of the outbox. Each row has its own insert id.

    table          'project.dataset.table'; it must exist
    remembers      how long the server drops an insert id that it knows. Google promises about a minute, at best effort
    attempts, pause, timeout, at_once
                   as for a Webhook; at_once counts requests of up to 500 rows
    """

    module = "onlyonce.sinks.outbox.sink_outbox"
    write = "insert"
    is_external = True
    package = "google.cloud.bigquery"

    table: str
    remembers: timedelta = timedelta(minutes=1)
    attempts: int = 12
    pause: timedelta = timedelta(seconds=1)
    timeout: timedelta = timedelta(seconds=60)
    at_once: int = 8

    def __post_init__(self) -> None:
        _check_table("BigQuery", self.table)
        _check_delivery("BigQuery", self)

    def target(self, default: str) -> str:
        """Return where the rows go, as a string, like `Delta.target`."""
        return f"bigquery:{self.table}"


@declaration
class BigQueryStream(DeclaredSink):
    """A BigQuery table, exactly once, by the Storage Write API and the outbox.

    Each unit is one pending stream, whose rows have offsets and become visible together.

    table    'project.dataset.table'; it must exist, with the columns of the rows
    timeout  how long the answer to a request may take
    """

    module = "onlyonce.sinks.outbox.sink_outbox"
    write = "stream"
    is_external = True
    package = "google.cloud.bigquery_storage_v1"

    table: str
    # `identity` leaves out the options below: they say how rows are sent, not which, so they may change under a begun
    # batch.
    timeout: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        _check_table("BigQueryStream", self.table)
        if self.timeout <= timedelta(0):
            raise Refused(f"BigQueryStream: timeout={in_source(self.timeout)}", hint="give a length of time")

    def target(self, default: str) -> str:
        """Return where the rows go, as a string, like `Delta.target`."""
        return f"bigquery:{self.table}"


@declaration
class KafkaSink(DeclaredSink):
    """A Kafka topic, by way of the outbox; exactly once for readers with isolation.level=read_committed.

    A unit's rows are in one transaction with the unit's name, which goes to a second, compacted topic.

    topic         where each row goes as one message of JSON; it must exist
    connection    the environment variable that holds bootstrap.servers, or JSON with any settings of librdkafka
    keys          the columns of a message's key: one column as its text, several as JSON. Rows of one key stay in order
    headers       columns that are also headers, as text. `onlyonce-unit` and `onlyonce-seq` are always added
    units_topic   the compacted topic; by default <topic>.onlyonce-units. It is created if it is missing
    prefix        of the transactional id, <prefix>/<instance>/<output>: another one for each platform on a cluster
    timeout       how long a transaction may take
    """

    module = "onlyonce.sinks.outbox.sink_outbox"
    write = "produce"
    is_external = True
    package = "confluent_kafka"

    topic: str
    connection: str
    keys: Several[str] = NONE
    headers: Several[str] = NONE
    # `identity` leaves out the options below: they say how rows are sent, not which, so they may change under a begun
    # batch. `units_topic` may once no begun unit waits in the outbox.
    units_topic: str | None = None
    prefix: str = "onlyonce"
    timeout: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        for name in (self.topic, self.units):
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
                raise Refused(
                    f"KafkaSink: topic {name!r} is not a name of a topic", hint="letters, digits and . _ -; at most 249"
                )
        if self.units == self.topic:
            raise Refused(
                "KafkaSink: units_topic is the topic itself", hint="units need a compacted topic of their own"
            )
        if self.timeout < timedelta(seconds=1):
            raise Refused(
                f"KafkaSink: timeout={in_source(self.timeout)}", hint="a second or more; brokers take up to 15 minutes"
            )

    @property
    def units(self) -> str:
        """Return the topic of the units' names."""
        return self.units_topic or f"{self.topic}.onlyonce-units"

    def target(self, default: str) -> str:
        """Return where the rows go, as a string, like `Delta.target`."""
        return f"kafka:{self.connection}:{self.topic}"


@declaration
class CustomSink(DeclaredSink):
    """A sink of your own, by way of the outbox: whole units, in order.

    Its contract is docs/how-to/own-sink.md.

    target_class  'module:Class', or the name that a package has for it among its entry points `onlyonce.sinks`; made
                  with `where` by `onlyonce deliver`
    where         the argument of the class: a path, a URL, the name of a variable
    keys          rows of the same values are in one unit of a batch, and in order
    """

    module = "onlyonce.sinks.outbox.sink_outbox"
    write = "own"
    is_external = True
    is_own = True

    target_class: Named
    where: str = ""
    keys: Several[str] = NONE

    def __post_init__(self) -> None:
        if not OWN.fullmatch(self.target_class):
            raise Refused(
                f"CustomSink: target_class {self.target_class!r} is no 'module:Class', and no name of an entry point"
            )

    def target(self, default: str) -> str:
        """Return where the rows go, as a string, like `Delta.target`."""
        return f"own:{self.target_class}:{self.where or default}"


UnitSink = KafkaSink | CustomSink | BigQueryStream
"""The sinks behind the outbox that take all rows of a unit at once."""
Sent = Webhook | BigQuery | BigQueryStream | KafkaSink | CustomSink
"""The sinks behind the outbox: rows that were sent there can't be withdrawn."""


def _check_table(kind: str, table: str) -> None:
    if not re.fullmatch(r"[\w:.-]+\.\w+\.[\w-]+", table):
        raise Refused(
            f"{kind}: table {table!r} is not a name of three parts", hint="write it as 'project.dataset.table'"
        )


def _check_delivery(kind: str, sink: Webhook | BigQuery) -> None:
    if sink.attempts < 1 or sink.at_once < 1:
        raise Refused(f"{kind}: attempts={sink.attempts}, at_once={sink.at_once}", hint="each is 1 or more")
    if min(sink.pause, sink.timeout) <= timedelta(0) or sink.remembers < timedelta(0):
        raise Refused(
            f"{kind}: pause={sink.pause}, timeout={sink.timeout}, remembers={sink.remembers}",
            hint="give lengths of time; only remembers may be 0",
        )


# The sinks that are tables and files.


@declaration
class Delta(DeclaredSink):
    """A Delta table at <home>/tables/<path>; exactly once by txnAppId and txnVersion.

    path         the folder, below <home>/tables or absolute; by default <pipeline>/<output>. Or 's3://bucket/table',
                 if ONLYONCE_DATA is in S3 too
    write        'append': each row once. 'upsert': a row replaces the one with the same keys; if the window is not
                 among them, the row of the later window stays, whichever comes first. 'history' (SCD type 2) as
                 in `Postgres`
    keys         what identifies a row of an upsert, and whose history it is
    sequence_by  for an upsert without windows, the columns that decide which row of a key is the newest, as
                 in `Postgres`
    delete_when  a boolean column of the rows, which is not stored: if it is true, the row of those keys is removed.
                 The key and its sequence_by stay in a second table, <path>_deleted, committed before the rows, so
                 that no older row comes back
    table        its name in a Spark catalog, 'sales.orders' or 'lake.sales.orders', for readers: each run checks that
                 the catalog has this table under that name, and registers it if the name is free. A bounded run's table
                 has no name
    """

    module = "onlyonce.sinks.delta.sink_delta"
    sql_dialect = "spark"
    replaces_open = True
    starts_over = True
    not_in_names = " ,;{}()\n\t="
    lookup_module = "onlyonce.lookups.delta_versions"
    keeps_versions = True

    path: str | None = None
    write: Literal["append", "upsert", "history"] = "append"
    keys: Several[str] = NONE
    sequence_by: Several[str] = NONE
    delete_when: str | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        if self.table is not None and not TABLE_NAME.fullmatch(self.table):
            raise Refused(
                f"Delta: table {self.table!r} is not the name of a table in a catalog",
                data="nothing was read or written",
                hint=f"'schema.table' or 'catalog.schema.table'; a folder is named by path={self.table!r}",
            )
        _check_write("Delta", self.write, self.keys, ("append", "upsert", "history"))
        check_sink("Delta", self)
        if self.path and is_url(self.path):
            location(self.path, "Delta: path")
        else:
            check_target("Delta: path", self.path)

    def target(self, default: str) -> str:
        """Return where the rows go, as a string: equal strings mean the same place. `default` is
        <pipeline>/<output>."""
        return f"delta:{self.path or default}"

    def dataset(self, place: Place, url: str | None) -> tuple[str, str]:
        """Return the namespace and name of the table's folder in OpenLineage."""
        return in_openlineage(self.delta_table(place))

    def delta_table(self, place: Place) -> Location:
        """Return where the table is."""
        return settings.table_location(place.where)

    @property
    def at_default(self) -> bool:
        """Return whether the folder follows from the names of pipeline and output."""
        return self.path is None

    def moved_to_default(self) -> Self:
        """Return the sink with its default folder."""
        return replace(self, path=None)


@declaration
class Postgres(DeclaredSink):
    """A PostgreSQL table; exactly once, since the rows and the unit commit in one transaction.

    table        'schema.table'; created if it is missing
    write        'append', 'upsert' (as in `Delta`), or 'increment': numbers are added to the row with the same
                 keys; the window's columns are left out unless they are keys. 'history' (SCD type 2): each row is a
                 version of its keys from its column valid_from on; the platform adds valid_to and is_current
    keys         what identifies a row of an upsert or increment, and whose history it is
    sequence_by  for an upsert without windows, the columns that decide which row of a key is the newest, such as a
                 position in a database's log. An older row that comes later changes nothing. For a history, the order
                 of the versions: a late version is inserted at its place
    delete_when  a boolean column of the rows, which is not stored: if it is true, the row with these keys is removed;
                 in a history its last version ends. The key and its sequence_by stay in <table>_deleted, in the same
                 transaction, so that no older row comes back
    connection   the environment variable that holds the database's URL; by default the platform's database. An
                 incarnation that has written to one database is refused if the variable names another one later
    """

    module = "onlyonce.sinks.postgres.sink_postgres"
    sql_dialect = "postgresql"
    database_kind = "postgresql"
    replaces_open = True
    starts_over = True
    lookup_module = "onlyonce.lookups.postgres_versions"

    table: str
    write: Literal["append", "upsert", "increment", "history"] = "append"
    keys: Several[str] = NONE
    connection: str | None = None
    sequence_by: Several[str] = NONE
    delete_when: str | None = None

    def __post_init__(self) -> None:
        _check_write("Postgres", self.write, self.keys, ("append", "upsert", "increment", "history"))
        check_sink("Postgres", self)
        if self.table.count(".") != 1:
            raise Refused(
                f"Postgres: table {self.table!r} has no schema",
                hint=f"write it as 'schema.table', such as 'results.{self.table.rpartition('.')[2]}'",
            )
        if '"' in self.table or "\0" in self.table or not all(part.strip() for part in self.table.split(".")):
            alone = re.sub('["\0]', "", self.table)
            raise Refused(
                f"Postgres: table {self.table!r} has a quote, a NUL character or an empty name in it",
                hint="write the names alone, 'schema.table'; onlyonce quotes them itself"
                + (f": {alone!r}" if all(part.strip() for part in alone.split(".")) else ""),
            )
        if self.table.split(".")[0].startswith("onlyonce"):
            raise Refused(f"Postgres: {self.table!r} is in the platform's own schema", hint="choose another schema")
        if max(ownership.POSTGRES.size(part) for part in self.table.split(".")) > ownership.POSTGRES.most:
            raise Refused(
                f"Postgres: {self.table!r} is longer than a name in PostgreSQL may be",
                hint=f"{ownership.POSTGRES.most} bytes at most, for the schema and for the table",
            )

    def target(self, default: str) -> str:
        """Return where the rows go, as a string, like `Delta.target`."""
        return f"postgres:{self.connection or ''}:{self.table}"

    def dataset(self, place: Place, url: str | None) -> tuple[str, str]:
        """Return the namespace and name of the table in OpenLineage."""
        return _in_database("postgres", 5432, place, url)

    @property
    def scratch_variable(self) -> str | None:
        """Return the variable of the table's database."""
        return self.connection

    @property
    def doubles_at_least_once(self) -> bool:
        """Return whether a kill may leave rows twice in the mode at_least_once: an append without units can't recognise
        the rows that it has written.
        """
        return self.write == "append"


@declaration
class MySQL(DeclaredSink):
    """A table of MySQL or MariaDB; exactly once, since the rows and the unit commit in one transaction there.

    table        in the database that the URL names; created if it is missing. An existing one must be of InnoDB
    connection   the environment variable that holds the URL, mysql://user:password@host/database. An incarnation that
                 has written to one database is refused if the variable names another one later
    write        'append', 'upsert' as in `Delta`, or 'history' as in `Postgres`
    keys         what identifies a row of an upsert: the primary key. None of them may be null
    sequence_by  as in `Postgres`
    delete_when  as in `Postgres`
    """

    module = "onlyonce.sinks.mysql.sink_mysql"
    sql_dialect = "mysql"
    package = "pymysql"
    database_kind = "mysql"
    not_in_crashtest = "MySQL, and a crash test has no server of it"

    table: str
    connection: str
    write: Literal["append", "upsert", "history"] = "append"
    keys: Several[str] = NONE
    sequence_by: Several[str] = NONE
    delete_when: str | None = None

    def __post_init__(self) -> None:
        _check_write("MySQL", self.write, self.keys, ("append", "upsert", "history"))
        check_sink("MySQL", self)
        if not re.fullmatch(r"[^./\\\0]{1,64}", self.table) or self.table != self.table.strip():
            raise Refused(
                f"MySQL: table {self.table!r} is not the name of a table alone",
                hint="write the name alone, of at most 64 characters: the URL names the database",
            )
        # A temporary table of a unit, `oo_…`, would hide a table of that name.
        if self.table.lower().startswith(("onlyonce_", "oo_")):
            raise Refused(f"MySQL: {self.table!r} has a name of the platform's own tables", hint="choose another name")

    def target(self, default: str) -> str:
        """Return where the rows go, as a string, like `Delta.target`."""
        return f"mysql:{self.connection}:{self.table}"

    def dataset(self, place: Place, url: str | None) -> tuple[str, str]:
        """Return the namespace and name of the table in OpenLineage."""
        return _in_database("mysql", 3306, place, url)


@declaration
class Iceberg(DeclaredSink):
    """A table of an Iceberg catalog; exactly once, since a batch's commit also names it in a property of the table.

    table     'namespace.table'; created if it is missing, and so is its namespace. An existing one may be partitioned
              by columns as they are (identity), not by days or buckets
    catalog   the name of the catalog in pyiceberg's own configuration: .pyiceberg.yaml, or, for a name without `_`,
              PYICEBERG_CATALOG__<NAME>__URI and its companions
    write     'append'. Rows can't be replaced by key so far
    keys      only for the error message: an append has none
    """

    module = "onlyonce.sinks.iceberg.sink_iceberg"
    sql_dialect = "spark"
    package = "pyiceberg"
    not_in_crashtest = "an Iceberg catalog, and a crash test has none"

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
                f"Iceberg: catalog {self.catalog!r} is not a name",
                hint="name a catalog of pyiceberg's configuration; its address is there",
            )

    def target(self, default: str) -> str:
        """Return where the rows go, as a string, like `Delta.target`."""
        return f"iceberg:{self.catalog.lower()}:{self.table}"

    def dataset(self, place: Place, url: str | None) -> tuple[str, str]:
        """Return the namespace and name of the table in OpenLineage."""
        return f"iceberg://{self.catalog.lower()}", self.table


@declaration
class FileSink(DeclaredSink):
    """Files: `shards` of them for each window, which get their final names from `onlyonce finalize`.

    path        the folder; by default <home>/files/<pipeline>/<output>. Or a URL of an object store
                (s3://bucket/folder)
    format      'jsonl', 'csv', 'text' (one string column), 'parquet', 'avro', or a writer of your own as
                'module:function': it gets a binary file, a pyarrow schema and the record batches of one shard, which
                may be none
    shards      how many files each window has
    keys        rows of the same values are in the same shard; by default the hash of the whole row decides
    names       'module:function' that returns the final name in the folder, in place of naming: def name(window, pane,
                shard, shards) returns a relative path with the extension. It uses only its arguments. window.start and
                window.end are times in UTC; window is None for an output without windows
    naming      the final name in the folder, made of {prefix}, {window_start}, {window_end}, {pane}, {shard}, {shards}
                and {ext}. It may have folders
    prefix      the value of {prefix}; by default the output's name
    extension   the value of {ext}; by default the format's own
    skip_empty  leave a shard without rows out; by default it is an empty, valid file, so each window with
                rows has all its files. A window without any row has no file
    """

    module = "onlyonce.sinks.files.sink_files"
    write = "files"
    writes_files = True

    path: str | None = None
    format: Literal["jsonl", "csv", "text", "parquet", "avro"] | str = "jsonl"
    shards: int = 10
    keys: Several[str] = NONE
    naming: str = shard_files.NAMING
    prefix: str | None = None
    extension: str | None = None
    skip_empty: bool = False
    names: Named = NO_FUNCTION

    def __post_init__(self) -> None:
        if ":" in self.format and not re.fullmatch(r"[\w.]+:\w+", self.format):
            raise not_a_path(f"FileSink: format {self.format!r}", "format")
        if ":" not in self.format:
            check_one_of("FileSink", "format", self.format, tuple(shard_files.EXTENSIONS))
        elif self.extension is None:
            raise Refused("FileSink: a writer of your own needs an extension", hint="extension='bin', for example")
        if not 1 <= self.shards <= shard_files.MOST:
            raise Refused(f"FileSink: shards={self.shards}", hint=f"from 1 to {shard_files.MOST}; 10 is the default")
        shard_files.check_naming(self.naming, self.prefix, self.extension)
        if self.names and not re.fullmatch(r"[\w.]+:\w+", self.names):
            raise not_a_path(f"FileSink: names {self.names!r}", "names")
        if self.names and (self.naming != shard_files.NAMING or self.prefix is not None):
            raise Refused(
                "FileSink: names with naming or prefix: two ways to name one file",
                hint="leave naming and prefix out, and let the function return the whole name",
            )
        if "://" not in (self.path or "") or (self.path or "").lower().startswith("file:"):
            check_target("FileSink: path", self.path)

    @property
    def in_words(self) -> str:
        """Return how many files a window has, and their format."""
        return f"{self.shards} a window, {self.format}"

    @property
    def at_default(self) -> bool:
        """Return whether the folder follows from the names of pipeline and output."""
        return self.path is None

    def moved_to_default(self) -> Self:
        """Return the sink with its default folder."""
        return replace(self, path=None)

    def target(self, default: str) -> str:
        """Return where the rows go, as a string, like `Delta.target`."""
        return f"files:{self.path or default}"

    def dataset(self, place: Place, url: str | None) -> tuple[str, str]:
        """Return the namespace and name of the folder in OpenLineage."""
        address = urlsplit(place.where)
        if address.scheme:
            return f"{address.scheme}://{address.netloc}", address.path.strip("/")
        return "file", str(settings.files_dir() / place.where)

    def place(self, target: str, suffix: str) -> str:
        """Return the folder or URL of a pipeline's stream, or of a bounded run by its suffix (@1)."""
        return Place(target).of_run(suffix).where

    def name(self, output: str, shard: shard_files.Shard) -> str:
        """Return the final name of a shard by the template; {pane} stays in it until the end of its batch."""
        return shard_files.name(self.naming, self.prefix or output, self.ending, shard)

    def check_length(self, output: str) -> None:
        """Raise Refused if a file of an output can have a name that is too long."""
        shard_files.check_length(self.naming, output, self.prefix or output, self.ending)

    def try_names(self, naming: Naming, subject: str, window: Window | None, data: str) -> None:
        """Call the function that names files for some windows, panes and shards. Raise Refused."""
        windows = file_names.sample(window, self.shards)
        file_names.name_files(naming, subject, windows, self.shards, self.ending, data)

    @property
    def ending(self) -> str:
        """Return the extension of its files."""
        return self.extension or shard_files.EXTENSIONS[self.format]


Sink = Delta | Postgres | MySQL | Iceberg | FileSink | Sent


def later_window_wins(write: str, keys: Iterable[str], columns: Iterable[str]) -> bool:
    """Return whether rows of several windows are one row of the target: an upsert whose keys lack the window."""
    return write == "upsert" and WINDOW_START in columns and not {WINDOW_START, WINDOW_END} & {*keys}


def _check_write(kind: str, write: str, keys: tuple[str, ...], known: tuple[str, ...]) -> None:
    check_one_of(kind, "write", write, known)
    if write == "append" and keys:
        raise Refused(
            f"{kind}: write={write!r} with keys={keys!r}",
            hint="leave out keys, since an append (the default) replaces no row"
            + ("; or write='upsert'" if "upsert" in known else ""),
        )
    if write != "append" and not keys:
        raise Refused(
            f"{kind}: write={write!r} needs keys, and has none",
            hint="name the columns that identify a row of the table: keys=(…,)",
        )


def _in_database(kind: str, port: int, place: Place, url: str | None) -> tuple[str, str]:
    if url is None:
        return kind, place.where  # known only where the driver runs
    address = urlsplit(url)
    return f"{kind}://{address.hostname}:{address.port or port}", f"{address.path.strip('/')}.{place.where}"
