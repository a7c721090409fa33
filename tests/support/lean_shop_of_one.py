"""`lean_shop` with its first output only."""

from __future__ import annotations

from dataclasses import replace

from tests.support.lean_shop import LEAN

PIPELINES = [replace(LEAN, outputs=LEAN.outputs[:1])]
