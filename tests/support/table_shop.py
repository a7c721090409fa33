"""The pipeline `shop` over a Delta table, by place; and one that reads the table of its output, and one that reads it
beside files."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from onlyonce.api.pipeline import Delta, DeltaSource, Files, Input, Output, Pipeline
from onlyonce.core.windows import Fixed
from tests.support.shop import SHOP

TABLE = "raw/sales"

SHOP_OF_TABLE = replace(SHOP, record_id=(), source=DeltaSource(path=TABLE, max_files_a_batch=7))

HOURLY = Pipeline(
    name="hourly",
    source=DeltaSource(path="shop/per_shop"),
    schema="window_start timestamp, window_end timestamp, shop string, sales long, cents long, weight double, "
    "window_date date",
    record_id=(),
    event_time="window_start",
    outputs=Output(
        name="sums", transform="tests.support.table_transforms:sums", window=Fixed(timedelta(hours=1)), sink=Delta()
    ),
)

BOTH = replace(
    SHOP, name="both", record_id=(), source=Pipeline.source,
    sources={
        "till": Files(),
        "table": Input(
            source=DeltaSource(path=TABLE), schema="id string, shop string, at timestamp, cents long", columns={"cents": "cents + 1", "weight": "0D"},
        ),
    },
    outputs=[Output(name="each", transform="tests.support.shop_transforms:each", sink=Delta())],
)  # fmt: skip

PIPELINES = [SHOP_OF_TABLE, HOURLY, BOTH]
