"""The test pipeline with data in an object store: the newest of each key with deletes, and windows into which late
records are folded."""

from __future__ import annotations

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from tests.support.shop import MINUTE, WATERMARK_DELAY

SHOP = Pipeline(
    name="shop",
    source=Files(max_files_a_batch=1),
    schema="id string, shop string, at timestamp, cents long, weight double",
    record_id=("id",),
    event_time="at",
    outputs=(
        Output(name="newest", transform="tests.support.shop_transforms:newest", sink=Delta(write="upsert", keys="shop", sequence_by=("at", "id"), delete_when="gone")),
        Output(
            name="all_per_shop", transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY, late="backfill",
            sink=Delta(write="upsert", keys=("window_start", "shop")),
        ),
    ),
)  # fmt: skip

PIPELINES = [SHOP]
