"""The test pipeline with its sinks in a MySQL: appended windows, rows replaced by key, and records as they come."""

from __future__ import annotations

from dataclasses import replace

from onlyonce import MySQL, Output
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY

THERE = "TEST_MYSQL"

PIPELINES = [
    replace(
        SHOP,
        partitions=2,
        outputs=(
            Output(
                name="per_shop", transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY,
                sink=MySQL(table="per_shop", connection=THERE),
            ),
            Output(
                name="newest", from_output="per_shop", transform="tests.support.mysql_shop:newest",
                sink=MySQL(table="newest", connection=THERE, write="upsert", keys=["shop"]), on_backfill="resend",
            ),
            Output(name="plain", transform="tests.support.kinds:plain", sink=MySQL(table="plain", connection=THERE)),
        ),
    )
]  # fmt: skip


def newest(windows):  # type: ignore[no-untyped-def]
    """Each shop's window: the row of the latest stays."""
    return windows.select("oo_window", "shop", "cents")
