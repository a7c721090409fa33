"""Every kind of window over input with late rows, for backfills."""

from __future__ import annotations

from datetime import timedelta

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed, Session, Sliding
from tests.support.shop import MINUTE, WATERMARK_DELAY

ME = "tests.support.kinds"
KEYS = ("window_start", "window_end", "shop")

PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        outputs=(
            Output(
                name="early", transform=f"{ME}:by_window", window=MINUTE, watermark_delay=WATERMARK_DELAY, panes="early",
                sink=Delta(write="upsert", keys=KEYS),
            ),
            Output(
                name="elsewhere", transform=f"{ME}:by_window", window=MINUTE, watermark_delay=WATERMARK_DELAY, late="backfill",
                sink=Postgres(table="results.elsewhere", write="upsert", keys=KEYS, connection="TEST_OTHER_DATABASE"),
            ),
            Output(
                name="sliding", transform=f"{ME}:by_window", sink=Delta(), watermark_delay=WATERMARK_DELAY,
                window=Sliding(timedelta(minutes=2), timedelta(minutes=1)),
            ),
            Output(name="session", transform=f"{ME}:by_window", window=Session(timedelta(seconds=20)), watermark_delay=WATERMARK_DELAY, sink=Delta()),
            Output(
                name="raw", transform=f"{ME}:in_window", window=Fixed(timedelta(hours=1)), watermark_delay=WATERMARK_DELAY,
                sink=Postgres(table="results.raw"), late="backfill",
            ),
            Output(
                name="last", transform=f"{ME}:by_window", window=MINUTE, watermark_delay=WATERMARK_DELAY, on_backfill="skip",
                sink=Postgres(table="results.last", write="increment", keys=("shop",)),
            ),
            Output(
                name="corrected", transform=f"{ME}:by_window", window=MINUTE, watermark_delay=WATERMARK_DELAY, on_backfill="correct",
                sink=Postgres(table="results.corrected", write="increment", keys=("shop",)),
            ),
        ),
    )
]  # fmt: skip
