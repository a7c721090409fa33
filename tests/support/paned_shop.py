"""A pipeline with panes by triggers, of fixed and of sliding windows.

The environment says after how many seconds one of `timed` is due, if no 30 records came before.
"""

from __future__ import annotations

import os
from datetime import timedelta

from onlyonce import AfterRecords, AfterTime, Delta, Files, Fixed, Output, Pipeline, Postgres, Sliding

MINUTE = timedelta(minutes=1)
KEYS = ("window_start", "shop")
HERE = "tests.support.shop_transforms"

SHOP = Pipeline(
    name="shop",
    source=Files(max_files_a_batch=1),
    schema="id string, shop string, at timestamp, cents long, weight double",
    record_id=("id",),
    event_time="at",
    outputs=(
        Output(
            name="counted", transform=f"{HERE}:per_shop", window=Fixed(5 * MINUTE), watermark_delay=MINUTE, panes=AfterRecords(7),
            sink=Postgres(table="results.counted", write="upsert", keys=KEYS),
        ),
        Output(
            name="timed", transform=f"{HERE}:per_shop", window=Sliding(4 * MINUTE, 2 * MINUTE), panes=AfterRecords(30) | AfterTime(timedelta(seconds=int(os.environ.get("PANED_SECONDS", "60")))),
            sink=Delta(write="upsert", keys=KEYS),
        ),
        Output(
            name="numbered", transform=f"{HERE}:per_shop", window=Fixed(5 * MINUTE), watermark_delay=MINUTE, panes=AfterRecords(7), pane_column="pane",
            sink=Delta(),
        ),
    ),
)  # fmt: skip

PIPELINES = [SHOP]
