"""The strings that sinks store values as: JSON, CSV, COPY and MySQL, for each type with its extremes.

No value may be changed or merged with another.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from onlyonce.engine import encoding

pytestmark = pytest.mark.spark

CASES: dict[str, tuple[str, str, tuple[str, str | None, str | None, str | None]]] = {
    # name: type, literal of Spark SQL, as JSON, in CSV, in COPY, in MySQL
    "long": ("bigint", "-9223372036854775808L", ("-9223372036854775808", *3 * ("-9223372036854775808",))),
    "boolean": ("boolean", "true", ("true", "true", "true", "1")),
    "decimal": (
        "decimal(38,18)", "12345678901234567890.123456789012345678BD",
        ("12345678901234567890.123456789012345678", *3 * ("12345678901234567890.123456789012345678",)),
    ),
    "float": ("float", "float('0.1')", ("0.1", "0.1", "0.1", "0.10000000149011612")),
    "double": ("double", "1.7976931348623157E308D", ("1.7976931348623157E308", *3 * ("1.7976931348623157E308",))),
    "minus zero": ("double", "double('-0.0')", ("-0.0", *3 * ("-0.0",))),
    "nan": ("double", "double('NaN')", ('"NaN"', *3 * ("NaN",))),
    "infinite": ("double", "double('-Infinity')", ('"-Infinity"', *3 * ("-Infinity",))),
    "string": ("string", "'𠮷\"\\\\\\n'", ('"𠮷\\"\\\\\\n"', *3 * ('𠮷"\\\n',))),
    "date": ("date", "date'0001-01-01'", ('"0001-01-01"', *3 * ("0001-01-01",))),
    "time": (
        "timestamp", "timestamp'9999-12-31 23:59:59.999999Z'",
        ('"9999-12-31T23:59:59.999999Z"', *3 * ("9999-12-31 23:59:59.999999",)),
    ),
    "wall clock": (
        "timestamp_ntz", "timestamp_ntz'2026-03-29 02:30:00.000001'",
        ('"2026-03-29T02:30:00.000001"', *3 * ("2026-03-29 02:30:00.000001",)),
    ),
    "bytes": ("binary", "X'00ff'", ('"AP8="', "AP8=", "\\x00FF", "00FF")),
    "null": ("string", "null", ("null", None, None, None)),
    "struct": (
        "struct<at:timestamp,gone:string,none:struct<a:int>>",
        "named_struct('at', timestamp'2026-01-01 00:00:00.000001Z', 'gone', null, 'none', null)",
        4 * ('{"at":"2026-01-01T00:00:00.000001Z","gone":null,"none":null}',),
    ),
    "array": ("array<timestamp_ntz>", "array(timestamp_ntz'2026-01-01 00:00:00.000001', null)", 4 * ('["2026-01-01T00:00:00.000001",null]',)),
    "empty": ("array<int>", "array()", 4 * ("[]",)),
    "map by string": ("map<string,decimal(3,2)>", "map('a', 0.10BD, 'b', null)", 4 * ('{"a":0.10,"b":null}',)),
    "map by time": ("map<timestamp,int>", "map(timestamp'2026-01-01 00:00:00.000001Z', 1)", 4 * ('{"2026-01-01T00:00:00.000001Z":1}',)),
    "map by bytes": ("array<map<binary,int>>", "array(map(X'00ff', 1))", 4 * ('[{"AP8=":1}]',)),
    "map by date in a struct": ("struct<m:map<date,int>>", "named_struct('m', map(date'2026-01-02', 1))", 4 * ('{"m":{"2026-01-02":1}}',)),
}  # fmt: skip


def test_every_type_is_encoded_exactly(spark: SparkSession) -> None:
    """Spark alone cuts times to milliseconds, drops null fields, and writes the bytes of a key as an address in
    memory."""
    columns = [f"cast({literal} AS {kind}) AS `{name}`" for name, (kind, literal, _) in CASES.items()]
    rows = spark.sql(f"SELECT {', '.join(columns)}")
    schema = rows.schema
    ways = [
        [encoding.json_object(StructType([field])).alias(field.name) for field in schema],
        *[
            [way(field).cast("string").alias(field.name) for field in schema]
            for way in (encoding.in_csv, encoding.in_copy, encoding.in_mysql)
        ],
    ]

    found: list[Any] = [rows.select(*way).collect()[0] for way in ways]

    for name, (_, _, (as_json, *rest)) in CASES.items():
        assert [found[0][name], *(way[name] for way in found[1:])] == [f'{{"{name}":{as_json}}}', *rest], name
