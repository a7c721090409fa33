"""Run `test_lines` on two checkouts in alternating pairs, and keep the median ratio of each form: `python -m
tests.benchmarks.compare_lines BEFORE PAIRS`.

BEFORE is a checkout of the commit before, with an environment of its own. It is given this commit's benchmark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks import measure

HERE = Path(__file__).resolve().parents[2]
BENCHMARK = ("forms.py", "test_lines.py")
TARGETS = {"flat": 0.98}
"""Of the speed before. Of the other forms OTHERS."""
OTHERS = 0.9


def main() -> None:
    """Alternate the checkouts, so that what disturbs the machine for a while disturbs both."""
    before, pairs = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    for name in BENCHMARK:
        shutil.copy(HERE / "tests" / "benchmarks" / name, before / "tests" / "benchmarks" / name)
    found = []
    for number in range(pairs):
        trees = [before, HERE] if number % 2 else [HERE, before]
        both = {tree: _measured(tree) for tree in trees}
        found.append({"before": both[before], "after": both[HERE]})
    ratios = {form: _ratios(found, form) for form in found[0]["after"]}
    _show(ratios)
    measure.keep(
        "lines_compared",
        pairs=found,
        speed_of_before=ratios,
        commits={"before": _commit(before), "after": _commit(HERE)},
        **measure.circumstances(),
    )


def _measured(tree: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            str(tree / ".venv" / "bin" / "python"),
            "-m",
            "pytest",
            "-q",
            "-m",
            "slow",
            "tests/benchmarks/test_lines.py",
            "-p",
            "no:cacheprovider",
        ]
        subprocess.run(command, cwd=tree, env=os.environ | {"ONLYONCE_BENCH_OUT": folder}, check=True)
        forms: dict[str, Any] = json.loads((Path(folder) / "lines.json").read_text())["forms"]
    return forms


def _ratios(found: list[dict[str, Any]], form: str) -> dict[str, float]:
    """Return after's speed in before's, by the clock and by processor time: the median of all pairs."""
    clock = [one["after"][form]["records_per_second"] / one["before"][form]["records_per_second"] for one in found]
    processor = [
        one["before"][form]["cpu_seconds_a_million"] / one["after"][form]["cpu_seconds_a_million"] for one in found
    ]
    return {"clock": round(measure.median(clock), 2), "processor": round(measure.median(processor), 2)}


def _commit(tree: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tree, check=True, capture_output=True, text=True
    ).stdout.strip()


def _show(ratios: dict[str, dict[str, float]]) -> None:
    shown = Table(
        "form",
        "records/s of before",
        "processor time, before of after",
        "target",
        title="receive by the form of its input, the commit before = 1",
    )
    for form, one in ratios.items():
        target = TARGETS.get(form, OTHERS)
        shown.add_row(
            form,
            f"{one['clock']:.2f}",
            f"{one['processor']:.2f}",
            f"{target}: {'met' if one['clock'] >= target else 'MISSED'}",
        )
    Console(width=130).print(shown)


if __name__ == "__main__":
    main()
