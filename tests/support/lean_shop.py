"""The pipeline `shop` with an output for each kind of window, and no other."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from onlyonce.api.pipeline import Delta, Output
from onlyonce.core.windows import Session, Sliding, Window
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY

PER_SHOP = "tests.support.shop_transforms:per_shop"


def output(name: str, window: Window) -> Output:
    """Sums by shop over such windows."""
    return Output(name=name, transform=PER_SHOP, window=window, watermark_delay=WATERMARK_DELAY, sink=Delta())


LEAN = replace(
    SHOP,
    outputs=(
        output("fixed", MINUTE),
        output("sliding", Sliding(timedelta(minutes=1), timedelta(seconds=30))),
        output("sessions", Session(timedelta(seconds=5))),
    ),
)

PIPELINES = [LEAN]
