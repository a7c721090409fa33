"""Minutes into fives into tens, of which two days of records are kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.support import chained_shop

PIPELINES = [replace(chained_shop.PIPELINES[0], keep_events=timedelta(days=2))]
