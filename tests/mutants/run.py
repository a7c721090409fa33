"""Run mutants and store each verdict at once, so that a run that was stopped resumes: `python -m tests.mutants.run`.

The tests that are named for a mutant pass on the whole build, and each of them fails on the mutant: then it is caught.
Exit codes: 0 if no mutant is alive, also if the time ran out; 1 if one is alive or its tests could not judge it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from onlyonce.local import processes
from onlyonce.testing import scratch
from tests.mutants import results
from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS
from tests.mutants.nursery import Nursery
from tests.support.shared_server import SharedServer

TIMEOUT = 1000
HANG = "from pytest-timeout"
"""A test that hangs has noticed nothing."""

Outcomes = dict[str, set[str]]


class OutOfTime(Exception):
    """The minutes are over."""


@dataclass(frozen=True)
class Bench:
    """The process that forks runs of pytest, the PostgreSQL that the tests share, and what passed on the whole
    build."""

    nursery: Nursery
    server: SharedServer
    folder: Path
    whole: dict[str, Outcomes] = field(default_factory=dict)

    def verdict(self, mutant: Mutant) -> tuple[str, str]:
        """Return caught, alive or "" (the tests can't judge it), and why."""
        for test in mutant.tests:
            if test not in self.whole:
                self.whole[test] = self._outcomes([test])
            kinds = {kind for one in self.whole[test].values() for kind in one}
            if kinds != {"passed"}:
                return "", f"without the mutant {test} has {sorted(kinds) or 'no case'}"
        found = self._outcomes(mutant.tests, mutant.name)
        failed = sorted(name for name, kinds in found.items() if "failure" in kinds)
        alive = [test for test in mutant.tests if not any(name.startswith(test) for name in failed)]
        if alive:
            return (
                "alive",
                f"did not fail: {', '.join(alive)} ({sorted({kind for one in found.values() for kind in one})})",
            )
        return "caught", f"{len(failed)} of {len(found)} cases failed"

    def _outcomes(self, tests: Iterable[str], mutant: str = "") -> Outcomes:
        report, told = self.folder / "report.xml", self.folder / "told"
        report.unlink(missing_ok=True)
        # A folder of the bench's own: pytest's would first clear away what earlier sessions of this machine have left.
        own = [f"--junitxml={report}", f"--basetemp={self.folder / 'tests'}"]
        options = ["-q", "-p", "no:cacheprovider", f"--timeout={TIMEOUT}", *own]
        self.nursery.pytest(mutant, [*options, *sorted(set(tests))], told, ONLYONCE_TEST_SERVER=str(self.server.folder))
        if not report.exists():
            print(told.read_text()[-3000:], flush=True)
            return {}
        found: Outcomes = {}
        for case in ElementTree.parse(report).iter("testcase"):
            name = case.attrib["classname"].replace(".", "/") + ".py::" + case.attrib["name"]
            found.setdefault(name, set()).update(_kinds(case))
        return found


def _kinds(case: ElementTree.Element) -> set[str]:
    found = [child for child in case if child.tag in ("failure", "error", "skipped")]
    return {"hung" if HANG in one.attrib.get("message", "") else one.tag for one in found} or {"passed"}


def _end(*_: object) -> None:
    raise OutOfTime


def run(mutants: list[Mutant], minutes: float) -> int:
    """Run mutants until the minutes are over; return the exit code."""
    bad, ran = [], 0
    signal.signal(signal.SIGALRM, _end)
    signal.setitimer(signal.ITIMER_REAL, minutes * 60)
    try:
        with scratch.server("onlyonce-mutants-") as made, tempfile.TemporaryDirectory() as folder, Nursery() as nursery:
            server = SharedServer(made.folder)
            server.hurry()
            bench = Bench(nursery, server, Path(folder))
            for mutant in mutants:
                begun = time.monotonic()
                verdict, why = bench.verdict(mutant)
                if verdict:
                    results.save(mutant.name, verdict, why)
                if verdict != "caught":
                    bad.append(mutant.name)
                ran += 1
                print(f"{verdict or 'not judged'}: {mutant.name}: {why} ({time.monotonic() - begun:.0f} s)", flush=True)
            signal.setitimer(signal.ITIMER_REAL, 0)
    except OutOfTime:
        print(f"The {minutes:g} minutes are over.")
    print(f"mutants: {ran} of {len(mutants)} ran; alive or not judged: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants, even if they have a verdict")
    parser.add_argument("--minutes", type=float, default=100000, help="stop after so many minutes")
    parser.add_argument("--changed", action="store_true", help="only mutants whose file changed since their verdict")
    parser.add_argument("--no-spark", action="store_true", help="leave out mutants whose tests start a JVM")
    wanted = parser.parse_args()
    if results.git("status", "--porcelain", "--untracked-files=no", "--", "onlyonce", "sql"):
        print(
            "Commit the changes in onlyonce and sql first: a verdict belongs to a commit. Nothing has run.",
            file=sys.stderr,
        )
        return 64
    mutants = [MUTANTS[name] for name in wanted.names] or results.due(only_changed=wanted.changed)
    chosen = [mutant for mutant in mutants if not (wanted.no_spark and mutant.spark)]
    with processes.sigterm_like_ctrl_c():
        return run(chosen, wanted.minutes) if chosen else 0


if __name__ == "__main__":
    sys.exit(main())
