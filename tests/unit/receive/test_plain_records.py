"""Blocks of plain records as a task makes and opens them, without a JVM."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.receive import exchange
from onlyonce.sources import record_id
from onlyonce.sources.values import fast_json, parse

NOON = 1_772_366_400_000_000
BOUND = NOON + 86_400_000_000
KINDS = {"id": "string", "at": "timestamp", "amount": "bigint"}
ROWS = pa.schema(
    [
        ("id", pa.string()), ("at", fast_json.INSTANT), ("amount", pa.int64()), *fast_json.FOUND,
        *exchange.PLATFORM,
    ]
)  # fmt: skip


def reader(partitions: int = 1, record_id: tuple[str, ...] = ("id",), **beside: str) -> fast_json.Reader:
    """Of the columns id, at and amount."""
    return fast_json.Reader(KINDS, dict(zip(KINDS, KINDS, strict=True)), beside, record_id, "at", BOUND, partitions)


def lines(*values: str | None, reasons: dict[int, str] | None = None, first: int = 0) -> pa.RecordBatch:
    """A batch of lines, at the bytes from `first` on of file 7."""
    return pa.RecordBatch.from_pydict(
        {
            "oo_line": pa.array(values, pa.string()),
            "oo_refused": pa.array([(reasons or {}).get(n) for n in range(len(values))], pa.string()),
            "oo_file": pa.array([7] * len(values), pa.int64()),
            "oo_position": pa.array(range(first, first + len(values)), pa.int64()),
        }
    )


def line(name: str, at: str = '"2026-03-01T12:00:00Z"') -> str:
    """A record in JSON."""
    return f'{{"id":"{name}","at":{at},"amount":1}}'


def opened(batches: Iterator[pa.RecordBatch], folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of all blocks with the partition that each is for, and the lines that are left; both go by files."""
    told = [
        row for batch in exchange.write_blocks_into(folder, lambda _: batches)(iter([])) for row in batch.to_pylist()
    ]
    blocks = [exchange.Block(**row) for row in told if row["target"] is not None]
    left = [batch for row in told if row["target"] is None for batch in exchange.left_in_blocks(row["file"])]
    records = [
        record | {"target": block.target}
        for block in blocks
        for part in exchange.share([block.fetched], ROWS, None)
        for record in exchange.records_of(part).to_pylist()
    ]
    return records, [line for batch in left for line in batch.column("oo_line").to_pylist()]


def test_each_line_is_in_a_block_or_left_and_never_both(tmp_path: Path) -> None:
    """Odd lines, what could not be read, and records that would not be kept are left to Spark's parser."""
    odd = [
        line("a\\u0000"), "", '{"id":"x","more":1}', '{"at":"2026-03-01T12:00:00Z"}', '{"id":"y"}', line("z", '"2027-01-01T00:00:00Z"'),
        line("w", '"1969-12-31T23:59:59.999999Z"'), line("v", "-1"),
    ]  # fmt: skip
    given = [line("a"), *odd, line("b", '"1970-01-01T00:00:00Z"'), line("/lost")]
    records, left = opened(
        reader()(iter([lines(*given, reasons={10: "it is gone"}), lines(), lines(line("c"))])), tmp_path
    )

    assert [record["id"] for record in records] == ["a", "b", "c"]
    assert sorted(left) == sorted([*odd, line("/lost")])


