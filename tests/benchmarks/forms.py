"""The inputs of `test_lines`: the same records in each form in which people send them, by a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyarrow import parquet

from tests.benchmarks import deliveries

START = 1_767_225_600
KINDS = ("view", "cart", "order")
NESTED = (
    "id string, at timestamp, customer struct<name: string, address: struct<city: string, zip: string>>, "
    "items array<struct<sku: string, count: int, price: double>>"
)
CHANGE = "id string, user long, kind string, note string, op string, position string, at timestamp"
ONE_IN = 1000
"""So many lines of the form `invalid` have one that is invalid."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """One form: the line of a record, and the declaration that reads it."""

    line: Callable[[int, Record], str]
    schema: str = deliveries.SCHEMA
    format: Literal["json", "csv", "parquet"] = "json"
    topic: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    invalid_one_in: int = 0


def records(seed: int, count: int) -> Iterator[Record]:
    """Make records; no two have one id."""
    chance = random.Random(seed)
    for number in range(count):
        micros = chance.randrange(1_000_000)
        yield {
            "id": f"{seed:08x}{number:08x}{chance.getrandbits(64):016x}", "user": chance.randrange(100_000), "at": f"2026-01-01T{number % 24:02}:00:00.{micros:06}Z",
            "amount": chance.randrange(100_000), "kind": KINDS[number % 3], "note": f"{chance.getrandbits(40):-<16x}",
        }  # fmt: skip


def write(form: Form, folder: Path, seed: int, files: int, lines: int) -> list[Path]:
    """Write files of so many records each."""
    found = []
    for number in range(files):
        made = list(records(seed + number, lines))
        path = folder / f"{number:04}.{'parquet' if form.format == 'parquet' else 'txt'}"
        if form.format == "parquet":
            table = pa.Table.from_pylist(made)
            at = table.column_names.index("at")
            parquet.write_table(table.set_column(at, "at", table.column(at).cast(pa.timestamp("us", "UTC"))), path)
        else:
            path.write_text("".join(f"{form.line(at, one)}\n" for at, one in enumerate(made)))
        found.append(path)
    return found


def _flat(at: int, record: Record) -> str:
    return json.dumps(record, separators=(",", ":"))


def _nested(at: int, record: Record) -> str:
    items = [
        {"sku": f"{record['user']:06}", "count": 1 + at % 3, "price": record["amount"] / 100} for _ in range(1 + at % 2)
    ]
    address = {"city": "Berlin", "zip": f"{record['user']:05}"}
    return json.dumps(
        {
            "id": record["id"],
            "at": record["at"],
            "customer": {"name": record["note"], "address": address},
            "items": items,
        },
        separators=(",", ":"),
    )


def _escaped(at: int, record: Record) -> str:
    return _flat(at, record | {"note": f'"Zo\u00eb"\n{record["note"]}'})


def _numeric(at: int, record: Record) -> str:
    amount = f"{record['amount'] // 100}.{record['amount'] % 100:02}"
    return f'{{"id":"{record["id"]}","user":{record["user"]},"at":{START + at},"amount":{amount},"kind":"{record["kind"]}","note":"{record["note"]}"}}'


def _one_invalid(at: int, record: Record) -> str:
    return _flat(at, record) if at % ONE_IN else _flat(at, record | {"user": "nobody"})


def _csv(at: int, record: Record) -> str:
    return ",".join(map(str, record.values()))


def _change(at: int, record: Record) -> str:
    row = {name: record[name] for name in ("id", "user", "kind", "note")}
    source = {
        "version": "3.0.0.Final", "name": "shop", "ts_ms": 1000 * (START + at), "snapshot": "false", "db": "shop", "table": "customers",
        "connector": "postgresql", "schema": "public", "txId": at, "lsn": 1 + at, "sequence": '[null,"1"]', "xmin": None,
    }  # fmt: skip
    return json.dumps(
        {"before": None, "after": row, "source": source, "transaction": None, "op": "c", "ts_ms": source["ts_ms"]},
        separators=(",", ":"),
    )


FORMS = {
    "flat": Form(_flat),
    "nested": Form(_nested, NESTED),
    "escaped": Form(_escaped),
    "numeric": Form(_numeric, "id string, user long, at timestamp, amount decimal(12,2), kind string, note string"),
    "invalid": Form(_one_invalid, invalid_one_in=ONE_IN),
    "csv": Form(_csv, format="csv"),
    "parquet": Form(_flat, format="parquet"),
    "kafka": Form(_flat, topic=True),
    "debezium": Form(_change, CHANGE, topic=True, options={"record_id": ("id", "position")}),
}
