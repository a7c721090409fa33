"""The pipeline `shop` in at-least-once mode: every kind of sink that the mode allows."""

from __future__ import annotations

from dataclasses import replace

from onlyonce.api.pipeline import Output, Postgres
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY

LOOSE = replace(
    SHOP,
    mode="at_least_once",
    outputs=(
        *SHOP.outputs[:2],
        Output(name="each", transform="tests.support.shop_transforms:each", sink=Postgres(table="results.each")),
        Output(
            name="now", transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY, panes="early",
            sink=Postgres(table="results.now", write="upsert", keys=("window_start", "window_end", "shop")),
        ),
    ),
)  # fmt: skip

PIPELINES = [LOOSE]
