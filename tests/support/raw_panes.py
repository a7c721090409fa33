"""Records as they are, in panes of open windows: a pane has more rows than its batch has records."""

from __future__ import annotations

from pyspark.sql import DataFrame

from onlyonce import AfterRecords, Files, Output, Pipeline, Postgres
from tests.support.file_panes import WINDOW


def each(sales: DataFrame) -> DataFrame:
    """Each sale as it is."""
    return sales.select("oo_window", "id", "shop")


PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp",
        record_id=("id",),
        event_time="at",
        outputs=Output(
            name="each", transform="tests.support.raw_panes:each", panes=AfterRecords(2), pane_column="pane",
            sink=Postgres(table="results.each"), **WINDOW,  # type: ignore[arg-type]
        ),
    )
]  # fmt: skip
