"""The test pipeline with a Delta table that has a name in Spark's own catalog."""

from __future__ import annotations

from dataclasses import replace

from onlyonce.api.pipeline import Delta, Output
from tests.support.shop import SHOP

PIPELINES = [
    replace(
        SHOP,
        outputs=(
            Output(
                name="each",
                transform="tests.support.shop_transforms:each",
                sink=Delta(table="spark_catalog.sales.each"),
            ),
        ),
    )
]
