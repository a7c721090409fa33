"""A shop whose sales are joined with a table of cities: row by row, by window, and in an output made from another.

The table changes between batches.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlalchemy import Connection

from onlyonce import Delta, Files, Fixed, Lookup, Output, Pipeline, Postgres, Session, settings
from onlyonce.database.connect import Database, run

CITIES = Lookup(name="cities", table=Delta(path="cities"), keys="shop")
MINUTE = timedelta(minutes=1)


def each(sales: DataFrame, cities: DataFrame) -> DataFrame:
    """Each sale with the city of its shop."""
    return sales.join(cities, "shop", "left").select("id", "city", "cents")


def per_city(sales: DataFrame, cities: DataFrame) -> DataFrame:
    """Cents and sales of each city."""
    joined = sales.join(cities, "shop", "left")
    return joined.groupBy("oo_window", "city").agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("sales"))


def per_shop(sales: DataFrame) -> DataFrame:
    """Sales of each shop."""
    return sales.groupBy("oo_window", "shop").agg(F.count(F.lit(1)).alias("sales"))


def named(counts: DataFrame, cities: DataFrame) -> DataFrame:
    """The same with the city of the shop."""
    return counts.join(cities, "shop", "left").select("oo_window", "shop", "city", "sales")


def write_cities(cities: dict[str, str]) -> int:
    """The table has these rows now; gives its version."""
    rows = pa.table({"shop": pa.array(list(cities), pa.string()), "city": pa.array(list(cities.values()), pa.string())})
    write_deltalake(cities_path(), rows, mode="overwrite")
    return int(DeltaTable(cities_path()).version())


def write_copied_cities(cities: dict[str, str]) -> None:
    """The same of the table in PostgreSQL; it keeps no earlier rows."""

    def write(connection: Connection) -> None:
        for statement in (
            "CREATE SCHEMA IF NOT EXISTS results",
            "CREATE TABLE IF NOT EXISTS results.cities (shop text, city text)",
            "DELETE FROM results.cities",
        ):
            connection.exec_driver_sql(statement)
        for row in cities.items():
            connection.exec_driver_sql("INSERT INTO results.cities VALUES (%s, %s)", row)

    run(Database(settings.database_url()), write)


def cities_path() -> str:
    """Where the table is."""
    return str(settings.tables_dir() / "cities")


def copied_cities() -> Lookup:
    """The same table in PostgreSQL, which the platform takes copies of: one before each batch."""
    return Lookup(name="cities", table=Postgres(table="results.cities"), keys="shop", refresh=timedelta(0))


def here(function: str) -> str:
    """One of these functions, as an output names it."""
    return f"tests.support.looks_up:{function}"


WINDOWED: dict[str, Any] = {"window": Fixed(MINUTE), "watermark_delay": MINUTE}


def shop(cities: Lookup) -> Pipeline:
    """The pipeline with its cities from there."""
    return Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp, cents long",
        record_id="id",
        event_time="at",
        outputs=[
            Output(name="each", transform=here("each"), sink=Postgres(table="results.each"), lookups=cities),
            Output(name="per_city", transform=here("per_city"), **WINDOWED, sink=Delta(), lookups=cities),
            Output(name="per_shop", transform=here("per_shop"), **WINDOWED, sink=Delta()),
            Output(name="named", transform=here("named"), from_output="per_shop", sink=Delta(), lookups=cities),
        ],
    )


VISITS = replace(
    shop(CITIES),
    name="visits",
    outputs=[
        Output(
            name="sessions", transform=here("per_city"), window=Session(MINUTE), watermark_delay=MINUTE, sink=Delta(),
            lookups=CITIES,
        )
    ],
)  # fmt: skip

PIPELINES = [shop(CITIES), VISITS]