def test_lines_that_are_not_plain_are_in_a_block_with_their_values() -> None:
    """Structs, escapes, decimals and epoch times are read beside a plain line; the order of the lines stays."""
    within = {"type": "struct", "fields": [{"name": "city", "type": "string", "nullable": True, "metadata": {}}]}
    read = replace(
        reader(),
        named={name: name for name in ("id", "at", "amount", "to")},
        kinds={"id": "string", "at": "timestamp", "amount": "decimal(6,2)", "to": within},
    )
    given = [
        '{"id":"a","at":1772366400.5,"amount":1.5}',
        r'{"id":"\u00e9","at":1772366400,"amount":2,"to":{"city":"\"x\""}}',
        '{"id":"c"}',
    ]
    left, records = read.apart(lines(*given))

    assert left.column("oo_line").to_pylist() == given[2:]
    assert [(one["id"], str(one["amount"]), one["to"]) for one in records.to_pylist()] == [
        ("a", "1.50", None),
        ("é", "2.00", {"city": '"x"'}),
    ]
    assert records.column("oo_event_time").cast(pa.int64()).to_pylist() == [NOON + 500_000, NOON]
    assert records.schema.field("to").type == pa.struct([("city", pa.string())])


def test_lines_read_in_two_ways_keep_their_order() -> None:
    """A line with an escape is between two plain ones: each record has the hash of its own line."""
    given = [line("a"), line(r"b\n"), line("c")]
    _, records = reader().apart(lines(*given))

    assert records.column("id").to_pylist() == ["a", "b\n", "c"]
    assert records.column("oo_payload").to_pylist() == [
        reader().apart(lines(one))[1].column("oo_payload")[0].as_py() for one in given
    ]


def test_a_record_in_a_block_is_a_candidate_without_a_reason(tmp_path: Path) -> None:
    """Its columns are those that a row has, nulls where a row would have something to tell."""
    [record], _ = opened(reader()(iter([lines(line("a"))])), tmp_path)

    assert record["amount"] == 1
    assert record["at"] == record["oo_event_time"]
    assert [record[name] for name in ("oo_reason", "oo_raw", "oo_unknown", exchange.CODE)] == [None, None, None, 0]


@pytest.mark.parametrize("partitions", [1, 2, 3, 8])
def test_a_block_is_for_the_partition_of_all_its_ids(partitions: int, tmp_path: Path) -> None:
    """By the high half modulo the partitions, never negative, as Spark's pmod has it; no record is lost or twice."""
    given = [line(str(n)) for n in range(500)]
    records, left = opened(reader(partitions)(iter([lines(*given[:200]), lines(*given[200:])])), tmp_path)

    assert left == []
    assert Counter(record["id"] for record in records) == Counter(map(str, range(500)))
    assert all(record["target"] == record["oo_high"] % partitions for record in records)


def test_ids_are_chained_hashes_of_the_id_columns_as_text(tmp_path: Path) -> None:
    """As `record_id` makes them one at a time; the payload is the hash of the line."""
    [record], _ = opened(reader(record_id=("id", "amount", "at"))(iter([lines(line("é"))])), tmp_path)

    def chained(*texts: str) -> int:
        state = 42
        for text in texts:
            state = xxhash.xxh64_intdigest(text.encode(), state)
        return state

    texts = ("é", "1", "2026-03-01 12:00:00")
    assert record["oo_high"] % 2**64 == chained(*texts)
    assert record["oo_low"] % 2**64 == chained("low", *texts)
    assert record["oo_payload"] % 2**64 == chained(line("é"))


TIMES = (
    "2026-03-01T12:00:00", "2026-03-01T12:00:10", "2026-03-01T12:00:00.120", "2026-03-01T12:00:00.000001",
    "2026-03-01T12:00:00.100000", "2000-10-10T00:00:00", "1969-12-31T23:59:59.999999", "1969-12-31T23:59:50", "1582-10-04T10:10:10.5",
    "1000-01-01T00:00:00", "9999-12-31T23:59:59.999999",
)  # fmt: skip
WRITTEN: dict[str, tuple[str, ...]] = {
    "string": ("", "a", "é", "007", "1.50", "2026-03-01 12:00:00.000000", " a ", "🙂"),
    "boolean": ("true", "false"),
    "tinyint": ("0", "-7", "10", "127", "-128"),
    "smallint": ("0", "-7", "100", "32767", "-32768"),
    "int": ("0", "-7", "100", "2147483647", "-2147483648"),
    "bigint": ("0", "-7", "100", "1152921504606846976", "9223372036854775807", "-9223372036854775808"),
    "date": ("1970-01-01", "1969-12-31", "1582-10-04", "2024-02-29", "2000-10-10", "1000-01-01", "9999-12-31"),
    "timestamp": (*(f"{time}Z" for time in TIMES), "2026-03-01T12:00:00.120+02:00"),
    "timestamp_ntz": TIMES,
}
"""Values of each type of an id that a block may have, as a person writes them."""


