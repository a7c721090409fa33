"""`lean_shop` in at-least-once mode, with its first output only."""

from __future__ import annotations

from dataclasses import replace

from tests.support.lean_shop import LEAN

PIPELINES = [replace(LEAN, mode="at_least_once", outputs=LEAN.outputs[:1])]
