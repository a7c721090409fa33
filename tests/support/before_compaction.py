"""A pipeline with an output of each way to read: with windows, and record by record."""

from __future__ import annotations

from dataclasses import replace

from onlyonce.api.pipeline import Delta, Output, Postgres
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY

T = "tests.support.shop_transforms:"


def outputs(suffix: str) -> tuple[Output, ...]:
    """One of each, under names of their own."""
    return (
        Output(
            name=f"per_shop{suffix}",
            transform=f"{T}per_shop",
            window=MINUTE,
            watermark_delay=WATERMARK_DELAY,
            sink=Delta(),
        ),
        Output(
            name=f"each{suffix}", transform=f"{T}each", sink=Postgres(table=f"results.each{suffix}", write="append")
        ),
    )


PIPELINES = [replace(SHOP, outputs=outputs(""))]
