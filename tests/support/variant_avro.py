"""The two pipelines that ship over the source avro."""

from __future__ import annotations

from tests.support.source_variants import declared

PIPELINES = declared("avro")
