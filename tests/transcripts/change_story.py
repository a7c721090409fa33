"""Reads a transcript of changes: a YAML file that tells which changes of rows come, and what a table of them then has.

README.md has its words.

A misspelt expectation is an error, as in `story`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tests.support import changes_of_a_table as source
from tests.support.changes_of_a_table import Change

FOLDER = Path(__file__).parent / "changes"
OPS = {"read": "r", "created": "c", "updated": "u", "deleted": "d"}
_CHANGE = re.compile(rf"(?P<key>\w+) (?P<op>{'|'.join(OPS)})(?: (?P<value>\d+))? at (?P<at>\d+)")
_VERSION = re.compile(r"(\w+) (\d+) from (\d+)(?: to (\d+))?")


@dataclass(frozen=True)
class Had:
    """What there is after a step: rows (key, value), keys that are deleted (key, position), versions (key, value, from,
    to), None where nothing is said of them; and how many of its changes came before."""

    table: frozenset[tuple[Any, ...]]
    deleted: frozenset[tuple[Any, ...]]
    history: frozenset[tuple[Any, ...]] | None
    again: int


@dataclass(frozen=True)
class Story:
    """One transcript: for each step the changes, and what there is then."""

    name: str
    feed: Literal["connector", "table"]
    steps: tuple[tuple[tuple[Change, ...], Had], ...]
    must_say: str | None


def all_in(folder: Path) -> list[Story]:
    """The transcripts of a folder, by name."""
    return [read(path) for path in sorted(folder.glob("*.yaml"))]


def read(path: Path) -> Story:
    """One transcript. Raises ValueError with the file's name for what it can't read."""
    told = yaml.safe_load(path.read_text())
    try:
        _only(told, "title", "feed", "steps", "must say")
        if told["feed"] not in ("connector", "table"):
            raise ValueError(f"feed {told['feed']!r}: connector or table")
        return Story(path.stem, told["feed"], tuple(map(_step, told["steps"])), told.get("must say"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name}: {error}") from error


def had(steps: Iterable[tuple[Change, ...]]) -> Had:
    """What there is after some steps, by the plain definition."""
    *before, last = steps
    seen = [change for step in before for change in step]
    everything = [*seen, *last]
    return Had(
        frozenset((key, value) for key, _, value in source.table(everything)),
        frozenset((one.key, one.position) for one in source.newest(everything).values() if one.deleted),
        frozenset((key, value, since, until) for key, _, value, since, until, _ in source.history(everything)),
        sum(_place(one) in {*map(_place, seen)} for one in last),
    )


def differences(where: str, expected: Had, found: Had) -> list[str]:
    """One sentence for each thing that is missing or too much; empty when all agrees."""
    said = [f"{where}: {found.again} came again, and not {expected.again}"] if expected.again != found.again else []
    for what in ("table", "deleted", "history"):
        wanted, there = getattr(expected, what), getattr(found, what)
        if wanted is not None and there is not None:
            said += [f"{where}: the {what} should have {one}" for one in sorted(wanted - there, key=str)]
            said += [f"{where}: the {what} has {one}" for one in sorted(there - wanted, key=str)]
    return said


def _step(told: dict[str, Any]) -> tuple[tuple[Change, ...], Had]:
    _only(told, "comes", "table", "deleted", "history", "again")
    deleted = [part.partition(" at ") for part in _parts(told.get("deleted", "nothing"))]
    rows = [part.split() for part in _parts(told["table"])]
    history = frozenset(map(_version, _parts(told["history"]))) if "history" in told else None
    return tuple(map(_change, _parts(told["comes"]))), Had(
        frozenset((key, int(value)) for key, value in rows),
        frozenset((key, int(at)) for key, _, at in deleted),
        history,
        told.get("again", 0),
    )


def _change(told: str) -> Change:
    found = _CHANGE.fullmatch(told)
    if found is None or (found["value"] is None) != (found["op"] == "deleted"):
        raise ValueError(f"{told!r} is no change: write it as 'ann created 10 at 1' or 'ann deleted at 2'")
    return Change(int(found["at"]), found["key"], OPS[found["op"]], int(found["value"] or 0))


def _version(told: str) -> tuple[Any, ...]:
    found = _VERSION.fullmatch(told)
    if found is None:
        raise ValueError(f"{told!r} is no version: write it as 'ann 10 from 1 to 5' or 'ann 10 from 1'")
    key, value, since, until = found.groups()
    return key, int(value), int(since), None if until is None else int(until)


def _place(change: Change) -> tuple[int, str]:
    return change.position, change.key


def _parts(told: str) -> list[str]:
    return [] if told == "nothing" else [part.strip() for part in told.split(",")]


def _only(told: dict[str, Any], *words: str) -> None:
    if strange := [word for word in told if word not in words]:
        raise ValueError(f"{strange[0]!r} is no word here; there are: {', '.join(words)}")
