"""The kinds of tables and folders that the platform claims, counts and drops: those that ship, and those of packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onlyonce.core import ownership
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import TARGETS, Place
from onlyonce.sinks import target_kinds
from onlyonce.sinks.target_kinds import Functions
from tests.support import added_package

FUNCTIONS = [name for name in vars(Functions) if not name.startswith("_")]


@pytest.fixture(autouse=True)
def asked_again() -> Iterator[None]:
    """Entry points are read once in a process."""
    ownership.target_kinds.cache_clear()
    yield
    ownership.target_kinds.cache_clear()


@pytest.mark.parametrize("kind", TARGETS)
def test_each_kind_has_each_function(kind: str) -> None:
    """A module is loaded by its path, so no type checker compares it with what is asked of it."""
    module = target_kinds.functions(Place(f"{kind}:a:b.c"))
    assert [name for name in FUNCTIONS if not callable(getattr(module, name, None))] == []


def test_a_package_adds_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables are found in the log's list of targets, and its module is asked."""
    added_package.install(tmp_path / "site", monkeypatch)

    assert ownership.written("shop", [{"outputs": {"a": {"target": "shelf:full"}}}]) == ["shelf:full"]
    assert target_kinds.functions(Place("shelf:full")).is_there(Place("shelf:full"))


def test_a_kind_whose_package_is_gone_is_refused() -> None:
    """A drop would leave its table behind without a word. What was sent outside is left out."""
    with pytest.raises(Refused, match="shelf:full is of a kind that this installation does not know"):
        ownership.written("shop", [{"outputs": {"a": {"target": "shelf:full"}}}])
    assert ownership.written("shop", [{"outputs": {"a": {"target": "own:m:T:x"}}}]) == []
