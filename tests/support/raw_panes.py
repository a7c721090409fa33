"""Records as they are, in panes of open windows: a pane has more rows than its batch has records."""

from __future__ import annotations

from pyspark.sql import DataFrame

from onlyonce import AfterRecords, Output, Postgres
from tests.support.file_panes import WINDOW, shop


def each(sales: DataFrame) -> DataFrame:
    """Each sale as it is."""
    return sales.select("oo_window", "id", "shop")


PIPELINES = [
    shop(
        Output(
            name="each", transform="tests.support.raw_panes:each", panes=AfterRecords(2), pane_column="pane",
            sink=Postgres(table="results.each"), **WINDOW,  # type: ignore[arg-type]
        )
    )
]  # fmt: skip
