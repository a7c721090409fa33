"""A pipeline that closes its windows as soon as its source is silent."""

from __future__ import annotations

from datetime import timedelta

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from tests.support.shop import MINUTE, WATERMARK_DELAY

PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        idle_after=timedelta(0),
        outputs=(
            Output(name="per_shop", transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Delta()),
        ),
    )
]  # fmt: skip
