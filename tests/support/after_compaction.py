"""The same pipeline with new outputs beside the old ones."""

from __future__ import annotations

from dataclasses import replace

from tests.support.before_compaction import outputs
from tests.support.shop import SHOP

PIPELINES = [replace(SHOP, outputs=(*outputs(""), *outputs("_later")))]
