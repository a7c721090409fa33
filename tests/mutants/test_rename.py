"""An identifier is renamed in code, in the code that mutants name, and in pages; words stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import rename

FILES = {
    "a.py": 'from b import claim  # to claim\n\n\ndef work(claim=claim):\n    """Claim: claim."""\n    return '
    'x.claim(claim, claim="claim")\n',
    "cases.py": 'Mutant("claim", Never("Writer.claim", "claim(1) > claims"), tests=("t.py::claim[x]",))\n',
    "page.md": "The claim is `claim(x)` and `claims`.\n",
}
RENAMED = {
    "a.py": 'from b import take  # to claim\n\n\ndef work(take=take):\n    """Claim: claim."""\n    return '
    'x.take(take, take="claim")\n',
    "cases.py": 'Mutant("claim", Never("Writer.take", "take(1) > claims"), tests=("t.py::take[x]",))\n',
    "page.md": "The claim is `take(x)` and `claims`.\n",
}


def test_a_name_is_renamed_everywhere_and_words_stay(tmp_path: Path) -> None:
    """Also in the operators of mutants, which name functions and code."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    assert rename.rename(tmp_path, [*FILES], "claim", "take") == [*FILES]
    assert {name: (tmp_path / name).read_text() for name in FILES} == RENAMED


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    """Two things would have one name."""
    (tmp_path / "a.py").write_text("claim = take = 1\n")

    with pytest.raises(SystemExit, match="take is a name in a"):
        rename.rename(tmp_path, ["a.py"], "claim", "take")
