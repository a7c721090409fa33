"""A pipeline whose functions give several results: by window, with one more output made from a result, and without
windows."""

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
        Output(name="sales", transform="tests.support.sorted_transforms:by_window", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Delta()),
        Output(name="refunds", from_output="sales", sink=Postgres(table="results.refunds", write="append")),
        Output(
            name="total", transform="tests.support.sorted_transforms:total", from_output="sales",
            sink=Postgres(table="results.total", write="upsert", keys=("window_start",)),
        ),
        Output(name="paid", transform="tests.support.sorted_transforms:one_by_one", sink=Postgres(table="results.paid", write="append")),
        Output(name="paid_back", from_output="paid", sink=Delta()),
    ),
)  # fmt: skip

PIPELINES = [SHOP]
