"""The same, and late rows are included."""

from __future__ import annotations

from dataclasses import replace

from tests.support import quiet

PIPELINES = [
    replace(one, outputs=tuple(replace(output, late="backfill") for output in one.outputs)) for one in quiet.PIPELINES
]
