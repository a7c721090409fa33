"""The functions, and a catalog, of the outputs that `tests/spark/run/test_broken_outputs.py` breaks."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


def ids(sales: DataFrame) -> DataFrame:
    """Return the ids of the records."""
    return sales.select("id")


def found(sales: DataFrame, cities: DataFrame) -> DataFrame:
    """Return the ids of records whose shop is in a lookup."""
    return sales.join(cities, "shop").select("id")


class OwnCatalog:
    """A catalog of a team's own, whose error onlyonce does not know."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("the catalog is broken")
