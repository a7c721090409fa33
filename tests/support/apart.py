"""Three outputs of one pipeline, of which the first and the last fail as long as a test wants: by TEST_FIRST and
TEST_LAST."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.core import errors
from tests.support.shop import MINUTE, WATERMARK_DELAY
from tests.support.shop_transforms import per_shop


def first(sales: DataFrame) -> DataFrame:
    """As `per_shop`, unless it is to fail."""
    return _unless("TEST_FIRST", sales)


def last(sales: DataFrame) -> DataFrame:
    """The same."""
    return _unless("TEST_LAST", sales)


def _unless(variable: str, sales: DataFrame) -> DataFrame:
    if kind := os.environ.get(variable):
        raise getattr(errors, kind)(f"{variable} fails", hint="fix it")
    return per_shop(sales)


ME = "tests.support.apart"
OPTIONS: dict[str, Any] = {"window": MINUTE, "watermark_delay": WATERMARK_DELAY, "sink": Delta()}

PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        idle_after=timedelta(0),
        outputs=(
            Output(name="first", transform=f"{ME}:first", **OPTIONS),
            Output(name="per_shop", transform="tests.support.shop_transforms:per_shop", late="backfill", **OPTIONS),
            Output(name="last", transform=f"{ME}:last", **OPTIONS),
        ),
    )
]
