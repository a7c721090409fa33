"""A topic of Kafka as a source, and how its messages are written: Avro, Protobuf, JSON Schema, Debezium, JSON.

Pure data, checked when it is made. `onlyonce.sources.kafka_offsets` decides about the topic's offsets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import ClassVar, Literal

from onlyonce.api import ddl
from onlyonce.api.declaration import EXPLAINED, NONE, Several, check_one_of, declaration
from onlyonce.api.declared_source import DeclaredSource
from onlyonce.core import records
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location

FROM_ENVIRONMENT = "env:"
SECRET_REGISTRY_OPTION = re.compile(r"user\.info|password|secret|token$", re.IGNORECASE)
OUR_REGISTRY_OPTIONS = ("url", "timeout", "max.retries")
"""Options of the registry's client that the platform sets."""


@declaration
class Avro:
    """Avro, as Confluent's serializers write it: a zero byte, the schema's id in four bytes, the record.

    Columns by name.

    registry    the schema registry: its URL, or 'env:NAME' for the value of the variable NAME where the driver runs
    schema_id   the declared column, an int, that gets the id of the record's schema. By default schema_id, for a key
                key_schema_id
    columns     for a key: the declared columns that come from the key and not from the value; one column, if the
                key's schema is not a record
    options     of confluent-kafka's SchemaRegistryClient, such as {'basic.auth.user.info': 'env:REGISTRY_LOGIN'}.
                Secrets are given by 'env:NAME' only. They stay on the driver: tasks are sent the schemas

    A schema is refused for a column whose type does not fit the declared one, and for a missing record id or event
    time: every record of that schema is `invalid`, and the reason names both types. A record whose schema id the
    registry does not have is `invalid` too.
    """

    kind: ClassVar[str] = "AVRO"
    registry: str
    schema_id: str | None = None
    columns: Several[str] = NONE
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("Avro", self.registry, self.options)


@declaration
class Protobuf:
    """Protobuf, as Confluent's serializers write it: with the schema's id and the message's place in it.

    Options as in `Avro`.

    A field without presence (proto3) has its default if the writer left it out, never null. An enum is a string, a
    google.protobuf.Timestamp a timestamp, a wrapper (StringValue) its value or null.
    """

    kind: ClassVar[str] = "PROTOBUF"
    registry: str
    schema_id: str | None = None
    columns: Several[str] = NONE
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("Protobuf", self.registry, self.options)


@declaration
class JsonSchema:
    """A JSON object after the id of its JSON Schema, for a message's value only.

    It is read like plain JSON; options as in `Avro`.

    validate    a value that its own schema forbids is `invalid`, with the schema's reason. False: only the declared
                types decide
    """

    kind: ClassVar[str] = "JSON"
    registry: str
    schema_id: str | None = None
    validate: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("JsonSchema", self.registry, self.options)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return no columns: they are for a key only."""
        return ()


MessageFormat = Avro | Protobuf | JsonSchema


def _check(whose: str, registry: str, options: Mapping[str, str]) -> None:
    if not registry.startswith(FROM_ENVIRONMENT):
        check_one_of(whose, "registry", registry.partition("://")[0], ("http", "https"))
        if "@" in registry:
            raise Refused(
                f"{whose}: the registry's URL holds a password, and a declaration is no place for one",
                hint=f"give '{FROM_ENVIRONMENT}NAME' for what the variable NAME holds where the driver runs",
            )
    for name, value in options.items():
        if name in OUR_REGISTRY_OPTIONS:
            raise Refused(f"{whose}: the option {name!r} is the platform's to set", hint="leave it out")
        if SECRET_REGISTRY_OPTION.search(name) and not str(value).startswith(FROM_ENVIRONMENT):
            raise Refused(
                f"{whose}: the option {name!r} is a secret, and a declaration is no place for one",
                hint="put it into an environment variable where the driver runs, and give "
                f"'{FROM_ENVIRONMENT}NAME' here",
            )


# Changes of a database as Debezium's connectors write them to Kafka.


PLACEHOLDER = "__debezium_unavailable_value"
"""Debezium's default string for a value that did not change and that PostgreSQL stores out of line (TOAST)."""


