"""What a value means holds for whole records on Spark: in a line read by the fast path or not, in columns, at the top
and nested."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from onlyonce.api.pipeline import Files, Input, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.engine import session
from onlyonce.sources import discovery, source_files
from onlyonce.sources.lines import LINE_COLUMN, Lines
from onlyonce.sources.listing import new_files
from onlyonce.sources.values import parse
from tests.support.arrivals import records_of
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TYPES = {
    "paid": "timestamp", "wall": "timestamp_ntz", "day": "date", "part": "struct<paid:timestamp,many:array<date>>", "price": "decimal(12,2)", "weight": "float",
    "real": "double", "whole": "bigint", "note": "string", "raw": "binary", "extra": "map<string,int>",
}  # fmt: skip
SCHEMA = "id string, at timestamp, " + ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
KEPT: list[tuple[str, str, Any]] = [
    ("paid", "1767225600.123456789", datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)), ("paid", '"2026-03-01T12:00+02:00"', datetime(2026, 3, 1, 10, tzinfo=UTC)),
    ("wall", '"0001-01-01T00:00"', datetime(1, 1, 1)), ("day", '"9999-12-31"', date(9999, 12, 31)), ("price", "1.2300", Decimal("1.23")),
    ("weight", "16777216", 16777216.0), ("real", "9007199254740992", 2.0**53), ("whole", "9223372036854775807", 2**63 - 1), ("note", "1767225600.123456782", "1767225600.123456782"),
    ("note", '{"a" : [1.10, null]}', '{"a":[1.10,null]}'), ("raw", '"YQ=="', b"a"), ("extra", '{"a":1}', {"a": 1}),
]  # fmt: skip
INVALID = {
    "paid": ['"10:15:00"', '"\\t12:00"', '"\\u00312:00"', '"2026"', '"45000"', '"2026-03-01T12:00:00 BST"', "1767225600000", "-62135596801", '"20260301"', '"10000-01-01"'],
    "day": ['"20260301"', '"45000"', '"0000-12-31"', '"2026-03-01T00:00:00Z"'], "wall": ['"10:15"'], "price": ["1.239", "12345678901"], "weight": ["1e300", "16777217"],
    "part": ['{"paid":"10:15"}', '{"many":["20260301"]}'], "real": ["1e400", "9007199254740993", '"NaN"'],
}  # fmt: skip


def records(spark: SparkSession, lines: list[str], **declared: Any) -> list[Any]:
    """The records of some lines, in their order."""
    rows = [(line, None, 7, at) for at, line in enumerate(lines)]
    shaped = spark.createDataFrame(rows, session.schema_of(LINE_COLUMN)).coalesce(1)
    pipeline = replace(SHOP, **{"schema": SCHEMA, "record_id": ("id",), **declared})
    return sorted(records_of(spark, Lines([], shaped), pipeline, NOW), key=lambda row: row.id or row.oo_raw)


def line(number: int, column: str, value: str) -> str:
    """A record with one more column."""
    return f'{{"id":"{number:03}","at":"2026-03-01T12:00:00Z","{column}":{value}}}'


def test_a_value_of_a_line_is_that_of_the_table(spark: SparkSession) -> None:
    """For each type that a record can have."""
    found = records(spark, [line(number, name, value) for number, (name, value, _) in enumerate(KEPT)])
    assert [
        (row.oo_reason, row[name].astimezone(UTC) if name == "paid" else row[name])
        for row, (name, _, _) in zip(found, KEPT, strict=True)
    ] == [(None, wanted) for _, _, wanted in KEPT]


def test_a_value_that_is_not_in_the_table_makes_its_record_invalid(spark: SparkSession) -> None:
    """No clock, no locale and no rounding decides, at the top and nested; the column and the value are in the
    reason."""
    given = [(name, value) for name, values in INVALID.items() for value in values]
    found = records(spark, [line(number, *one) for number, one in enumerate(given)])
    said = [(name, str(row.oo_reason)) for row, (name, _) in zip(found, given, strict=True)]
    assert [
        (name, reason) for name, reason in said if not reason.startswith(f"column {name} is no {TYPES[name]}: ")
    ] == []


def test_a_time_of_day_is_no_event_time_however_it_is_written(spark: SparkSession) -> None:
    """As a second key, by an escape, behind a control character, in a column of strings."""
    odd = ['"at":"2026-03-01","at":"12:00"', '"\\u0061t":"12:00"', '"at":"\\t12:00"', '"at":"\\u00312:00"']
    for kind in ("timestamp", "string"):
        found = records(
            spark, [f'{{"id":"{number}",{one}}}' for number, one in enumerate(odd)], schema=f"id string, at {kind}"
        )
        assert all(row.oo_reason for row in found)
    assert (
        records(spark, ["a,\x0112:00", "b,12:00"], schema="id string, at timestamp", source=Files(format="csv"))[
            0
        ].oo_reason
        is not None
    )


def test_the_id_of_a_number_is_that_of_its_characters(spark: SparkSession) -> None:
    """Two numbers that a double can't tell apart are two records, in JSON as in CSV."""
    ids = ["1767225600.123456781", "1767225600.123456782", "1e400", "1e999", "1.10", "1.1"]
    schema = "id string, at timestamp"
    of_json = records(spark, [f'{{"id":{one},"at":1767225600}}' for one in ids], schema=schema)
    of_csv = records(spark, [f"{one},2026-01-01" for one in ids], schema=schema, source=Files(format="csv"))
    assert {(row.id, row.oo_high, row.oo_low) for row in of_json} == {
        (row.id, row.oo_high, row.oo_low) for row in of_csv
    }
    assert {row.id for row in of_json} == {*ids}


