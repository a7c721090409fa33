"""A pipeline whose windows are computed again once three late records wait, or one of them for an hour."""

from __future__ import annotations

from datetime import timedelta

from onlyonce import AfterRecords, AfterTime, Delta, Files, Fixed, Output, Pipeline

SHOP = Pipeline(
    name="shop",
    source=Files(max_files_a_batch=1),
    schema="id string, shop string, at timestamp, cents long, weight double",
    record_id=("id",),
    event_time="at",
    outputs=Output(
        name="rare", transform="tests.support.shop_transforms:per_shop", window=Fixed(timedelta(minutes=5)),
        late=AfterRecords(3) | AfterTime(timedelta(hours=1)), sink=Delta(),
    ),
)  # fmt: skip

PIPELINES = [SHOP]
