"""`lean_shop` with its first output only, and ids by position."""

from __future__ import annotations

from dataclasses import replace

from tests.support.lean_shop import LEAN

PIPELINES = [replace(LEAN, record_id=(), outputs=LEAN.outputs[:1])]
