"""The pipeline `shop` over an inbox that is read with the folders below it."""

from __future__ import annotations

from dataclasses import replace

from onlyonce.api.pipeline import Files
from tests.support.shop import SHOP

PIPELINES = [replace(SHOP, source=Files(recursive=True))]
