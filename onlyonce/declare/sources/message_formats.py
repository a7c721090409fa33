"""How the value and the key of a Kafka message are written, where a schema registry knows.

Pure data, checked when made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from onlyonce.declare.declaration import check_one_of, declaration
from onlyonce.declare.several import NONE, Several
from onlyonce.model.errors import Refused

FROM_ENVIRONMENT = "env:"
SECRET = re.compile(r"user\.info|password|secret|token$", re.IGNORECASE)
OURS = ("url", "timeout", "max.retries")
"""Options of the registry's client that the platform sets."""


@declaration
class Avro:
    """Avro, as Confluent's serializers write it: a zero byte, the schema's id in four bytes, the record.

    Columns by name.

    registry    the schema registry: its URL, or 'env:NAME' for what the variable NAME holds where the driver runs
    schema_id   the declared column, an int, that gets the id of the record's schema. By default schema_id, of a key
                key_schema_id
    columns     of a key: the declared columns that come from it and not from the value; one, where its schema is no
                record
    options     of confluent-kafka's SchemaRegistryClient, such as {'basic.auth.user.info': 'env:REGISTRY_LOGIN'}.
                Secrets are given by 'env:NAME' only. They stay on the driver: tasks are sent the schemas

    A column whose type does not fit the declared one, or none for the record id or the event time: every record of that
    schema is `invalid`, and the reason names both types. So is a record whose schema id the registry does not know.
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

    Options as `Avro` has them.

    A field without presence (proto3) has its default where nothing was written, never null. An enum is a string, a
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
    """A JSON object behind the id of its JSON Schema.

    It is read like plain JSON; options as `Avro` has them. Of a value only.

    validate    a value that its own schema forbids is `invalid`, with what the schema says. False: the declared types
                alone decide
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
        """Of a key only."""
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
        if name in OURS:
            raise Refused(f"{whose}: the option {name!r} is the platform's to set", hint="leave it out")
        if SECRET.search(name) and not str(value).startswith(FROM_ENVIRONMENT):
            raise Refused(
                f"{whose}: the option {name!r} is a secret, and a declaration is no place for one",
                hint="put it into an environment variable where the driver runs, and give "
                f"'{FROM_ENVIRONMENT}NAME' here",
            )
