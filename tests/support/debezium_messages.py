"""Messages as Debezium's connectors write them, in the shape that its documentation shows."""

from __future__ import annotations

import json
from typing import Any

from tests.support.changes_of_a_table import Change

NOON = 1_772_366_400_000
"""In milliseconds; a change is as many behind it as its position says."""
SCHEMA = {"type": "struct", "optional": False, "name": "pg.public.customers.Envelope", "fields": []}


def envelope_of(row: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema in Avro of the changes of a table with such columns."""
    told: dict[str, Any] = {
        "version": "string",
        "name": "string",
        "ts_ms": "long",
        "snapshot": ["null", "string"],
        "db": "string",
        "table": "string",
    }
    of_both = {"connector": "string", "lsn": "long", "file": "string", "pos": "long", "row": "int"}
    source = [{"name": name, "type": kind} for name, kind in told.items()]
    source += [{"name": name, "type": ["null", kind], "default": None} for name, kind in of_both.items()]
    value = {"type": "record", "name": "Value", "fields": row}
    return {
        "type": "record", "name": "Envelope", "namespace": "pg.public.customers", "connect.name": "pg.public.customers.Envelope",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None}, {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "record", "name": "Source", "namespace": "io.debezium.connector", "fields": source}},
            {"name": "op", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }  # fmt: skip


ENVELOPE = envelope_of(
    [{"name": "key", "type": "string"}, {"name": "value", "type": ["null", "long"], "default": None}]
)
"""That of the table of customers."""


def envelope(op: str, before: Any, after: Any, source: dict[str, Any], at: int = NOON) -> dict[str, Any]:
    """What all connectors write; `source` is the connector's own."""
    told = {
        "version": "3.0.0.Final",
        "name": "shop",
        "ts_ms": at,
        "snapshot": "false",
        "db": "shop",
        "table": "customers",
        **source,
    }
    return {
        "before": before,
        "after": after,
        "source": told,
        "transaction": None,
        "op": op,
        "ts_ms": at + 50,
        "ts_us": (at + 50) * 1000,
    }


def of_postgres(change: Change) -> dict[str, Any]:
    """Of a deleted row the log has the keys, and nothing else."""
    source = {
        "connector": "postgresql",
        "schema": "public",
        "txId": 700 + change.position,
        "lsn": change.position,
        "sequence": '[null,"1"]',
        "xmin": None,
    }
    return _envelope(change, source)


def of_mysql(change: Change) -> dict[str, Any]:
    """The file's number gets a digit more on the way, and a row event has several rows."""
    file, place = divmod(change.position, 50)
    source = {
        "connector": "mysql",
        "server_id": 1,
        "gtid": None,
        "file": f"mysql-bin.{999_990 + file:06}",
        "pos": place // 2 * 1000,
        "row": place % 2,
    }
    return _envelope(change, source)


def text(message: dict[str, Any], *, schema: bool = False) -> str:
    """With the schema in it (schemas.enable=true) or without."""
    return json.dumps({"schema": SCHEMA, "payload": message} if schema else message)


def position(change: Change) -> str:
    """What the column `position` has of a change in PostgreSQL."""
    return f"{change.position:020}{int(change.op != 'r')}"


def _envelope(change: Change, source: dict[str, Any]) -> dict[str, Any]:
    row = {"key": change.key, "value": change.value}
    before, after = ({"key": change.key, "value": None}, None) if change.deleted else (None, row)
    return envelope(change.op, before, after, source, NOON + change.position)
