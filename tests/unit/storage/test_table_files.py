"""Which data files may hold rows with certain values: none is left out that does, whatever the log says or does not say
of it."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from onlyonce.core.backfill import OpenSpan
from onlyonce.core.batch import to_micros
from onlyonce.core.locations import location
from onlyonce.sinks.delta.delta_upsert import Replace
from onlyonce.tables import table_files
from onlyonce.tables.table_files import Bounds

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "text": (pa.string(), lambda n: f"{'long ' * 9}{n:03}"),
    "number": (pa.int64(), lambda n: n),
    "day": (pa.date32(), lambda n: date(2026, 1, 1) + timedelta(days=n)),
    "time": (pa.timestamp("us", "UTC"), lambda n: NOON + timedelta(microseconds=n)),
    "share": (pa.float64(), lambda n: n / 3),
}


def made(path: Path, kind: str, files: list[list[int | None]], by: list[str]) -> DeltaTable:
    """A table with a file for each list."""
    arrow, value = KINDS[kind]
    for numbers in files:
        rows = pa.table(
            {
                "k": pa.array([None if n is None else value(n) for n in numbers], arrow),
                "n": pa.array(numbers, pa.int64()),
            }
        )
        write_deltalake(path, rows, mode="append", partition_by=by or None)
    return DeltaTable(str(path))


def numbers_of(path: Path, held: table_files.Held) -> list[int | None]:
    """What is in a file."""
    with pq.ParquetFile(path / held.path) as file:
        found: list[int | None] = file.read(["n"])["n"].to_pylist()
    return found


@pytest.mark.parametrize("by", [[], ["k"]], ids=["by statistics", "by partition"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_file_with_such_a_row_is_told_and_a_whole_one_has_no_other(
    tmp_path: Path, kind: str, by: list[str]
) -> None:
    """Of random files, asked for random values. Where bounds are exact, no more than those whose bounds reach them."""
    chance = random.Random(f"{kind}{by}")
    value = KINDS[kind][1]
    files: list[list[int | None]] = []
    for _ in range(8):
        begin = chance.randrange(40)
        files.append(
            [
                chance.choice([begin, begin + chance.randrange(10), None if chance.random() < 0.3 else begin])
                for _ in range(4)
            ]
        )
    table = made(tmp_path, kind, files, by)
    for low in range(0, 50, 7):
        high, null = low + chance.randrange(6), chance.random() < 0.4
        found = table_files.holding(table, {"K": Bounds(value(low), value(high), null=null)})
        for held in table_files.holding(table, {}):
            inside = [null if n is None else low <= n <= high for n in numbers_of(tmp_path, held)]
            told = [one for one in found if one.path == held.path]
            assert told or not any(inside), (held, low, high, null)
            assert not told or not told[0].whole or all(inside)
        if kind in ("number", "day") and not null:
            assert len(found) < len(table_files.holding(table, {}))


def test_of_values_that_are_told_one_by_one_those_between_are_left_out(tmp_path: Path) -> None:
    table = made(tmp_path, "day", [[1, 2, 3, 4]], ["k"])
    first, last = (KINDS["day"][1](n) for n in (1, 4))
    found = table_files.holding(table, {"k": Bounds(first, last, among=(first, last))})
    assert [dict(held.partition)["k"] for held in found] == [str(first), str(last)]
    assert all(held.whole for held in found)

    # Bounds do not tell what lies between.
    table = made(tmp_path / "mixed", "number", [[1, 3, 5]], [])
    [held] = table_files.holding(table, {"k": Bounds(1, 5, among=(1, 5))})
    assert not held.whole


def test_file_with_a_window_that_has_just_closed_is_not_replaced_whole(tmp_path: Path) -> None:
    """Open windows end later than the watermark. A window that ends at it keeps its row."""
    ends = [NOON + timedelta(minutes=n) for n in (0, 1)]
    for some in (ends, ends[1:]):
        times = pa.array(some, pa.timestamp("us", "UTC"))
        write_deltalake(tmp_path, pa.table({"window_start": times, "window_end": times}), mode="append")
    closed, start = (to_micros(time) for time in (NOON, NOON - timedelta(hours=1)))
    rows: Any = None
    pane = Replace(rows, location(str(tmp_path), "lake"), OpenSpan(start, closed), "window_date")
    assert {held.rows: held.whole for held in pane.files(DeltaTable(tmp_path))} == {2: False, 1: True}


def test_no_value_at_all_is_asked_for(tmp_path: Path) -> None:
    """As where each row of a batch has a null there."""
    table = made(tmp_path, "number", [[1], [None, 2]], [])
    [held] = table_files.holding(table, {"k": Bounds(None, None, null=True)})
    assert numbers_of(tmp_path, held) == [None, 2]


def test_an_empty_table_and_one_without_statistics(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "empty", pa.table({"k": pa.array([], pa.string())}))
    for bounds in (Bounds("a", "b"), Bounds("a", "b", null=True), Bounds(None, None, null=True)):
        assert table_files.holding(DeltaTable(str(tmp_path / "empty")), {"k": bounds}) == []
    rows = pa.table({"k": ["a"]})
    write_deltalake(tmp_path / "none", rows, configuration={"delta.dataSkippingNumIndexedCols": "0"})
    [held] = table_files.holding(DeltaTable(str(tmp_path / "none")), {"k": Bounds("x", "y")})
    assert not held.whole


def test_a_name_with_signs_is_told_as_it_is_on_the_disk(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"k": ["a b/c%d=é"], "n": [1]}), partition_by=["k"])
    [held] = table_files.holding(DeltaTable(str(tmp_path)), {})
    assert (tmp_path / held.path).is_file()
    assert held.partition == (("k", "a b/c%d=é"),)


PARTITIONS: dict[str, tuple[pa.DataType, list[str | None]]] = {
    "string": (pa.string(), ["a/b", "__HIVE_DEFAULT_PARTITION__", None]),
    "binary": (pa.binary(), ["é"]),
    "date": (pa.date32(), ["0001-01-01", "0999-12-31", "9999-12-31"]),
    "time": (pa.timestamp("us", "UTC"), ["0999-12-31 01:02:03.000004", "2026-01-01 00:00:00.000000"]),
    "local time": (pa.timestamp("us"), ["0999-12-31 01:02:03.000004"]),
    "decimal": (pa.decimal128(20, 10), ["-1.5000000000", "0.0000000001", None]),
    "float": (pa.float64(), ["nan", "-0.0", "0.0", "0.1"]),
    "boolean": (pa.bool_(), ["true", "false"]),
}


@pytest.mark.parametrize("kind", PARTITIONS)
def test_a_partition_value_is_given_as_the_log_has_it(tmp_path: Path, kind: str) -> None:
    """Spark reads it by the string, and a commit that removes the file repeats it."""
    arrow, texts = PARTITIONS[kind]
    table = DeltaTable.create(tmp_path, pa.schema([("p", arrow), ("n", pa.int64())]), partition_by=["p"])
    actions = [
        AddAction(f"{number}.parquet", 1, {"p": text}, 0, True, '{"numRecords":1}') for number, text in enumerate(texts)
    ]
    table.create_write_transaction(actions, "append", table.schema(), ["p"])

    held = table_files.holding(DeltaTable(tmp_path), {})
    assert [file.partition for file in held] == [(("p", text),) for text in texts]
