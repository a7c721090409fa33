"""The pipelines `restless` and `remade`, with stable input declared."""

from __future__ import annotations

from tests.support.restless import picked, remade

PIPELINES = [picked("restless", "unseen", stable=True), remade(stable=True)]
