"""A pipeline that keeps two days of records; with SHOP_LATER it has new outputs beside the old ones."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

from tests.support.before_compaction import outputs
from tests.support.shop import SHOP

LATER = outputs("_later") if os.environ.get("SHOP_LATER") else ()
PIPELINES = [replace(SHOP, outputs=(*outputs(""), *LATER), keep_events=timedelta(days=2))]
