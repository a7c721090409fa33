"""Which formats the value and the key of a Kafka message may have. Pure."""

from __future__ import annotations

from onlyonce.declare.sources.debezium import Debezium
from onlyonce.declare.sources.message_formats import Avro, MessageFormat, Protobuf
from onlyonce.model.errors import Refused


def check_parts(key: object, value: object) -> None:
    """Refuse what can't be a key or a value of a message."""
    if value is not None and not isinstance(value, MessageFormat | Debezium):
        raise Refused(
            f"Kafka: value={value!r}",
            hint="Avro(…), Protobuf(…), JsonSchema(…) or Debezium(…); leave it out for plain JSON",
        )
    written = value.format if isinstance(value, Debezium) else value
    if isinstance(written, Avro | Protobuf) and written.columns:
        raise Refused(
            "Kafka: columns of a value",
            hint="leave them out: all declared columns that come from nowhere else are the value's",
        )
    if key is not None and not isinstance(key, str | Avro | Protobuf):
        raise Refused(
            f"Kafka: key={key!r}", hint="the name of a column for a key that is a text; or Avro(…), Protobuf(…)"
        )
    if isinstance(key, Avro | Protobuf) and not key.columns:
        raise Refused(
            f"Kafka: the key's {type(key).__name__} names no columns", hint="columns=('customer',) come from the key"
        )
