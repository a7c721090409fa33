"""What a store costs: receive and the whole pipeline on a real server of S3, beside Spark's own append to it and beside
a local disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from tests.benchmarks import measure
from tests.support import s3
from tests.support.platform import ROOT, Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

RECORDS = int(os.environ.get("ONLYONCE_BENCH_RECORDS", "4000000"))
BATCHES = 8
OF_APPEND, REQUESTS = 0.8, 30


def test_store(new_platform: Callable[..., Platform], tmp_path: Path) -> None:
    """Each way gets the same files, in turn, in one session; what exactly once has kept is the exact offline dedup."""
    platform = new_platform("tests/benchmarks/whole.py")
    with s3.versitygw(tmp_path) as server:
        given = os.environ | server.environment | {"ONLYONCE_DATA": f"{server.bucket()}/lake"}
        command = [sys.executable, "-m", "tests.benchmarks.store", str(RECORDS), str(BATCHES)]
        done = subprocess.run(command, env=given, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, platform.home
    found = json.loads(done.stdout.splitlines()[-1])
    rates, small = found["receive"]["records_per_second"], found["small"]
    ratio, requests = rates["exactly_once"] / rates["append"], small["exactly_once"]["requests"]

    shown = Table(
        "way",
        "records/s",
        title=f"receive on a store: {ratio:.2f} of append, at least {OF_APPEND}: {_said(ratio >= OF_APPEND)}",
    )
    for name, rate in rates.items():
        shown.add_row(name, f"{rate:,}")
    Console(width=110).print(shown)
    few = Table(
        "a batch of ten",
        "requests",
        "seconds",
        "with 20 ms more for each",
        title=f"at most {REQUESTS}: {_said(requests <= REQUESTS)}",
    )
    for name, each in small.items():
        few.add_row(
            name,
            f"{each['requests']} {each['by_method']}",
            f"{each['seconds']:.2f}",
            f"{each['seconds_with_delay']:.2f}",
        )
    Console(width=150).print(few)
    Console(width=110).print(f"whole pipeline: {found['whole']['ratio']} of the bare job")
    measure.keep(
        "store", exactly_once_of_append=round(ratio, 3), requests_of_small_batch=requests, lines=RECORDS, **found
    )


def _said(met: bool) -> str:
    return "met" if met else "MISSED"
