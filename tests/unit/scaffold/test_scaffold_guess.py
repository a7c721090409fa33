"""What `onlyonce init --from` tells of a sample, without reading one: types, record id, event time, windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.core.errors import Refused
from onlyonce.scaffold import guessed_types
from onlyonce.scaffold import sample as scaffold_sample
from onlyonce.scaffold.sample import Sample


def sample(columns: dict[str, str], *rows: tuple[Any, ...]) -> Sample:
    return Sample("sales.jsonl", "json", False, columns, [dict(zip(columns, row, strict=True)) for row in rows], {})


@pytest.mark.parametrize(
    "values, kind",
    [
        ([1, None, 2], "long"),
        ([1 << 63], "string"),
        ([1, 2.5], "double"),
        ([True, False], "boolean"),
        ([True, 1], "string"),
        (["a", 1], "string"),
        ([None], "string"),
        (["2026-03-01T10:00:00Z", "2026-03-01 10:00:00.123+01:00"], "timestamp"),
        (["2026-03-01T10:00:00Z", "soon"], "string"),
        (["2026-03-01", None], "date"),
        ([[1], [], [None]], "array<long>"),
        ([{"a": 1}, {"b": ["x"]}], "struct<a:long,b:array<string>>"),
        ([{"a b": 1}], "string"),
    ],
)
def test_the_type_of_a_field(values: list[Any], kind: str) -> None:
    assert guessed_types.types_of_json(values) == kind


@pytest.mark.parametrize(
    "texts, kind",
    [
        (["1", "-20", None], "long"),
        (["007", "123"], "string"),
        (["1.5", "2", "1e9"], "double"),
        (["true", "false"], "boolean"),
        (["2026-03-01T10:00", "2026-03-01T11:00"], "timestamp"),
        (["2026-03-01"], "date"),
        ([None, ""], "string"),
        (["nan"], "string"),
    ],
)
def test_the_type_of_a_column_of_csv(texts: list[str | None], kind: str) -> None:
    assert guessed_types.types_of_csv(texts) == kind


@pytest.mark.parametrize(
    "arrow, kind",
    [
        (pa.int8(), "tinyint"),
        (pa.uint8(), "smallint"),
        (pa.int64(), "long"),
        (pa.float32(), "float"),
        (pa.decimal128(12, 2), "decimal(12,2)"),
        (pa.timestamp("ms"), "timestamp"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.map_(pa.string(), pa.list_(pa.date32())), "map<string,array<date>>"),
        (pa.struct([("a", pa.bool_())]), "struct<a:boolean>"),
    ],
)
def test_the_type_of_a_column_of_parquet(arrow: pa.DataType, kind: str) -> None:
    assert guessed_types.types_of_arrow(arrow) == kind


T = ["2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z", "2026-03-01T12:00:00Z"]


@pytest.mark.parametrize(
    "columns, rows, chosen",
    [
        # The name that says so wins, also behind another that is unique.
        ({"code": "string", "order_id": "string"}, [("a", "1"), ("b", "2")], ("order_id",)),
        ({"order_id": "string", "id": "long"}, [("a", 1), ("b", 2)], ("id",)),
        ({"orderId": "string", "n": "long"}, [("a", 1), ("b", 2)], ("orderId",)),
        # A number is unique by chance, a text hardly.
        ({"cents": "long", "code": "string"}, [(1, "a"), (2, "b")], ("code",)),
        # The same record twice is one that was delivered twice.
        ({"id": "string"}, [("a",), ("b",), ("a",)], ("id",)),
        # No id where one is missing.
        ({"id": "string", "code": "string"}, [("a", "x"), (None, "y")], ("code",)),
        ({"user": "string", "at": "timestamp"}, [("a", T[0]), ("a", T[1]), ("b", T[0])], ("user", "at")),
        ({"user": "string", "x": "double"}, [("a", 1.0), ("a", 2.0)], ()),
        # Two times are no identity.
        ({"at": "timestamp", "until": "timestamp"}, [(T[0], T[1]), (T[1], T[2])], ()),
    ],
)
def test_the_record_id(columns: dict[str, str], rows: list[tuple[Any, ...]], chosen: tuple[str, ...]) -> None:
    assert scaffold_sample.record_id(sample(columns, *rows)).columns == chosen


@pytest.mark.parametrize(
    "columns, chosen",
    [
        ({"updated_at": "timestamp", "created_at": "timestamp"}, "created_at"),
        ({"received_time": "timestamp", "shipped": "timestamp"}, "shipped"),
        ({"loadedAt": "timestamp", "eventTime": "timestamp"}, "eventTime"),
        ({"timestamp": "timestamp", "event_time": "timestamp"}, "event_time"),
        ({"some": "timestamp", "day": "date"}, "some"),
    ],
)
def test_the_event_time(columns: dict[str, str], chosen: str) -> None:
    assert scaffold_sample.event_time(sample(columns, tuple(T[: len(columns)]))).columns == (chosen,)


@pytest.mark.parametrize("columns", [{"id": "string"}, {"at": "timestamp"}])
def test_without_a_time_in_every_record_there_is_no_declaration(columns: dict[str, str]) -> None:
    with pytest.raises(Refused, match="no column that holds a time in every record"):
        scaffold_sample.event_time(sample(columns, (None,)))


@pytest.mark.parametrize(
    "times, size",
    [
        (["2026-03-01T00:00:00Z", "2026-03-09T00:00:00Z"], timedelta(days=1)),
        (["2026-03-01T00:00:00", "2026-03-01T05:00:00Z"], timedelta(hours=1)),
        (["2026-03-01T00:00:00Z"], timedelta(minutes=1)),
    ],
)
def test_a_sample_holds_some_windows(times: list[str], size: timedelta) -> None:
    assert scaffold_sample.window(times) == size
