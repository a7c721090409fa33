"""The pipeline `shop` by position: a record is its place, so each delivery is one."""

from __future__ import annotations

from dataclasses import replace

from tests.support.shop import SHOP

PLACED = replace(SHOP, record_id=())

PIPELINES = [PLACED]
