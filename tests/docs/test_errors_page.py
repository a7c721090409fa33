"""The page of errors names the exceptions by which `check` fails."""

from __future__ import annotations

from onlyonce.outputs.function import CODE_ERRORS
from onlyonce.settings import ROOT


def test_each_exception_that_fails_a_check_is_on_the_page() -> None:
    """By its name; all others are those of the world around."""
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    assert [kind.__name__ for kind in CODE_ERRORS if f"`{kind.__name__}`" not in page] == []
