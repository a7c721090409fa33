"""The pipeline of `late_shop` once its late records wait for a person."""

from __future__ import annotations

from dataclasses import replace

from tests.support.late_shop import SHOP

PIPELINES = [replace(SHOP, outputs=replace(SHOP.outputs[0], late="keep"))]
