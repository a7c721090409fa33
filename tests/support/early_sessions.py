"""Sessions with a pane in each batch, in each sink that can replace the rows of all open sessions."""

from __future__ import annotations

from dataclasses import replace

from tests.support.open_sessions import SHOP

EARLY = replace(SHOP, outputs=SHOP.outputs[:3])
PIPELINES = [EARLY]
