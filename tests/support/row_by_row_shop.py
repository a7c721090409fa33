"""The pipeline `shop`, whose functions give a row for each record: to tables with and without windows, in Delta and in
PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from onlyonce.api.pipeline import Delta, Output, Postgres
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY


def dated(sales: DataFrame) -> DataFrame:
    """Each sale in its window, with all kinds of columns of the pipeline; one shop has no name."""
    return sales.selectExpr("oo_window", "id", "nullif(shop, 'shop-1') AS shop", "at", "cents", "weight")


_HERE = "tests.support.row_by_row_shop:dated"

PIPELINES = [
    replace(
        SHOP,
        outputs=(
            Output(name="plain", transform="tests.support.shop_transforms:each", sink=Delta()),
            Output(name="dated", transform=_HERE, window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Delta()),
            Output(name="rows", transform=_HERE, window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Postgres(table="results.rows")),
            Output(
                name="kept", transform="tests.support.shop_transforms:each",
                sink=Postgres(table="results.kept", write="upsert", keys=("id",)),
            ),
        ),
    )
]  # fmt: skip
