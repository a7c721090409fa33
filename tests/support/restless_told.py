"""The pipeline `restless`, with stable input declared."""

from __future__ import annotations

from tests.support.restless import picked

PIPELINES = [picked("restless", "unseen", stable=True)]
