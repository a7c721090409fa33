"""The one rule for the types of a table's columns, by the names that each kind of database has for them. Pure."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, DecimalType, IntegerType, LongType, StringType, StructField, StructType

from onlyonce.api.pipeline import MySQL, Output, Postgres
from onlyonce.core import column_types
from onlyonce.core.errors import Refused
from onlyonce.database.connect import Database
from onlyonce.sinks.mysql.sink_mysql import MySQLTable
from onlyonce.sinks.postgres.postgres_table import SinkTable

SCHEMA = StructType([
    StructField("n", IntegerType()), StructField("big", LongType()), StructField("price", DecimalType(10, 2)),
    StructField("note", StringType()), StructField("raw", BinaryType()),
])  # fmt: skip
NARROWER = {
    "postgres": ["n smallint", "price numeric(8,2)", "price numeric(10,1)", "note character(10)", "note month_name", "big integer"],
    "mysql": ["n smallint", "n mediumint", "n int(10) unsigned", "big bigint(20) unsigned", "price decimal(8,2)", "note char(10)", "note enum('a','b')", "note set('a')",
              "raw binary(4)"],
}  # fmt: skip
AS_WIDE = {
    "postgres": [
        "n integer",
        "price numeric(10,2)",
        "note character varying(10)",
        "note character varying",
        "raw bytea",
    ],
    "mysql": ["n int(11)", "big bigint(20)", "note varchar(10)", "note text", "raw varbinary(9)", "raw blob"],
}


def table(kind: str) -> SinkTable | MySQLTable:
    """Return the table of an output, which is not opened."""
    postgres, mysql = Postgres(table="results.kept"), MySQL(table="kept", connection="ANY")
    if kind == "postgres":
        return SinkTable(
            Database("postgresql://any"), Output(name="each", transform="a:b", sink=postgres), postgres, ""
        )
    return MySQLTable(Database("mysql://any/any"), Output(name="each", transform="a:b", sink=mysql), mysql, "")


def compare(kind: str, column: str) -> None:
    """Compare SCHEMA with a table that has one of its columns."""
    name, there = column.split(" ", 1)
    one, declared = table(kind), {field.name: field.dataType.simpleString() for field in SCHEMA.fields}
    wanted = one.wanted(SCHEMA)
    column_types.refuse_other("output each", "kept", wanted, one.as_wanted(wanted, {name: there}), declared)


@pytest.mark.parametrize(
    ("kind", "column"), [(kind, column) for kind, columns in NARROWER.items() for column in columns]
)
def test_a_narrower_type_is_refused_by_column_and_types(kind: str, column: str) -> None:
    """The column, the type that the function gives and the type of the table are named."""
    name, there = column.split(" ", 1)
    with pytest.raises(Refused) as refused:
        compare(kind, column)
    assert refused.value.what.startswith(f"output each: column {name} is {SCHEMA[name].dataType.simpleString()}")
    assert refused.value.what.endswith(f"but in kept it is {there}")


@pytest.mark.parametrize(
    ("kind", "column"), [(kind, column) for kind, columns in AS_WIDE.items() for column in columns]
)
def test_a_type_that_takes_the_same_values_passes(kind: str, column: str) -> None:
    """The values of a string that is bounded there are compared row by row."""
    compare(kind, column)


def test_a_column_is_the_same_in_capitals_and_a_new_one_passes() -> None:
    """As Delta and Iceberg compare names."""
    column_types.refuse_other("output each", "t", {"Shop": "string", "new": "int"}, {"shop": "string"})
    with pytest.raises(Refused, match="column N is bigint, but in t it is int"):
        column_types.refuse_other("output each", "t", {"N": "bigint"}, {"n": "int"})
