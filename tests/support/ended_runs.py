"""Runs of the tests' own process that end at a fail-point, as one whose driver is lost does."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import pytest

from onlyonce.failpoints import FailPoint
from onlyonce.outputs import in_driver, outputs
from tests.support.platform import Platform

OF_OUTPUTS = (outputs, in_driver)
"""The modules that pass an output's fail-points."""


def ended_at(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, point: str, nth: int, *arguments: str, pipeline: str = "shop", modules: Sequence[ModuleType] = OF_OUTPUTS
) -> bool:
    """Run until that pass of a fail-point, or to the end; gives whether it came there."""
    passed: list[str] = []

    def passing(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(name) == nth:
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        for module in modules:
            armed.setattr(module, "passing", passing)
        try:
            platform.run(pipeline, *arguments)
        except FailPoint:
            return True
    return False