@pytest.mark.parametrize("kind", parse.AS_CAST)
def test_id_of_each_type_is_the_id_of_the_values(kind: str) -> None:
    """A record has the id that the table's reader and `trace` give it: `record_id.of_values`."""
    declared = Pipeline(
        name="p", source=Files(), schema=f"key {kind}, at timestamp", record_id=("key",), event_time="at",
        outputs=(Output(name="o", transform="m:f", sink=Delta()),),
    )  # fmt: skip
    kinds = {"key": kind, "at": "timestamp"}
    read = fast_json.Reader(kinds, {name: name for name in kinds}, {}, ("key",), "at", BOUND, 1)
    quote = "" if kind in ("boolean", "tinyint", "smallint", "int", "bigint") else '"'
    given = [f'{{"key":{quote}{value}{quote},"at":"2026-03-01T12:00:00Z"}}' for value in WRITTEN[kind]]

    left, records = read.apart(lines(*given))

    assert left.column("oo_line").to_pylist() == []
    for value, record in zip(WRITTEN[kind], records.to_pylist(), strict=True):
        wanted = record_id.of_values(declared, {"key": value})
        assert (record["oo_high"], record["oo_low"]) == (wanted.high, wanted.low), value


def test_by_position_an_id_is_the_place_whatever_else_is_in_the_batch(tmp_path: Path) -> None:
    """Lines that are left out between them shift no place."""
    chance = random.Random(4)
    given = [line("same") if chance.random() < 0.7 else "odd" for _ in range(300)]
    alone = {}
    for at, one in enumerate(given):
        for record in opened(reader(record_id=())(iter([lines(one, first=at)])), tmp_path)[0]:
            alone[record["oo_high"]] = at
    records, left = opened(reader(record_id=())(iter([lines(*given)])), tmp_path)

    assert [alone[record["oo_high"]] for record in records] == [at for at, one in enumerate(given) if one != "odd"]
    assert len(left) == given.count("odd")


def test_what_comes_beside_a_message_is_its_column(tmp_path: Path) -> None:
    """The key in the place of a field; without one the record would not be kept, and so is left."""
    with_key = reader(id="oo_beside_id")
    batch = lines('{"at":"2026-03-01T12:00:00Z"}', '{"amount":2,"at":"2026-03-01T12:00:00Z"}', '{"id":"x"}')
    batch = batch.append_column("oo_beside_id", pa.array(["k", None, "k"], pa.string()))
    records, left = opened(with_key(iter([batch])), tmp_path)

    assert [record["id"] for record in records] == ["k"]
    assert len(left) == 2


@pytest.mark.parametrize("by_place", [False, True])
def test_an_id_of_one_source_is_another_id_in_another_source(tmp_path: Path, by_place: bool) -> None:
    """Where its sources have ids of their own: by what stands before the values, or the place, in the chain of hashes,
    as `trace` computes them."""
    found = []
    for salt in ("", "web", "till"):
        read = replace(reader(record_id=() if by_place else ("id",)), salt=salt)
        [record], _ = opened(read(iter([lines(line("a"))])), tmp_path)
        before = [salt.encode()] if salt else []
        texts = [struct.pack("<q", 7), struct.pack("<q", 0)] if by_place else [b"a"]
        wanted = record_id._chained([*before, *texts]), record_id._chained([b"low", *before, *texts])
        assert (record["oo_high"], record["oo_low"]) == wanted
        found.append(record["oo_high"])
    assert len(set(found)) == 3
