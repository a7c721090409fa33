"""Changes of a database as Debezium's connectors write them to Kafka, as a declaration has them.

Pure data, checked when made.
"""

from __future__ import annotations

from onlyonce.declare.declaration import declaration
from onlyonce.declare.sources.message_formats import Avro
from onlyonce.model.errors import Refused

PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium writes by default for a value that did not change and that PostgreSQL stores out of line (TOAST)."""


@declaration
class Debezium:
    """A change of a row, by Debezium's envelope in JSON or Avro. Of PostgreSQL, MySQL and MariaDB.

    The declared columns are those of the row: as it is after the change, and of a delete as it was before. Three more
    come from the envelope.

    format    Avro(registry=…): the envelope is Avro by a schema of that registry, whose id goes to its column. None:
              JSON, with its schema in each message or without
    op        the declared column, a string, that gets what happened: c (created), u (updated), d (deleted), r (read by
              the snapshot)
    position  the declared column, a string, that gets the change's place in the log of the database, in digits: of two
              changes of a row the later one has the greater text. The snapshot's rows are before all changes at the
              same place. It is part of the record id
    time      the declared column, a timestamp, that gets when the database made the change. It is the event time
    unavailable  the connector's `unavailable.value.placeholder`. A change has it in place of a large value that did not
                 change. The value before the change is taken, and a change without that is `invalid`

    A tombstone, which Debezium sends behind a delete, is no record. What has no row or no position (a truncated table,
    a message of the log, another connector) is `invalid`. So is a message by a schema that is no envelope, or by an id
    that the registry does not know.
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
        if self.format is not None and not isinstance(self.format, Avro):
            raise Refused(
                f"Debezium: format={self.format!r}",
                hint="Avro(registry=…) for an envelope in Avro; leave it out for JSON",
            )

    @property
    def kinds(self) -> dict[str, str]:
        """The columns that come from the envelope, and their types."""
        return {self.op: "string", self.position: "string", self.time: "timestamp"}

    def layout(self) -> str:
        """How a message is cut into columns, in text."""
        if self.format is None:
            return "Debezium's envelope in JSON"
        return (
            f"Debezium's envelope in Avro by a schema registry, whose id goes to {self.format.schema_id or 'schema_id'}"
        )

    def origin(self, column: str) -> str:
        """What a column gets, in text."""
        return {
            self.op: "what happened",
            self.position: "the place in the database's log",
            self.time: "the time of the change",
        }[column]


def check_columns(pipeline: str, value: Debezium, typed: dict[str, str]) -> None:
    """Refuse a column of the envelope that is not declared, or is of another type. `typed`: the declared columns."""
    for name, kind in value.kinds.items():
        if typed.get(name) != kind:
            raise Refused(
                f"pipeline {pipeline}: {name!r} gets {value.origin(name)}, and is not a declared column of type {kind}",
                hint=f"add `{name} {kind}` to the schema; Debezium(op=…, position=…, time=…) gives them other names",
            )
