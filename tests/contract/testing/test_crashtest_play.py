"""How a crash test plays its kills: real processes, SIGKILL and a PostgreSQL of its own, over a plain driver without
Spark.

With Spark and the product's own driver: tests/fault/test_crashtest.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onlyonce.core.runs import Report
from onlyonce.testing import scratch
from onlyonce.testing.crash_results import Asked
from onlyonce.testing.crashtest import play
from tests.support import shop_oracle
from tests.support.platform import ROOT

FILES = [ROOT / "tests/support/tiny.py"]


@pytest.fixture
def sales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files of sales; runs are of the plain driver."""
    folder = tmp_path / "sales"
    folder.mkdir()
    for number, records in enumerate(shop_oracle.sales(30, 3)):
        (folder / f"sales-{number}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))

    def start(platform: scratch.ScratchPlatform, *arguments: str, **environment: Any) -> subprocess.Popen[str]:
        given = {name: value for name, value in environment.items() if name.isupper()}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.plain_driver", *arguments], cwd=ROOT, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | platform.environment | given,
        )  # fmt: skip

    monkeypatch.setattr(scratch.ScratchPlatform, "start", start)
    return folder


def played(asked: Asked) -> tuple[Report, list[str], list[str]]:
    """The report, the verdicts in order, and the steps that were told."""
    steps: list[str] = []
    report = play(asked, lambda done, of, text: steps.append(text))
    return report, [f"{kill['point']}:{kill['pass']} {kill['verdict']}" for kill in report.tables["kills"]], steps


def test_a_chain_kills_over_the_batches_of_one_copy_and_holds(sales: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kill strikes in its batch, the last run goes to its end, and a run that asks for it is run again."""
    monkeypatch.setenv("PLAIN_DRIVER", "asks-again")
    points = ["start", "batch-before-commit:1", "batch-after-commit:2", "batch-before-commit:3"]

    report, verdicts, steps = played(Asked("each", sales, FILES, points=points))

    assert report.facts["all held"], report
    assert verdicts == ["start:1 held", *(f"{point} held" for point in points[1:])]
    assert [kill["killed"] for kill in report.tables["kills"]] == [True] * 4
    assert steps[2:] == ["kill at start:1", *(f"kill at {point}" for point in points[1:]), "to the end"]
    assert report.warnings == []


def test_a_kill_that_shows_is_found_and_nothing_is_played_after_it(
    sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that commit apart from their mark are there twice; a run without a kill agrees, so it was the kill."""
    monkeypatch.setenv("PLAIN_DRIVER", "two-commits")
    points = ["start", "batch-before-commit:2", "batch-after-commit:3"]

    report, verdicts, _ = played(Asked("each", sales, FILES, points=points, chain=1))

    assert verdicts == ["start:1 held", "batch-before-commit:2 differs"]
    [apart] = report.tables["differences"]
    second = len((sales / "sales-1.jsonl").read_text().splitlines())
    assert (apart["result"], apart["lost"], apart["doubled"]) == ("written", 0, second)
    assert not report.facts["all held"]
    assert "it was a kill that shows" in report.warnings[0]


@pytest.mark.whole
def test_rows_that_differ_without_a_kill_are_told_apart_from_a_kill_that_shows(
    sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference and another undisturbed run differ; the column left out, the same kills hold."""
    monkeypatch.setenv("PLAIN_DRIVER", "shaky")

    report, verdicts, _ = played(Asked("each", sales, FILES, points=["batch-after-commit"]))
    without, held, _ = played(Asked("each", sales, FILES, points=["batch-after-commit"], leave_out=["written.chance"]))

    assert verdicts == ["batch-after-commit:1 differs"]
    assert "two runs without any kill differ too (written)" in report.warnings[0]
    assert (held, without.facts["all held"]) == (["batch-after-commit:1 held"], True)


@pytest.mark.whole
def test_a_run_that_stops_after_a_kill_does_not_hold_and_its_words_are_told(
    sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill before it is named; with --all the rest of the chain is played again without it."""
    monkeypatch.setenv("PLAIN_DRIVER", "stops")
    points = ["batch-before-commit:1", "batch-after-commit:2"]

    report, verdicts, _ = played(Asked("each", sales, FILES, points=points, every=True))

    assert verdicts == ["batch-before-commit:1 stopped", "batch-after-commit:2 held"]
    assert "after batch-before-commit:1: unit 1 is committed with other rows" in report.warnings[0]
    assert "stable_input=True" in " ".join(report.warnings)
