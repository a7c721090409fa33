"""Three outputs of which two begin together or not at all: each waits for the other where it has its turn."""

from __future__ import annotations

import threading
from typing import Any

from pyspark.sql import DataFrame

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from tests.support.shop import MINUTE, WATERMARK_DELAY
from tests.support.shop_transforms import per_shop

PATIENCE_SECONDS = 60
BOTH = threading.Barrier(2)


def together(sales: DataFrame) -> DataFrame:
    """As `per_shop`, once the other output is here too."""
    if threading.current_thread() is not threading.main_thread():  # the check before a run asks each in its turn
        BOTH.wait(PATIENCE_SECONDS)
    return per_shop(sales)


ME = "tests.support.side_by_side"
UPSERT = Delta(write="upsert", keys=("window_start", "shop"))
OPTIONS: dict[str, Any] = {"window": MINUTE, "watermark_delay": WATERMARK_DELAY}

PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        outputs=(
            Output(name="one", transform=f"{ME}:together", sink=UPSERT, **OPTIONS),
            Output(name="other", transform=f"{ME}:together", sink=UPSERT, **OPTIONS),
            Output(
                name="third", transform="tests.support.shop_transforms:per_shop",
                sink=Postgres(table="results.third", write="append"), **OPTIONS,
            ),
        ),
    )
]  # fmt: skip
