"""`onlyonce crashtest` as a user starts it: a pipeline that holds, one that can't, and a build that is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import shop_oracle
from tests.support.platform import JOB_TIMEOUT, ROOT

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow]

COMMAND = [sys.executable, "-c", "from onlyonce.cli import app; app()", "crashtest"]


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    """A folder with the input of the test pipelines."""
    folder = tmp_path / "sales"
    folder.mkdir()
    for number, records in enumerate(shop_oracle.sales(60, 1)):
        (folder / f"sales-{number}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.fixture
def temporaries() -> Iterator[Path]:
    """A folder for temporaries that the server's account may pass through, which pytest's folders are not."""
    with tempfile.TemporaryDirectory(prefix="onlyonce-tests-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def crashtest(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report of one crash test."""
    home = {"ONLYONCE_HOME": "/nowhere", "ONLYONCE_PIPELINES": str(ROOT / "tests/support/tiny.py")}
    done = subprocess.run(
        [*COMMAND, *arguments, "--json"], cwd=ROOT, env=os.environ | home | environment, capture_output=True, text=True,
        timeout=4 * JOB_TIMEOUT,
    )  # fmt: skip
    assert done.stdout.startswith("{"), done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    """What is said of each kill."""
    return {kill["point"]: kill["verdict"] for kill in report["tables"]["kills"]}


def test_a_pipeline_holds_and_nothing_of_the_user_is_touched(sales: Path, temporaries: Path) -> None:
    """All kills of a chain held, exit code 0; the input lies there as it was, and the folder of temporaries is
    empty."""
    before = {path.name: path.read_bytes() for path in sales.iterdir()}
    points = ["receive-after-delta", "postgres-unit-after-commit"]

    code, report = crashtest("each", "--input", str(sales), "--points", ",".join(points), TMPDIR=str(temporaries))

    assert code == 0, report
    assert verdicts(report) == dict.fromkeys(points, "held")
    assert all(kill["killed"] and (kill["lost"], kill["doubled"]) == (0, 0) for kill in report["tables"]["kills"])
    assert report["facts"]["rows compared"] > 60
    assert {path.name: path.read_bytes() for path in sales.iterdir()} == before
    assert not list(temporaries.glob("onlyonce-crashtest-*"))


def test_files_and_what_is_sent_are_compared_too(sales: Path) -> None:
    """The rows of each file under its final name, and those of the outbox; nobody is asked and nothing is sent."""
    points = ["files-unit-mid-file", "files-unit-after-claim", "files-unit-after-commit", "postgres-unit-after-commit"]

    code, report = crashtest("outside", "--input", str(sales), "--points", ",".join(points))

    assert code == 0, report
    assert verdicts(report) == dict.fromkeys(points, "held")
    assert report["facts"]["rows compared"] > 3 * 60


@pytest.mark.parametrize(
    ("point", "verdict", "words"),
    [
        ("output-before-begin", "differs", "two runs without any kill differ too (written)"),
        ("postgres-unit-after-commit", "stopped", "did not come to its end"),
    ],
)
def test_a_function_that_is_not_deterministic_does_not_hold(sales: Path, point: str, verdict: str, words: str) -> None:
    """Killed before its rows are written they are others than the reference's, as they are without a kill; killed
    after, the replay is stopped.

    Both are told, with stable_input as the way out."""
    code, report = crashtest("shaky", "--input", str(sales), "--points", point)

    assert code == 1, report
    assert verdicts(report) == {point: verdict}
    told = " ".join(report["warnings"])
    assert words in told
    assert "stable_input=True" in told


def test_a_broken_build_is_seen(sales: Path) -> None:
    """A platform that writes a committed unit once more at a replay does not hold: rows are there twice, by a kill."""
    code, report = crashtest(
        "each", "--input", str(sales), "--points", "postgres-unit-after-commit",
        ONLYONCE_TEST_MUTANT="data-unit-again", PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'tests/mutants/site'}",
    )  # fmt: skip

    assert code == 1, report
    assert verdicts(report) == {"postgres-unit-after-commit": "differs"}
    assert sum(d["doubled"] for d in report["tables"]["differences"]) > 0
    assert "it was a kill that shows" in " ".join(report["warnings"])
