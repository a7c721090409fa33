"""What a crash test was asked for, what was found, and the report of both."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from onlyonce.model.report import Report
from onlyonce.testing import crashing
from onlyonce.testing.crashing import Difference, Verdict


@dataclass(frozen=True)
class Asked:
    """What a crash test is asked for; the words of `onlyonce crashtest`."""

    pipeline: str
    input: Path
    files: list[Path] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    sample: int | None = None
    seed: int = 1
    chain: int = 6
    every: bool = False
    max_files: int | None = None
    leave_out: list[str] = field(default_factory=list)
    master: str = "local[2]"
    keep: bool = False


@dataclass
class Played:
    """What came of it. `control` is how another run without a kill differs from the reference, if one was made."""

    kills: int
    run_seconds: float
    rows: int
    verdicts: Sequence[Verdict] = ()
    differences: list[tuple[int, Difference]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    control: tuple[Difference, ...] | None = None


def report(asked: Asked, played: Played) -> Report:
    """The table of kills, that of differences, and a warning for each thing to do.

    All has held when `all held` is true.
    """
    told = crashing.advice(played.verdicts, played.control, played.stopped, _again(asked, played.verdicts))
    held = sum(verdict.said == "held" for verdict in played.verdicts)
    facts = {
        "all held": held == played.kills, "kills": played.kills, "held": held, "seed": asked.seed,
        "rows compared": played.rows, "a run takes": f"{played.run_seconds:.0f} s",
    }  # fmt: skip
    tables = {"kills": [_row(verdict) for verdict in played.verdicts]}
    apart = [{"chain": chain, **asdict(difference)} for chain, difference in played.differences]
    title = f"{asked.pipeline}: " + ("every kill held" if facts["all held"] else "not every kill held")
    return Report(title, "crashtest", facts, tables | ({"differences": apart} if apart else {}), told)


def _row(verdict: Verdict) -> dict[str, object]:
    point = {
        "point": verdict.strike.point,
        "pass": verdict.strike.nth,
        "chain": verdict.chain,
        "killed": verdict.killed,
    }
    return point | {"lost": verdict.lost, "doubled": verdict.doubled, "verdict": verdict.said}


def _again(asked: Asked, verdicts: Sequence[Verdict]) -> str:
    points = ",".join(str(verdict.strike) for verdict in verdicts if verdict.said == "differs")
    command = ["onlyonce", "crashtest", asked.pipeline, "--input", str(asked.input)]
    command += [part for file in asked.files for part in ("--pipelines", str(file))]
    command += ["--max-files", str(asked.max_files)] if asked.max_files else []
    return shlex.join([*command, "--chain", "1", "--all", "--points", points])
