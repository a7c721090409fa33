"""The two halves of a suite are all of it, and none is empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import halves
from tests.support.platform import ROOT

FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


class _Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


class _Hooks:
    """What pytest is told of the tests that do not run."""

    def __init__(self) -> None:
        self.hook, self.left_out = self, list[Any]()

    def pytest_deselected(self, items: list[Any]) -> None:
        """Called by the code under test."""
        self.left_out += items


def test_each_file_is_in_one_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what a half leaves out is reported to pytest, which counts it."""
    found: list[str] = []
    for half in ("0", "1"):
        monkeypatch.setenv(halves.VARIABLE, half)
        hooks, items = _Hooks(), [_Item(f"{name}::test_one") for name in FILES]
        halves.keep(hooks, items)  # type: ignore[arg-type]
        assert len(items) + len(hooks.left_out) == len(FILES)
        assert len(items) > len(FILES) / 3
        found += [item.nodeid for item in items]
    assert sorted(found) == [f"{name}::test_one" for name in FILES]


def test_a_half_that_does_not_exist_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a typing error would run all, or none."""
    monkeypatch.setenv(halves.VARIABLE, "2")
    with pytest.raises(pytest.UsageError, match="it is 0 or 1"):
        halves.keep(_Hooks(), [])  # type: ignore[arg-type]


def test_ci_names_the_half_that_it_left_out() -> None:
    """In its last line."""
    script = (Path(ROOT) / ".ci/run").read_text()
    assert "make test-all HALF=$half" in script
    assert "NOT RUN: half $((1 - half)) of make test-all" in script
