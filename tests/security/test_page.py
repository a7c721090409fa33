"""The page of security states what this folder tests, and this folder tests what the page states."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator

import pytest

import tests.security
from onlyonce.settings import ROOT
from tests.security import statements


def cases() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield each test of this folder by its name."""
    for module in pkgutil.iter_modules(tests.security.__path__, "tests.security."):
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            if name.startswith("test_") and callable(value) and value.__module__ == module.name != __name__:
                yield f"{module.name}.{name}", value


def stated() -> list[str]:
    """Return the sentences that the cases of this folder state."""
    return [sentence for _, case in cases() for sentence in case.stated]  # type: ignore[attr-defined]


def test_each_case_is_a_sentence_of_the_page() -> None:
    """A case without a sentence, or with one that the page no longer has, is named."""
    found = dict(cases())

    assert len(found) > 10
    assert [name for name, case in found.items() if not getattr(case, "stated", ())] == []
    assert statements.missing((*stated(), *statements.ELSEWHERE)) == []
    assert [
        begin for begin in statements.NO_CASE if not any(one.startswith(begin) for one in statements.of_page())
    ] == []


def test_each_sentence_of_the_page_has_its_case() -> None:
    """In this folder or in another one; a sentence that promises nothing is named as such.

    A new sentence is neither.
    """
    assert statements.unproved(stated()) == []
    assert statements.unproved(stated()[1:]) != []


@pytest.mark.parametrize("test", sorted({*statements.ELSEWHERE.values()}))
def test_a_case_of_another_folder_is_there(test: str) -> None:
    """By its file and name."""
    file, _, name = test.partition("::")

    assert f"def {name}(" in (ROOT / file).read_text()
