"""Read ten million hostile lines by our readers and by the reference reader: `python -m tests.fuzz`, or `make fuzz`.

The sums go to tests/fault/results.json: `fuzz_lines`, `fuzz_differences`. A run that was stopped (`--minutes`) goes on
at the next call; `--again` starts at the first line, as a change of a reader demands.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.fuzz import hostile, many
from tests.support.platform import ROOT

RESULTS = ROOT / "tests" / "fault" / "results.json"
LINES, DIFFERENCES = "fuzz_lines", "fuzz_differences"
SHOWN = 10


def main() -> int:
    """Read the lines and write the sums; return 1 if the readers differ."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument(
        "--lines", type=int, default=10_000_000, help="how many lines in all, those of stopped runs included"
    )
    parser.add_argument("--minutes", type=float, default=None, help="stop after so many minutes")
    parser.add_argument("--again", action="store_true", help="forget what stopped runs have read")
    parser.add_argument("--processes", type=int, default=None, help="how many processes; as many as cores by default")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of the sums")
    asked = parser.parse_args()
    before = {} if asked.again or not asked.results.exists() else json.loads(asked.results.read_text())
    read, differences = before.get(LINES, 0), before.get(DIFFERENCES, 0)
    seeds = range(read // hostile.LINES, -(-asked.lines // hostile.LINES))
    for lines, found in many.in_parts(seeds, asked.processes, asked.minutes):
        read, differences = read + lines, differences + len(found)
        for one in found[:SHOWN]:
            print(one)
        print(f"{read} lines, {differences} differences", flush=True)
        _write(asked.results, {LINES: read, DIFFERENCES: differences})
    return 1 if differences else 0


def _write(path: Path, sums: dict[str, Any]) -> None:
    results = (json.loads(path.read_text()) if path.exists() else {}) | sums
    path.write_text(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
