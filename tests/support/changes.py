"""The transforms of a pipeline that changes, and the batch computation of what must come of it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "id string, shop string, at timestamp, cents long, weight double"
HEADER = """
from datetime import timedelta
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed
MINUTE = timedelta(minutes=1)
"""


def sums(sales: DataFrame) -> DataFrame:
    """Cents and sales of each shop."""
    return sales.groupBy("oo_window", "shop").agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("sales"))


def doubled(sales: DataFrame) -> DataFrame:
    """The same columns, of another meaning."""
    return sales.groupBy("oo_window", "shop").agg(
        F.sum(F.col("cents") * 2).alias("cents"), F.count(F.lit(1)).alias("sales")
    )


def coloured(sales: DataFrame) -> DataFrame:
    """One more column, made from one more column of the input."""
    return sales.groupBy("oo_window", "shop").agg(
        F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("sales"), F.count("colour").alias("coloured")
    )


def small(sales: DataFrame) -> DataFrame:
    """Only sales of few cents: a window may have none."""
    return sums(small_records(sales))


def small_records(sales: DataFrame) -> DataFrame:
    """These sales, with all their columns."""
    return sales.where("cents < 6")


def up_to_a_dozen(sales: DataFrame) -> DataFrame:
    """Only sales of at most eleven cents."""
    return sums(sales.where("cents < 12"))


def rows(sales: DataFrame) -> DataFrame:
    """Each record as it was kept."""
    return sales.select("id", "shop", "cents", "weight", F.unix_micros("at").alias("at"))


def in_windows(sales: DataFrame) -> DataFrame:
    """Each record, in its window."""
    return sales.select("oo_window", "id", "cents")


def declare(folder: Path, output: str, schema: str = SCHEMA, more: str = "") -> Path:
    """A file that declares the pipeline `shop` with one output, given as Python."""
    path = folder / "declared.py"
    source = "source=Files(max_files_a_batch=1), record_id=('id',), event_time='at'"
    path.write_text(
        f"{HEADER}PIPELINES = [Pipeline(name='shop', schema='{schema}', {source}, outputs=({output},), {more})]\n"
    )
    return path


def output(function: str, options: str = "window=Fixed(MINUTE), watermark_delay=MINUTE, sink=Delta()") -> str:
    """The one output, as Python."""
    return f"Output(name='sums', transform='tests.support.changes:{function}', {options})"


def sale(number: int, **more: Any) -> dict[str, Any]:
    """One record; one comes every ten seconds."""
    at = (START + timedelta(seconds=10 * number)).isoformat().replace("+00:00", "Z")
    return {"id": f"s{number}", "shop": f"shop-{number % 2}", "at": at, "cents": number, "weight": number / 3, **more}


def wanted(sales: list[dict[str, Any]], minutes: int, value: Any) -> Counter[Any]:
    """(window start, shop, value of its records) as a plain batch computation gives it."""
    size = timedelta(minutes=minutes)
    groups: dict[Any, list[dict[str, Any]]] = {}
    for one in sales:
        start = START + (datetime.fromisoformat(one["at"]) - START) // size * size
        groups.setdefault((start, one["shop"]), []).append(one)
    return Counter((start, shop, *value(of_group)) for (start, shop), of_group in groups.items())