@declaration
class Debezium:
    """A change of a row, by Debezium's envelope in JSON or Avro, from PostgreSQL, MySQL or MariaDB.

    The declared columns are the columns of the row after the change, or before it for a delete. Three more columns come
    from the envelope.

    format    Avro(registry=…): the envelope is Avro by a schema of that registry, whose id goes to its column. None:
              JSON, with its schema in each message or without
    op        the declared column, a string, that gets what happened: c (created), u (updated), d (deleted), r (read by
              the snapshot)
    position  the declared column, a string, that gets the change's position in the log of the database, in digits: of
              two changes of a row the later one has the greater string. The snapshot's rows are before all changes at
              the same position. It is part of the record id
    time      the declared column, a timestamp, that gets when the database made the change. It is the event time
    unavailable  the connector's `unavailable.value.placeholder`. A change has it in place of a large value that did not
              change. The value before the change is taken, and a change without that value is `invalid`

    A tombstone, which Debezium sends after a delete, is not a record. A message without row or position (a truncated
    table, a message of the log, another connector) is `invalid`. So is a message whose schema is not
    an envelope, or whose schema id the registry does not have.
    """

    format: Avro | None = None
    op: str = "op"
    position: str = "position"
    time: str = "changed_at"
    unavailable: str = PLACEHOLDER

    def __post_init__(self) -> None:
        if not self.unavailable:
            raise Refused(
                "Debezium: unavailable=''",
                hint="the connector's unavailable.value.placeholder; leave it out for its default",
            )

    @property
    def kinds(self) -> dict[str, str]:
        """Return the columns that come from the envelope, and their types."""
        return {self.op: "string", self.position: "string", self.time: "timestamp"}

    def layout(self) -> str:
        """Return how a message is cut into columns, in words."""
        if self.format is None:
            return "Debezium's envelope in JSON"
        return (
            f"Debezium's envelope in Avro by a schema registry, whose id goes to {self.format.schema_id or 'schema_id'}"
        )

    def origin(self, column: str) -> str:
        """Return what a column of the envelope gets, in words."""
        return {
            self.op: "what happened",
            self.position: "the place in the database's log",
            self.time: "the time of the change",
        }[column]


def check_columns(pipeline: str, value: Debezium, typed: dict[str, str]) -> None:
    """Raise Refused if a column of the envelope is not among the declared columns `typed`, or has another type."""
    for name, kind in value.kinds.items():
        if typed.get(name) != kind:
            raise Refused(
                f"pipeline {pipeline}: {name!r} gets {value.origin(name)}, and is not a declared column of type {kind}",
                hint=f"add `{name} {kind}` to the schema; Debezium(op=…, position=…, time=…) gives them other names",
            )


# Which formats the value and the key of a message may have.


def check_parts(key: object, value: object) -> None:
    """Raise Refused for a format that a message's key or value can't have."""
    written = value.format if isinstance(value, Debezium) else value
    if isinstance(written, Avro | Protobuf) and written.columns:
        raise Refused(
            "Kafka: columns of a value",
            hint="leave them out: all declared columns that come from nowhere else are the value's",
        )
    if isinstance(key, Avro | Protobuf) and not key.columns:
        raise Refused(
            f"Kafka: the key's {type(key).__name__} names no columns", hint="columns=('customer',) come from the key"
        )


# The topic.


ISOLATION = ("read_committed", "read_uncommitted")
ON_LOSS = ("stop", "skip")
SECRET_OPTION = re.compile(r"password|jaas|secret|token|keystore\.key|\.key$", re.IGNORECASE)
OUR_OPTIONS = (
    "bootstrap.servers", "isolation.level", "auto.offset.reset", "enable.auto.commit", "key.deserializer",
    "value.deserializer", "interceptor.classes",
)  # fmt: skip
"""Options of the client that the platform sets."""


SERVER = re.compile(r"(\w+://)?(?P<host>\[[^]\s]+\]|[^][\s:/,]+)(?P<port>:\d{1,5})?")