def test_an_unknown_field_within_a_struct_is_kept(spark: SparkSession) -> None:
    """At each depth; a record without any has no oo_unknown."""
    schema = "id string, at timestamp, part struct<a:array<struct<b:int>>>"
    values = ['{"a":[{"b":1}]}', '{"a":[{"b":1},{"c":2}]}', '{"x":1}', "null"]
    lines = [f'{{"id":"{number}","at":1767225600,"part":{value}}}' for number, value in enumerate(values)]
    assert [row.oo_unknown for row in records(spark, lines, schema=schema)] == [None, lines[1], lines[2], None]


def test_a_column_has_another_name_in_the_source(spark: SparkSession, tmp_path: Path) -> None:
    """In lines that the fast path reads and in others, below a header of CSV, in files of columns; what has the
    column's own name there is unknown."""
    schema, aliases, noon = (
        "id string, at timestamp, total double",
        {"id": "Order No.", "total": "x=1, (net) [EUR]"},
        datetime(2026, 3, 1, 12, tzinfo=UTC),
    )
    total = aliases["total"]
    lines = [f'{{"Order No.":"{number}","at":"2026-03-01T12:00:00Z","{total}":{number}.5}}' for number in range(20)]
    lines += [
        f'{{"Order No.":"2\\u0030","at":"2026-03-01T12:00:00Z","{total}":20.5}}',
        lines[0].replace("No.", "No").replace('"0"', '"x"'),
        lines[1].replace("Order No.", "id"),
    ]
    found = records(spark, lines, schema=schema, aliases=aliases)
    assert {(row.id, row.total, row.oo_unknown) for row in found if not row.oo_reason} == {
        (str(number), number + 0.5, None) for number in range(21)
    }
    assert [row.oo_reason for row in found if row.oo_reason] == ["the record id column id is missing or null"] * 2
    (tmp_path / "a.csv").write_text(f'Order No.,at,"{total}"\n7,2026-03-01T12:00:00Z,1.5\n')
    parquet.write_table(
        pa.table({"Order No.": ["7"], "at": [noon], total: [1.5], "total": [2.5]}), tmp_path / "a.parquet"
    )
    for source in (Files(format="csv", header=True), Files(format="parquet")):
        declared = replace(SHOP, schema=schema, aliases=aliases, source=source)
        folder = tmp_path / source.format
        folder.mkdir()
        (tmp_path / f"a.{source.format}").rename(folder / f"a.{source.format}")
        files = list(new_files(folder, {}, discovery.layout(declared)))
        read, count = source_files.lines(spark, declared, files, source_files.unreadable(declared, files))
        assert [
            (row.id, row.total, row.oo_reason, row.oo_unknown) for row in records_of(spark, read, declared, NOW)
        ] == [("7", 1.5, None, "total" if source.format == "parquet" else None)]
        assert count == 1


def test_a_time_has_the_form_that_the_declaration_names(spark: SparkSession) -> None:
    """In lines that become blocks and in others, and in CSV; the event time and a field within too."""
    schema = "id string, at timestamp, born date, o struct<sent:timestamp>"
    formats = {"at": "epoch_ms", "born": "%d/%m/%Y", "o.sent": "%d/%b/%Y:%H:%M %z"}
    times = [*(f"{1772366400000 + number}" for number in range(20)), '"2026-03-01T12:00:00.020Z"', '"1772366400021"']
    lines = [
        f'{{"id":"{number:02}","at":{time},"born":"1/{number % 3 + 1}/1999","o":{{"sent":"01/Mar/2026:13:00 +0100"}}}}'
        for number, time in enumerate(times)
    ]
    lines += [
        lines[0].replace('"00"', '"x"').replace("1/1/1999", "13/13/1999"),
        lines[0].replace('"00"', '"y"').replace("1772366400000", "1.0e30"),
    ]
    noon = datetime(2026, 3, 1, 12)
    for part in (lines, [one.replace('"id":', '"id"\t:') for one in lines]):
        found = records(spark, part, schema=schema, formats=formats)
        kept = {(row.id, row.at, row.oo_event_time, row.born, row.o.sent) for row in found if not row.oo_reason}
        assert kept == {
            (
                f"{at:02}",
                noon + timedelta(milliseconds=at),
                noon + timedelta(milliseconds=at),
                date(1999, at % 3 + 1, 1),
                noon,
            )
            for at in range(22)
        }
        assert sorted(row.oo_reason.split(":")[0] for row in found if row.oo_reason) == [
            "column at is no timestamp",
            "column born is no date",
        ]
    declared = {
        "schema": "id string, at timestamp, born date",
        "formats": {"at": "epoch_ms", "born": "%m/%d/%Y"},
        "source": Files(format="csv"),
    }
    found = records(spark, ["a,1772366400000,1/2/1999", 'b,"1772366400000","01/02/1999"'], **declared)
    assert [(row.id, row.at, row.born) for row in found] == [
        ("a", noon, date(1999, 1, 2)),
        ("b", noon, date(1999, 1, 2)),
    ]


