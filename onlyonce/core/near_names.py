"""Hints for a name that is not known: the most similar known name, and all known names. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_MOST_LISTED = 8


def near(name: str, known: Collection[str], similarity: float = 0.6) -> str | None:
    """Return the known name that is most similar; None if none has the similarity, from 0 to 1."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=similarity)), None)


def did_you_mean(found: str | None) -> str:
    """Return the beginning of a hint that proposes a name; nothing for None."""
    return f"did you mean {found!r}? " if found else ""


def choose(name: str, known: Collection[str], similarity: float = 0.6) -> str:
    """Return the hint for a name that is not known: the most similar known name, and the list of all known names.

    If the list is long and some names are similar, list only these. If the name is two known ones without a comma
    between them, say so.
    """
    if joined := [one for one in known if name.startswith(one) and name.removeprefix(one) in known]:
        return f"a comma is missing between {joined[0]!r} and {name.removeprefix(joined[0])!r}"
    found = near(name, known, similarity)
    if found and len(known) > _MOST_LISTED:
        others = [one for one in difflib.get_close_matches(name, known, 4, similarity) if one != found]
        return did_you_mean(found).strip() + (f" (or {', '.join(others)})" if others else "")
    return f"{did_you_mean(found)}choose one of: {', '.join(known)}"
