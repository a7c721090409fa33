"""The test pipeline with what a backfill, a reprocessing, an erasure and a finalize work on, where inbox and data are in an
object store: files by windows, and single records.

STORED_DAYS_AHEAD: what is dated later than so many days from now is invalid.
"""

from __future__ import annotations

from datetime import timedelta

from onlyonce.api.pipeline import Delta, Files, FileSink, Output, Pipeline
from onlyonce.environment import variable
from tests.support.shop import MINUTE, WATERMARK_DELAY

SHOP = Pipeline(
    name="shop",
    source=Files(inbox=variable("STORED_INBOX"), max_files_a_batch=1),
    schema="id string, shop string, at timestamp, cents long, weight double",
    record_id=("id",),
    event_time="at",
    max_ahead=timedelta(days=float(variable("STORED_DAYS_AHEAD") or 1)),
    outputs=(
        Output(
            name="filed", transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY,
            sink=FileSink(path=variable("STORED_FILES"), shards=1),
        ),
        Output(name="each", transform="tests.support.shop_transforms:each", sink=Delta()),
    ),
)  # fmt: skip

PIPELINES = [SHOP]
