"""The two pipelines that ship over the source custom."""

from __future__ import annotations

from tests.support.source_variants import declared

PIPELINES = declared("custom")
