"""The page of security states what this folder tests."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator

import tests.security
from tests.security.statements import missing


def cases() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield each test of this folder by its name."""
    for module in pkgutil.iter_modules(tests.security.__path__, "tests.security."):
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            if name.startswith("test_") and callable(value) and value.__module__ == module.name != __name__:
                yield f"{module.name}.{name}", value


def test_each_case_is_a_sentence_of_the_page() -> None:
    """A case without a sentence, or with one that the page no longer has, is named."""
    found = dict(cases())

    assert len(found) > 10
    assert [name for name, case in found.items() if not getattr(case, "stated", ())] == []
    assert [sentence for case in found.values() for sentence in missing(case.stated)] == []  # type: ignore[attr-defined]