@declaration
class Kafka(DeclaredSource):
    """A topic of Kafka; each message is a record. A message without a value (a tombstone) is `invalid`.

    topic                its name
    servers              the brokers to ask first: 'host:port,host:port'
    start                where the first run begins: 'earliest', 'latest', or a time with its zone (the first message of
                         each partition at or after it). Resolved once and stored. A partition that is added later is
                         read from its beginning
    max_offsets_a_batch  how many offsets one batch takes, from all partitions together
    value                how the value is written, if a schema registry has its schema: Avro, Protobuf or JsonSchema.
                         Debezium: changes of a database. None: a JSON object
    key                  the declared column, a string, that gets the message's key; or Avro or Protobuf with the
                         columns that come from the key
    headers              declared columns, strings, that each get the message's header of that name
    isolation            'read_committed': no message of an aborted transaction, and messages after an open one wait for
                         its end. 'read_uncommitted': all messages in the topic
    on_loss              'stop': a run is refused if the broker has lost messages before they were read (retention, a
                         topic that was deleted and created again). 'skip': it continues after them, and each lost
                         range becomes one `invalid` record that names its offsets
    consumer_group       the group to which the offsets of each committed batch are written, so that Kafka's own tools
                         show its lag. Reading never depends on it; no other consumer may use the group. None: no group
    options              for Kafka's Java client, such as {'security.protocol': 'SASL_SSL'}. A value 'env:NAME' is the
                         value of the variable NAME where the driver runs; passwords are given only so
    max_record_bytes     a message whose value, key and declared headers have more is `invalid`, with its place, its
                         size and its beginning. The client still holds it whole in memory: limit the topic's own
                         max.message.bytes to prevent that
    """

    is_topic = True

    topic: str
    servers: str
    start: Literal["earliest", "latest"] | datetime = "earliest"
    max_offsets_a_batch: int = 1_000_000
    value: MessageFormat | Debezium | None = None
    key: str | Avro | Protobuf | None = None
    headers: Several[str] = NONE
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    on_loss: Literal["stop", "skip"] = "stop"
    consumer_group: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    max_record_bytes: int = records.DEFAULT

    def __post_init__(self) -> None:
        check_one_of("Kafka", "isolation", self.isolation, ISOLATION)
        check_one_of("Kafka", "on_loss", self.on_loss, ON_LOSS)
        if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", self.topic):
            raise Refused(
                f"Kafka: topic {self.topic!r} is not a name of a topic",
                hint="one topic: letters, digits, '.', '_' and '-'." + EXPLAINED["topic"],
            )
        if not self.servers.strip():
            raise Refused("Kafka: servers is empty", hint="'host:port,host:port' of the brokers to ask first")
        for server in filter(None, map(str.strip, self.servers.split(","))):
            found = SERVER.fullmatch(server)
            if not found or not found["port"]:
                raise Refused(
                    f"Kafka: {server!r} in servers is not of the form host:port",
                    hint=f"for example servers='{found['host'] if found else 'localhost'}:9092', the usual port",
                )
        if isinstance(self.start, datetime):
            if self.start.tzinfo is None:
                raise Refused(f"Kafka: start {self.start} has no time zone", hint="datetime(…, tzinfo=UTC)")
        else:
            check_one_of("Kafka", "start", self.start, ("earliest", "latest"))
        if self.consumer_group is not None and not self.consumer_group.strip():
            raise Refused("Kafka: consumer_group is empty", hint="the name of a group, or leave it out")
        if self.max_offsets_a_batch < 1:
            raise Refused("Kafka: max_offsets_a_batch must be at least 1", hint="1,000,000 is the default")
        records.check_record_size("Kafka", self.max_record_bytes)
        check_parts(self.key, self.value)
        self._check_options()

    def _check_options(self) -> None:
        for name, value in self.options.items():
            if name.removeprefix("kafka.") in OUR_OPTIONS:
                raise Refused(f"Kafka: the option {name!r} is the platform's to set", hint="leave it out")
            if SECRET_OPTION.search(name) and not value.startswith(FROM_ENVIRONMENT):
                raise Refused(
                    f"Kafka: the option {name!r} is a secret, and a declaration is no place for one",
                    hint="put it into an environment variable where the driver runs, and give "
                    f"'{FROM_ENVIRONMENT}NAME' here",
                )

    @property
    def format(self) -> Literal["json", "columns"]:
        """Return the form of a value for the parser: a line of JSON, or columns of the declared types."""
        return "columns" if isinstance(self.value, Avro | Protobuf) else "json"

    @property
    def reads(self) -> str:
        """See DeclaredSource."""
        return f"the topic {self.topic} of {self.servers}"

    @property
    def has_no_names(self) -> str | None:
        """See DeclaredSource."""
        return "messages of a schema, which has names that a declaration can have" if self.typed_by else None

    @property
    def typed_by(self) -> str | None:
        """See DeclaredSource."""
        return "a schema" if self.format == "columns" else None

    def described(self, inbox: str) -> str:
        """See DeclaredSource."""
        layout = ", Debezium's changes" if self.of_envelope else ""
        if "value" in self.registered:
            layout += f", {type(self.registered['value']).__name__} by a schema registry"
        return f"Kafka, the topic `{self.topic}`{layout}, {self.max_offsets_a_batch} offsets a batch"

    def dataset(self, at: Location | None) -> tuple[str, str]:
        """See DeclaredSource."""
        return f"kafka://{self.servers.split(',')[0]}", self.topic

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the declared columns that come from the key."""
        if self.key is None or isinstance(self.key, str):
            return (self.key,) if self.key else ()
        return self.key.columns

    @property
    def registered(self) -> dict[str, MessageFormat]:
        """Return the formats of the value and the key whose schemas a registry has, by 'value' and 'key'."""
        value = self.value.format if isinstance(self.value, Debezium) else self.value
        return {part: one for part, one in (("value", value), ("key", self.key)) if isinstance(one, MessageFormat)}

    @property
    def schema_ids(self) -> dict[str, str]:
        """Return the declared columns that get the id of a schema, by 'value' and 'key', if a registry has it."""
        by_default = {"value": "schema_id", "key": "key_schema_id"}
        return {part: one.schema_id or by_default[part] for part, one in self.registered.items()}

    @property
    def own_columns(self) -> tuple[str, ...]:
        """See DeclaredSource."""
        return self.beside

    @property
    def beside(self) -> tuple[str, ...]:
        """Return the declared columns that do not come from the value of a message."""
        return (*self.key_columns, *self.headers, *self.schema_ids.values(), *self.of_envelope)

    @property
    def of_envelope(self) -> dict[str, str]:
        """Return the declared columns that come from the envelope of a change, and their types."""
        return self.value.kinds if isinstance(self.value, Debezium) else {}

    def origin(self, column: str) -> str:
        """Return where a column comes from that is not in the value, in words."""
        if column in self.key_columns:
            return "the key" if isinstance(self.key, str) else f"the key by {type(self.key).__name__}"
        if isinstance(self.value, Debezium) and column in self.value.kinds:
            return self.value.origin(column)
        return "the header" if column in self.headers else "the schema's id"

    def layout(self) -> str:
        """Return how a message is cut into columns, in words."""
        if self.value is None:
            return "json"
        if isinstance(self.value, Debezium):
            return self.value.layout()
        checked = "" if getattr(self.value, "validate", True) else ", not validated"
        return f"{type(self.value).__name__} by a schema registry, whose id goes to {self.schema_ids['value']}{checked}"

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Raise Refused if a column that gets key, headers, schema id or envelope is not declared or of another type.

        Any column may be the record id.
        """
        typed = ddl.plain_types(columns)
        texts = (*(self.key_columns if isinstance(self.key, str) else ()), *self.headers)
        for name in texts:
            if typed.get(name) != "string":
                raise Refused(
                    f"pipeline {pipeline}: {name!r} gets the message's key or header, and is not a declared column "
                    "of type string",
                    hint=f"add `{name} string` to the schema",
                )
        if isinstance(self.value, Debezium):
            check_columns(pipeline, self.value, typed)
        for part, name in self.schema_ids.items():
            if typed.get(name) != "int":
                raise Refused(
                    f"pipeline {pipeline}: {name!r} gets the id of the {part}'s schema, and is not a declared "
                    "column of type int",
                    hint=f"add `{name} int` to the schema; schema_id= of {type(self.registered[part]).__name__} gives "
                    "it another name",
                )
        for name in set(self.key_columns) - typed.keys():
            raise Refused(
                f"pipeline {pipeline}: {name!r} comes from the message's key, and is not declared",
                hint="add it to the schema",
            )
        if len(set(self.beside)) < len(self.beside):
            raise Refused(
                f"pipeline {pipeline}: a column gets two of key, headers and schema ids",
                hint="give each its own column",
            )
