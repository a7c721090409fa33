"""Ties the tests of this folder to the sentences of docs/explanation/security.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from onlyonce.settings import ROOT

PAGE = ROOT / "docs" / "explanation" / "security.md"
T = TypeVar("T", bound=Callable[..., object])


def states(*sentences: str) -> Callable[[T], T]:
    """Mark a test as the proof of these sentences of the page."""

    def mark(test: T) -> T:
        test.stated = sentences  # type: ignore[attr-defined]
        return test

    return mark


def missing(sentences: tuple[str, ...]) -> list[str]:
    """Return the sentences that the page does not have, whatever its line breaks."""
    page = " ".join(PAGE.read_text().split())
    return [sentence for sentence in sentences if sentence not in page]
