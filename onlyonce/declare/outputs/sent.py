"""The sinks behind the outbox, and what each promises. Pure data, checked when it is made.

Their rows are first committed to the outbox, where they never change, and then sent by `onlyonce deliver`
(docs/specification/outbox-row.md).
"""

from __future__ import annotations

import re
from dataclasses import field
from datetime import timedelta
from typing import Literal
from urllib.parse import urlsplit

from onlyonce.declare.declaration import declaration
from onlyonce.declare.several import NONE, Several
from onlyonce.model.errors import Refused

MOST_IN_A_REQUEST = 1000
"""Rows: a crash may leave as many unanswered for each request that is under way."""


HERE = ("localhost", "127.0.0.1", "::1")


def in_clear_text(url: str) -> bool:
    """Return whether what is sent to an address leaves this machine without encryption."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in HERE


@declaration
class Webhook:
    """An HTTP endpoint that is called for each row (a mail, a payment): by way of the outbox, each row under a key that
    never changes.

    url            where each row is POSTed as JSON, or instead of it
    connection     the environment variable that holds the URL, which may be a secret
    authorization  the environment variable that holds the header Authorization. Refused with http://, except to this
                   machine
    secret         the environment variable that holds the secret (whsec_…) with which requests are signed, by Standard
                   Webhooks: the headers webhook-id, webhook-timestamp and webhook-signature
    keys           rows of the same values are sent in order, each after the answer to the one before
    order_by       what orders the rows of a key within a batch, after their window
    remembers      how long the endpoint is known to recognise a key: a row that was sent again later than this, after
                   an answer was lost, is marked as uncertain. By default it is not known to recognise any
    attempts       how often a row is sent before it is a dead letter
    pause          the pause before the second attempt; twice as long before each later one, up to ten minutes
    timeout        how long a whole request may take, to the end of its answer
    at_once        how many requests are under way at once
    batch          how many rows a request has at most, up to 1,000 and a megabyte. 1: its body is the row, and the
                   header Idempotency-Key its key. More: its body is a list of CloudEvents
                   (application/cloudevents-batch+json), also of one row; each has the row as `data` and its key as
                   `id`. Such an endpoint takes all events of a request or none of them, or it knows by its id an event
                   that it has had: a row whose answer was lost comes again with the same id, in other company. It says
                   2xx where it has all of them
    """

    # It may hold a secret, and an error may print the declaration.
    url: str | None = field(default=None, repr=False)
    connection: str | None = None
    authorization: str | None = None
    secret: str | None = None
    keys: Several[str] = NONE
    order_by: Several[str] = NONE
    # How it is sent decides no result: it may change under a begun batch, so it is no part of the identity.
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
            raise Refused(f"Webhook: url {self.url!r} is no http:// or https:// address")
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

    @property
    def write(self) -> Literal["post"]:
        """How rows are written."""
        return "post"

    def target(self, default: str) -> str:
        """Where the rows go, like `Delta.target`: the outbox. Their endpoint may move, and may be a secret."""
        return f"webhook:{default}"


@declaration
class BigQuery:
    """A BigQuery table, by streaming inserts (`insertAll`): by way of the outbox, each row with an insert id of its
    own.

    table          'project.dataset.table'; it must be there
    remembers      how long the server drops an insert id that it knows. Google promises about a minute, at best effort
    attempts, pause, timeout, at_once
                   as for a Webhook; at_once counts requests of up to 500 rows
    """

    table: str
    remembers: timedelta = timedelta(minutes=1)
    attempts: int = 12
    pause: timedelta = timedelta(seconds=1)
    timeout: timedelta = timedelta(seconds=60)
    at_once: int = 8

    def __post_init__(self) -> None:
        _check_table("BigQuery", self.table)
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


@declaration
class BigQueryStream:
    """A BigQuery table, exactly once, by the Storage Write API: by way of the outbox, each unit is one pending stream,
    whose rows have offsets and become visible as one.

    table    'project.dataset.table'; it must be there, with the columns of the rows
    timeout  how long the answer to a request is waited for
    """

    table: str
    # How it is sent decides no result: it may change under a begun batch, so it is no part of the identity.
    timeout: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        _check_table("BigQueryStream", self.table)
        if self.timeout <= timedelta(0):
            raise Refused(f"BigQueryStream: timeout={self.timeout}", hint="give a length of time")

    @property
    def write(self) -> Literal["stream"]:
        """How rows are written."""
        return "stream"

    @property
    def keys(self) -> tuple[str, ...]:
        """Rows of a table have no order."""
        return ()

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"bigquery:{self.table}"


@declaration
class KafkaSink:
    """A Kafka topic, exactly once for readers with isolation.level=read_committed: by way of the outbox, a unit's rows
    in one transaction with the unit's name, which goes to a compacted topic beside.

    topic         where each row goes as one message of JSON; it must be there
    connection    the environment variable that holds bootstrap.servers, or JSON with any settings of librdkafka
    keys          the columns of a message's key: of one its text, of several JSON. Rows of one key stay in order
    headers       columns that are headers, too, as text. `onlyonce-unit` and `onlyonce-seq` are always there
    units_topic   the compacted topic; by default <topic>.onlyonce-units. It is made if it is missing
    prefix        of the transactional id, <prefix>/<instance>/<output>: another one for each platform on a cluster
    timeout       how long a transaction may take
    """

    topic: str
    connection: str
    keys: Several[str] = NONE
    headers: Several[str] = NONE
    # How it is sent decides no result: it may change under a begun batch, so it is no part of the identity.
    units_topic: str | None = None
    prefix: str = "onlyonce"
    timeout: timedelta = timedelta(minutes=1)

    def __post_init__(self) -> None:
        for name in (self.topic, self.units):
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
                raise Refused(f"KafkaSink: topic {name!r}", hint="letters, digits and . _ -; at most 249")
        if self.units == self.topic:
            raise Refused(
                "KafkaSink: units_topic is the topic itself", hint="units need a compacted topic of their own"
            )
        if self.timeout < timedelta(seconds=1):
            raise Refused(f"KafkaSink: timeout={self.timeout}", hint="a second or more; brokers take up to 15 minutes")

    @property
    def units(self) -> str:
        """The topic of the units' names."""
        return self.units_topic or f"{self.topic}.onlyonce-units"

    @property
    def write(self) -> Literal["produce"]:
        """How rows are written."""
        return "produce"

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"kafka:{self.connection}:{self.topic}"


