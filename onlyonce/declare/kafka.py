"""How a topic of Kafka is declared as a source. `onlyonce.sources.kafka.offsets` decides about its offsets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Literal

from onlyonce.declare.declaration import check_one_of, declaration
from onlyonce.declare.several import NONE, Several
from onlyonce.model import record_size
from onlyonce.model.errors import Refused

ISOLATION = ("read_committed", "read_uncommitted")
ON_LOSS = ("stop", "skip")
SECRET = re.compile(r"password|jaas|secret|token|keystore\.key|\.key$", re.IGNORECASE)
FROM_ENVIRONMENT = "env:"
OURS = (
    "bootstrap.servers", "isolation.level", "auto.offset.reset", "enable.auto.commit", "key.deserializer",
    "value.deserializer", "interceptor.classes",
)  # fmt: skip
"""Options of the client that the platform sets."""


@declaration
class Kafka:
    """A topic of Kafka, a record a message. Its value is a JSON object; one without a value (a tombstone) is `invalid`.

    topic                its name
    servers              the brokers to ask first: 'host:port,host:port'
    start                where the first run begins: 'earliest', 'latest', or a time with its zone (the first message of
                         each partition at or after it). Resolved once and stored. A partition that is added later is
                         read from its begin
    max_offsets_a_batch  how many offsets one batch takes, of all partitions together
    key                  the declared column, a string, that gets the message's key
    headers              declared columns, strings, that each get the message's header of that name
    isolation            'read_committed': nothing of an aborted transaction, and what is behind an open one waits for its
                         end. 'read_uncommitted': all that is in the topic
    on_loss              'stop': a run is refused where the broker has lost messages before they were read (retention, a
                         topic that was deleted and made again). 'skip': it goes on behind them, and each lost range
                         becomes one `invalid` record that says which offsets it had
    options              of Kafka's Java client, such as {'security.protocol': 'SASL_SSL'}. A value 'env:NAME' is what the
                         variable NAME holds where the driver runs; passwords are given only so
    max_record_bytes     a message whose value, key and declared headers have more is `invalid`, with its place, its size
                         and how it begins. The client has it whole in memory all the same: the topic's own
                         max.message.bytes keeps such ones out
    """

    topic: str
    servers: str = field(repr=False)
    start: Literal["earliest", "latest"] | datetime = field(default="earliest", repr=False)
    max_offsets_a_batch: int = field(default=1_000_000, repr=False)
    key: str | None = None
    headers: Several[str] = NONE
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    on_loss: Literal["stop", "skip"] = field(default="stop", repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_record_bytes: int = field(default=record_size.DEFAULT, repr=False)

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
        self._check_options()

    def _check_options(self) -> None:
        for name, value in self.options.items():
            if name.removeprefix("kafka.") in OURS:
                raise Refused(f"Kafka: the option {name!r} is the platform's to set", hint="leave it out")
            if SECRET.search(name) and not value.startswith(FROM_ENVIRONMENT):
                raise Refused(
                    f"Kafka: the option {name!r} is a secret, and a declaration is no place for one",
                    hint=f"put it into an environment variable where the driver runs, and give '{FROM_ENVIRONMENT}NAME' here",
                )

    @property
    def format(self) -> Literal["json"]:
        """What a value is."""
        return "json"

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
    def beside(self) -> tuple[str, ...]:
        """The declared columns that do not come from the value of a message."""
        return ((self.key,) if self.key else ()) + self.headers

    def layout(self) -> str:
        """How a message is cut into columns, in text."""
        return self.format

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Refuse a key or header that is no declared string. Any declared column may be the record id."""
        typed = {part.split()[0].strip("`"): part.split()[1].lower() for part in columns}
        for name in self.beside:
            if typed.get(name) != "string":
                raise Refused(
                    f"pipeline {pipeline}: {name!r} gets the message's key or header, and is not a declared column of type string",
                    hint=f"add `{name} string` to the schema",
                )
        if len(set(self.beside)) < len(self.beside):
            raise Refused(f"pipeline {pipeline}: a column gets two of key and headers", hint="give each its own column")
