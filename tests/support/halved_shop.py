"""The test pipeline with each batch in two partitions: on two machines each has one."""

from __future__ import annotations

from dataclasses import replace

from tests.support import shop

PIPELINES = [replace(shop.SHOP, partitions=2)]