@declaration
class CustomSink:
    """A sink of your own, by way of the outbox: whole units, in order.

    Its contract is one page: docs/how-to/own-sink.md.

    target_class  'module:Class', made with `where` by `onlyonce deliver`
    where         what the class is made with: a path, a URL, the name of a variable
    keys          rows of the same values are in one unit of a batch, and in order
    """

    target_class: str
    where: str = ""
    keys: Several[str] = NONE

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.]+:\w+", self.target_class):
            raise Refused(f"CustomSink: target_class {self.target_class!r} is not of the form 'module:Class'")

    @property
    def write(self) -> Literal["own"]:
        """How rows are written."""
        return "own"

    def target(self, default: str) -> str:
        """Where the rows go, as text, like `Delta.target`."""
        return f"own:{self.target_class}:{self.where or default}"


UnitSink = KafkaSink | CustomSink | BigQueryStream
"""The sinks behind the outbox that take whole units."""
Sent = Webhook | BigQuery | BigQueryStream | KafkaSink | CustomSink
"""The sinks behind the outbox: what was sent there can't be taken back."""


def _check_table(kind: str, table: str) -> None:
    if not re.fullmatch(r"[\w:.-]+\.\w+\.[\w-]+", table):
        raise Refused(f"{kind}: table {table!r}", hint="write it as 'project.dataset.table'")


def _check_delivery(kind: str, sink: Webhook | BigQuery) -> None:
    if sink.attempts < 1 or sink.at_once < 1:
        raise Refused(f"{kind}: attempts={sink.attempts}, at_once={sink.at_once}", hint="each is 1 or more")
    if min(sink.pause, sink.timeout) <= timedelta(0) or sink.remembers < timedelta(0):
        raise Refused(
            f"{kind}: pause={sink.pause}, timeout={sink.timeout}, remembers={sink.remembers}",
            hint="give lengths of time; only remembers may be 0",
        )