OF_A_SOURCE = "id string, at timestamp, t string, n bigint, day date"
REFUSED = {
    "cast(t as timestamp)": "reads a string", "to_timestamp(t)": "reads a string", "to_date(t)": "reads a string", "try_cast(t as date)": "reads a string", "timestamp(t)": "reads a string",
    "date_trunc('day', cast(concat(t, 'Z') as timestamp_ntz))": "reads a string", "if(at > t, at, null)": "reads a string", "from_json(t, 'x timestamp').x": "reads a string",
    "from_csv(t, 'x array<date>').x[0]": "reads a string", "transform(array(t), x -> cast(x as timestamp))[0]": "reads a string", "current_timestamp()": "asks the clock", "now()": "asks the clock",
    "date_sub(current_date(), 1)": "asks the clock", "timestamp_millis(cast(rand() * n as bigint))": "not deterministic", "localtimestamp()": "asks the clock",
}  # fmt: skip
RIGHT = [
    "at",
    "timestamp_millis(n)",
    "to_timestamp(t, 'dd/MM/yyyy HH:mm')",
    "cast(n as timestamp)",
    "timestamp'2026-03-01'",
    "cast(day as timestamp)",
    "cast(cast(at as string) is null as bigint)",
    "cast(t as bigint)",
]


def test_no_column_of_a_source_is_made_by_the_clock(spark: SparkSession) -> None:
    """A cast that reads a string as a time is refused too, however it is written: "10:15" is one of today then."""

    def check(made: str) -> None:
        columns, kind = (
            {"x": made},
            spark.createDataFrame([], session.schema_of(OF_A_SOURCE))
            .selectExpr(f"{made} AS x")
            .schema["x"]
            .dataType.simpleString(),
        )
        source = Input(source=Files(inbox="/a"), schema=OF_A_SOURCE, columns=columns)
        declared = Pipeline(
            name="shop",
            sources={"a": source, "b": Files(inbox="/b")},
            id_space="shared",
            schema=f"id string, at timestamp, x {kind}",
            record_id="id",
            event_time="at",
            outputs=SHOP.outputs[:1],
        )
        parse.check_mapping(spark, declared.of_source("a"))

    for made in RIGHT:
        check(made)
    for made, why in REFUSED.items():
        with pytest.raises(Refused, match=why):
            check(made)


@pytest.mark.parametrize("kind", ["string", "timestamp"])
@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_an_event_time_that_is_no_time_is_not_called_missing(
    spark: SparkSession, tmp_path: Path, form: str, kind: str
) -> None:
    """In each format: the reason shows the value, and only a null is missing."""
    if form == "parquet" and kind == "timestamp":
        pytest.skip("a file whose column is a string is refused as a whole")
    told, path = {"a": "01.03.2026 10:05", "b": None}, tmp_path / f"a.{form}"
    if form == "parquet":
        parquet.write_table(pa.table({"id": [*told], "at": [*told.values()]}), path)
    elif form == "csv":
        path.write_text("".join(f"{name},{at or ''}\n" for name, at in told.items()))
    else:
        path.write_text("".join(json.dumps({"id": name, "at": at}) + "\n" for name, at in told.items()))
    declared = replace(SHOP, schema=f"id string, at {kind}", source=Files(format=form))  # type: ignore[arg-type]
    files = list(new_files(tmp_path, {}, discovery.layout(declared)))
    read, _ = source_files.lines(spark, declared, files, source_files.unreadable(declared, files))

    found = {row.oo_reason for row in records_of(spark, read, declared, NOW)}

    no_time = (
        "the event time at is no timestamp: 01.03.2026 10:05"
        if kind == "string"
        else "column at is no timestamp: 01.03.2026 10:05 (declare its form: formats={'at': '%d.%m.%Y %H:%M'})"
    )
    assert found == {no_time, "the event time at is missing or null"}
