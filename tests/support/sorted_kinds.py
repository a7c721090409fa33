"""Several results of outputs of other kinds: sessions, records one by one with windows, staged, and files."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from onlyonce.api.pipeline import Delta, FileSink, Output
from onlyonce.core.windows import Session
from tests.support.sorted_shop import MINUTE, SHOP, WATERMARK_DELAY

FUNCTIONS = "tests.support.sorted_transforms"

PIPELINES = [
    replace(
        SHOP,
        outputs=(
            Output(
                name="visits", transform=f"{FUNCTIONS}:visits", window=Session(timedelta(seconds=20)), watermark_delay=WATERMARK_DELAY, sink=Delta()
            ),
            Output(name="odd_visits", from_output="visits", sink=Delta()),
            Output(
                name="staged", transform=f"{FUNCTIONS}:staged", window=MINUTE, watermark_delay=WATERMARK_DELAY, stable_input=True, sink=Delta()
            ),
            Output(name="odd_staged", from_output="staged", sink=Delta()),
            Output(
                name="files", transform=f"{FUNCTIONS}:files", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=FileSink(shards=2)
            ),
            Output(name="odd_files", from_output="files", sink=FileSink(shards=1)),
        ),
    )
]  # fmt: skip
