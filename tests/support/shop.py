"""A small pipeline for the tests: every kind of sink and output that has a protocol of its own."""

from __future__ import annotations

from datetime import timedelta

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed

MINUTE = Fixed(timedelta(minutes=1))
WATERMARK_DELAY = timedelta(minutes=1)

SHOP = Pipeline(
    name="shop",
    source=Files(max_files_a_batch=1),
    schema="id string, shop string, at timestamp, cents long, weight double",
    record_id=("id",),
    event_time="at",
    outputs=(
        Output(name="per_shop", transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Delta()),
        Output(
            name="total", transform="tests.support.shop_transforms:total", from_output="per_shop",
            sink=Postgres(table="results.total", write="append"),
        ),
        Output(
            name="balance", transform="tests.support.shop_transforms:balance", window=MINUTE, watermark_delay=WATERMARK_DELAY,
            sink=Postgres(table="results.balance", write="increment", keys=("shop",)),
        ),
    ),
)  # fmt: skip

PIPELINES = [SHOP]
