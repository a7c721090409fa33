"""results.json: the last verdict of each mutant, the commit at which it ran, and when; the tests of each fault
found."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypedDict

from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("results.json")
HOLE = re.compile(r"(foundation|values|outputs|security|security-erasure|format)-\d+(?=-)")


class Result(TypedDict):
    """`verdict` is caught, equivalent or alive. `why` names the outcome, or argues why a mutant is equivalent."""

    verdict: str
    commit: str
    at: str
    why: str


def load() -> dict[str, Result]:
    """Return the results by mutant."""
    found: dict[str, Result] = json.loads(FILE.read_text())["mutants"]
    return found


def save(name: str, verdict: str, why: str) -> None:
    """Store one verdict, at the commit that is checked out now."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    known = load() | {name: Result(verdict=verdict, commit=git("rev-parse", "HEAD"), at=at, why=why)}
    partial = FILE.with_suffix(".partial")
    kept = {name: known[name] for name in known if name in MUTANTS}
    everything = {"mutants": kept, "holes": holes()}
    partial.write_text(json.dumps(everything, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    partial.replace(FILE)


def holes() -> dict[str, list[str]]:
    """Return the tests of each fault that a review found, by its number: those of the mutants named after it."""
    found: dict[str, set[str]] = {}
    for name, mutant in MUTANTS.items():
        if number := HOLE.match(name):
            found.setdefault(number[0], set()).update(mutant.tests)
    return {number: sorted(found[number]) for number in sorted(found)}


def due(*, only_changed: bool) -> list[Mutant]:
    """Return the mutants to run: those without a result first, then the oldest verdict first.

    A verdict holds until the mutant's file changes. `only_changed` leaves out mutants without a result. A mutant that
    was argued to be equivalent does not run again.
    """
    known = load()
    new = [] if only_changed else [mutant for name, mutant in MUTANTS.items() if name not in known]
    old = [MUTANTS[name] for name, result in known.items() if name in MUTANTS and _has_ended(MUTANTS[name], result)]
    return sorted(new, key=lambda mutant: mutant.spark) + sorted(old, key=lambda mutant: known[mutant.name]["at"])


def git(*arguments: str) -> str:
    """Return what git prints; raise CalledProcessError if it fails."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, text=True, capture_output=True).stdout.strip()


def _has_ended(mutant: Mutant, result: Result) -> bool:
    if result["verdict"] == "equivalent":
        return False
    return result["verdict"] == "alive" or mutant.file in _changed_since(result["commit"])


@cache
def _changed_since(commit: str) -> frozenset[str]:
    """Return the files that differ from a commit. If git does not know the commit, every mutant's file counts."""
    try:
        return frozenset(git("diff", "--name-only", commit).splitlines())
    except subprocess.CalledProcessError:
        return frozenset(mutant.file for mutant in MUTANTS.values())
