"""The ledger of faulted runs: what each suite has killed, cut or stopped, and what was lost or doubled by it.

`record` is called after each faulted run, in whatever process. Nothing happens unless
ONLYONCE_FAULT_RESULTS names a file. A pytest session that has it set writes that JSON at its end and prints a
table. What an earlier session has noted of other suites and points stays in the file; the same ones are replaced.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tests.fault.holes import HOLES

VARIABLE = "ONLYONCE_FAULT_RESULTS"
Entry = dict[str, Any]
FACTS = ("matrix_complete", "lives_cases", "fuzz_lines", "fuzz_differences")


def record(suite: str, point: str, occurrence: object = 1, *, seed: int | None = None, lost: int, doubled: int) -> None:
    """Note one faulted run: how many rows or records it has lost and doubled against the oracle."""
    _note({"suite": suite, "point": point, "occurrence": occurrence, "seed": seed, "lost": lost, "doubled": doubled})


def compared(
    suite: str,
    point: str,
    occurrence: object,
    pairs: Iterable[tuple[Counter[Any], Counter[Any]]],
    *,
    seed: int | None = None,
) -> tuple[int, int]:
    """Note one faulted run by its (wanted, found) multisets; gives (lost, doubled), for the assertion."""
    both = list(pairs)
    lost = sum((wanted - found).total() for wanted, found in both)
    doubled = sum((found - wanted).total() for wanted, found in both)
    record(suite, point, occurrence, seed=seed, lost=lost, doubled=doubled)
    return lost, doubled


def fact(name: str, value: Entry) -> None:
    """Note what stands in the results beside the runs; entries of earlier sessions under other keys stay."""
    _note({"fact": name, "value": value})


def explored(model: str, states: int) -> None:
    """Note how many states of a model were reached, of which none was wrong."""
    _note({"model": model, "states": states})


def chosen_seed() -> int:
    """The seed of this session's samples: ONLYONCE_FAULT_SEED, or a new one. Whoever takes it prints it."""
    return int(os.environ.setdefault("ONLYONCE_FAULT_SEED", str(random.randrange(10**6))))


def merged(before: Entry, notes: list[Entry]) -> Entry:
    """The results file after a session with these notes."""
    suites: dict[str, dict[str, Entry]] = before.get("suites", {})
    for suite, point in {(n["suite"], n["point"]) for n in notes if "suite" in n}:
        mine = [n for n in notes if (n.get("suite"), n.get("point")) == (suite, point)]
        entry: Entry = {name: sum(n[name] for n in mine) for name in ("lost", "doubled")} | {"runs": len(mine)}
        if seeds := sorted({n["seed"] for n in mine if n["seed"] is not None}):
            entry["seeds"] = seeds
        suites.setdefault(suite, {})[point] = entry
    models = before.get("states_by_model", {}) | {note["model"]: note["states"] for note in notes if "model" in note}
    facts: dict[str, Entry] = {name: before[name] for name in FACTS if name in before}
    for note in notes:
        if "fact" in note:
            facts[note["fact"]] = facts.get(note["fact"], {}) | note["value"]
    points = [entry for suite in suites.values() for entry in suite.values()]
    totals = {name: sum(entry[name] for entry in points) for name in ("runs", "lost", "doubled")}
    modelled = {"model_states": sum(models.values()), "states_by_model": models}
    return totals | modelled | facts | {"suites": suites}


def table(results: Entry) -> Table:
    """The summary, one line for each suite."""
    shown = Table("suite", "points", "runs", "lost", "doubled", title="faulted runs")
    for suite, points in sorted(results["suites"].items()):
        sums = [sum(entry[name] for entry in points.values()) for name in ("runs", "lost", "doubled")]
        shown.add_row(suite, *map(str, [len(points), *sums]))
    shown.add_section()
    totals = [results[name] for name in ("runs", "lost", "doubled")]
    shown.add_row("all", str(sum(map(len, results["suites"].values()))), *map(str, totals))
    shown.caption = f"{results['model_states']} states of models"
    return shown


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin with no notes of a session that was broken off; the file's path is made absolute for child processes."""
    if VARIABLE in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        os.environ[VARIABLE] = str(Path(os.environ[VARIABLE]).resolve())
        _notes().unlink(missing_ok=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write the file and show the table."""
    if VARIABLE not in os.environ or not _notes().exists():
        return
    target = Path(os.environ[VARIABLE])
    before = json.loads(target.read_text()) if target.exists() else {}
    results = merged(before, [json.loads(line) for line in _notes().read_text().splitlines()]) | {"holes": HOLES}
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    partial.replace(target)
    _notes().unlink()
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table(results))
    terminalreporter.write_line("")
    terminalreporter.write_line(captured.get())


def _note(note: Entry) -> None:
    if VARIABLE in os.environ:
        # One write to a file opened for appending is whole, whoever else appends.
        with _notes().open("ab", buffering=0) as file:
            file.write(json.dumps(note).encode() + b"\n")


def _notes() -> Path:
    return Path(os.environ[VARIABLE]).with_suffix(".notes")
