"""How a topic of Kafka is declared as a source. `onlyonce.sources.kafka.offsets` decides about its offsets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Literal

from onlyonce.declare.declaration import check_one_of, declaration
from onlyonce.declare.several import NONE, Several
from onlyonce.declare.sources.debezium import Debezium, check_columns
from onlyonce.declare.sources.message_formats import FROM_ENVIRONMENT as FROM_ENVIRONMENT
from onlyonce.declare.sources.message_formats import Avro, MessageFormat, Protobuf
from onlyonce.declare.sources.message_parts import check_parts
from onlyonce.model import record_size
from onlyonce.model.errors import Refused

ISOLATION = ("read_committed", "read_uncommitted")
ON_LOSS = ("stop", "skip")
SECRET = re.compile(r"password|jaas|secret|token|keystore\.key|\.key$", re.IGNORECASE)
OURS = (
    "bootstrap.servers", "isolation.level", "auto.offset.reset", "enable.auto.commit", "key.deserializer",
    "value.deserializer", "interceptor.classes",
)  # fmt: skip
"""Options of the client that the platform sets."""


@declaration
class Kafka:
    """A topic of Kafka, a record a message. One without a value (a tombstone) is `invalid`.

    topic                its name
    servers              the brokers to ask first: 'host:port,host:port'
    start                where the first run begins: 'earliest', 'latest', or a time with its zone (the first message of
                         each partition at or after it). Resolved once and stored. A partition that is added later is
                         read from its begin
    max_offsets_a_batch  how many offsets one batch takes, of all partitions together
    value                how the value is written, where a schema registry knows: Avro, Protobuf or JsonSchema.
                         Debezium: changes of a database. None: a JSON object
    key                  the declared column, a string, that gets the message's key; or Avro or Protobuf with the
                         columns that come from the key
    headers              declared columns, strings, that each get the message's header of that name
    isolation            'read_committed': nothing of an aborted transaction, and what is behind an open one waits for
                         its end. 'read_uncommitted': all that is in the topic
    on_loss              'stop': a run is refused where the broker has lost messages before they were read (retention, a
                         topic that was deleted and made again). 'skip': it goes on behind them, and each lost range
                         becomes one `invalid` record that says which offsets it had
    options              of Kafka's Java client, such as {'security.protocol': 'SASL_SSL'}. A value 'env:NAME' is what
                         the variable NAME holds where the driver runs; passwords are given only so
    max_record_bytes     a message whose value, key and declared headers have more is `invalid`, with its place, its
                         size and how it begins. The client has it whole in memory all the same: the topic's own
                         max.message.bytes keeps such ones out
    """

    topic: str
    servers: str
    start: Literal["earliest", "latest"] | datetime = "earliest"
    max_offsets_a_batch: int = 1_000_000
    value: MessageFormat | Debezium | None = None
    key: str | Avro | Protobuf | None = None
    headers: Several[str] = NONE
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    on_loss: Literal["stop", "skip"] = "stop"
    options: Mapping[str, str] = field(default_factory=dict)
    max_record_bytes: int = record_size.DEFAULT

    def __post_init__(self) -> None:
        check_one_of("Kafka", "isolation", self.isolation, ISOLATION)
        check_one_of("Kafka", "on_loss", self.on_loss, ON_LOSS)
        if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", self.topic):
            raise Refused(f"Kafka: topic {self.topic!r}", hint="one topic: letters, digits, '.', '_' and '-'")
        if not self.servers.strip():
            raise Refused("Kafka: servers is empty", hint="'host:port,host:port' of the brokers to ask first")
        if isinstance(self.start, datetime):
            if self.start.tzinfo is None:
                raise Refused(f"Kafka: start {self.start} has no time zone", hint="datetime(…, tzinfo=UTC)")
        else:
            check_one_of("Kafka", "start", self.start, ("earliest", "latest"))
        if self.max_offsets_a_batch < 1:
            raise Refused("Kafka: max_offsets_a_batch must be at least 1", hint="1,000,000 is the default")
        record_size.check_record_size("Kafka", self.max_record_bytes)
        check_parts(self.key, self.value)
        self._check_options()

    def _check_options(self) -> None:
        for name, value in self.options.items():
            if name.removeprefix("kafka.") in OURS:
                raise Refused(f"Kafka: the option {name!r} is the platform's to set", hint="leave it out")
            if SECRET.search(name) and not value.startswith(FROM_ENVIRONMENT):
                raise Refused(
                    f"Kafka: the option {name!r} is a secret, and a declaration is no place for one",
                    hint="put it into an environment variable where the driver runs, and give "
                    f"'{FROM_ENVIRONMENT}NAME' here",
                )

    @property
    def format(self) -> Literal["json", "columns"]:
        """What a value is to who parses it: a line of JSON, or columns of the declared types."""
        return "columns" if isinstance(self.value, Avro | Protobuf) else "json"

    @property
    def header(self) -> bool:
        """It has none."""
        return False

    @property
    def inbox(self) -> None:
        """No files come in."""
        return None

    @property
    def links(self) -> Literal[False]:
        """Nor links."""
        return False

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The declared columns that come from the key."""
        if self.key is None or isinstance(self.key, str):
            return (self.key,) if self.key else ()
        return self.key.columns

    @property
    def registered(self) -> dict[str, MessageFormat]:
        """How the value and the key are written, by 'value' and 'key', where a registry has the schema."""
        value = self.value.format if isinstance(self.value, Debezium) else self.value
        return {part: one for part, one in (("value", value), ("key", self.key)) if isinstance(one, MessageFormat)}

    @property
    def schema_ids(self) -> dict[str, str]:
        """The declared column that gets the id of a schema, by 'value' and 'key', where a registry has that schema."""
        by_default = {"value": "schema_id", "key": "key_schema_id"}
        return {part: one.schema_id or by_default[part] for part, one in self.registered.items()}

    @property
    def beside(self) -> tuple[str, ...]:
        """The declared columns that do not come from the value of a message."""
        return (*self.key_columns, *self.headers, *self.schema_ids.values(), *self.of_envelope)

    @property
    def of_envelope(self) -> dict[str, str]:
        """The declared columns that come from the envelope of a change, and their types."""
        return self.value.kinds if isinstance(self.value, Debezium) else {}

    def origin(self, column: str) -> str:
        """Where a column that is `beside` the value comes from, in text."""
        if column in self.key_columns:
            return "the key" if isinstance(self.key, str) else f"the key by {type(self.key).__name__}"
        if isinstance(self.value, Debezium) and column in self.value.kinds:
            return self.value.origin(column)
        return "the header" if column in self.headers else "the schema's id"

    def layout(self) -> str:
        """How a message is cut into columns, in text."""
        if self.value is None:
            return "json"
        if isinstance(self.value, Debezium):
            return self.value.layout()
        checked = "" if getattr(self.value, "validate", True) else ", not validated"
        return f"{type(self.value).__name__} by a schema registry, whose id goes to {self.schema_ids['value']}{checked}"

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Refuse what comes beside the value into a column that is not declared, or is of another type.

        Any column may be the record id.
        """
        typed = {part.split()[0].strip("`"): part.split()[1].lower() for part in columns}
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
            if typed.get(name) not in ("int", "integer"):
                raise Refused(
                    f"pipeline {pipeline}: {name!r} gets the id of the {part}'s schema, and is not a declared "
                    "column of type int",
                    hint=f"add `{name} int` to the schema; schema_id= gives it another name",
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
