"""The pipeline `shop` over files that grow: a record is the byte of its file at which it begins."""

from __future__ import annotations

from dataclasses import replace

from onlyonce.api.pipeline import Growing
from tests.support.shop import SHOP

GROWN = replace(SHOP, record_id=(), source=Growing(max_bytes_a_batch=1 << 20))

PIPELINES = [GROWN]
