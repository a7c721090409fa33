"""A pipeline whose windows are days of Berlin."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from onlyonce.api.pipeline import Delta, Output
from onlyonce.core.windows import Fixed
from tests.support.shop import SHOP

DAYS = Output(
    name="days",
    transform="tests.support.shop_transforms:counted",
    sink=Delta(),
    window=Fixed(timedelta(days=1), timezone="Europe/Berlin"),
)
BERLIN_DAYS = dataclasses.replace(SHOP, name="berlin_days", outputs=(DAYS,))
PIPELINES = [BERLIN_DAYS]
