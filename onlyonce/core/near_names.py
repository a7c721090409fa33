"""Hints for a name that is not known: the most similar known name, and all known names. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def near(name: str, known: Collection[str], similarity: float = 0.6) -> str | None:
    """Return the known name that is most similar; None if none has the similarity, from 0 to 1."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=similarity)), None)


def did_you_mean(found: str | None) -> str:
    """Return the beginning of a hint that proposes a name; nothing for None."""
    return f"did you mean {found!r}? " if found else ""


def choose(name: str, known: Collection[str], similarity: float = 0.6) -> str:
    """Return the hint for a name that is not known: the most similar one, and all that there are."""
    return f"{did_you_mean(near(name, known, similarity))}choose one of: {', '.join(known)}"
