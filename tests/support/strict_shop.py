"""The same pipeline as `loose_shop`, switched to exactly once."""

from __future__ import annotations

from dataclasses import replace

from tests.support.loose_shop import LOOSE

PIPELINES = [replace(LOOSE, mode="exactly_once")]
