"""The pipeline `shop` over files of CSV: a record is the byte of its file at which it begins."""

from __future__ import annotations

from dataclasses import replace

from onlyonce.api.pipeline import Files
from tests.support.shop import SHOP

IN_CSV = replace(SHOP, record_id=(), source=Files(format="csv", header=True), outputs=SHOP.outputs[:1])

PIPELINES = [IN_CSV]
