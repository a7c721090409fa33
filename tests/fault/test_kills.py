"""SIGKILL at every Spark-side step of the protocol, restart of the same command, results as if nothing had been.

A chain kills one run after the other in one platform, each at the next step; the last run goes to its end.
The oracle sees loss and duplication by any of the kills, for it compares multisets.
"""

from __future__ import annotations

import signal
from typing import Any

import psutil
import pytest

from tests.fault import ledger
from tests.support import shop_oracle
from tests.support.check_shop import check, pairs
from tests.support.platform import JOB_TIMEOUT, Platform

pytestmark = [pytest.mark.spark, pytest.mark.fault]

SUPERSEDED = 69

# The first chain begins with the one that breaks the obvious way: the Delta write of a stateful output is
# there, its checkpoint commit is not.
CHAINS = {
    "output": ["delta-after-write", "output-before-end", "output-after-end", "postgres-after-units"],
    "receive": [
        "receive-unit-before-commit", "receive-unit-after-commit", "table-before-commit", "receive-after-delta", "receive-after-end"
    ],
    "postgres": ["postgres-unit-after-rows", "postgres-unit-after-commit"],
    "start": ["start-instance", "start-registered", "start-before-bump", "start-after-bump", "receive-registered", "receive-before-begin"],
    "begin": ["receive-after-begin", "receive-unit-before-claim", "receive-unit-after-claim", "receive-before-end"],
    "close": ["marker-after-begin", "marker-after-delta", "marker-after-end", "output-before-begin", "output-after-begin"],
    "delta": ["output-consumed", "delta-unit-before-claim", "delta-unit-after-claim", "delta-unit-after-commit", "delta-before-write"],
    "units": ["postgres-before-units", "postgres-unit-before-claim", "postgres-unit-after-claim", "postgres-unit-before-commit"],
}  # fmt: skip
CHAINS["receive by Spark's tasks"] = ["receive-lines-read", *CHAINS["receive"]]
CHAINS["a unit"] = ["postgres-unit-after-commit"]
WHOLE = ("output", "receive", "receive by Spark's tasks", "postgres")
"""The kills at which most is half done, in `make test-all`; one of each step in `make test`: here a unit's, in
`tests/storage/test_run_on_s3.py` one after the rows of `events`, in `tests/spark/run/test_side_by_side.py` one after an
output's rows. The others only in `make test-faults`; without a JVM the matrix has them all."""
MARKS = {"a unit": ()} | dict.fromkeys(WHOLE, pytest.mark.whole)


def put_all(platform: Platform, files: list[list[dict[str, Any]]]) -> None:
    """One file for each list."""
    for number, records in enumerate(files):
        platform.put("shop", f"sales-{number:04}.jsonl", records)


@pytest.mark.parametrize("chain", [pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in CHAINS])
def test_kills_do_not_show(platform: Platform, monkeypatch: pytest.MonkeyPatch, spark: object, chain: str) -> None:
    """A kill at each step, then the same command again, gives the result of no kill."""
    if "tasks" in chain:
        platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES="0")
    files = shop_oracle.sales(240, 2)
    put_all(platform, files)

    for point in CHAINS[chain]:
        code, output = platform.run_killed(point, "shop", "--close")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    platform.run("shop", "--close")

    for point in CHAINS[chain]:
        ledger.compared("spark: kill", point, chain, pairs(platform, files) if point == CHAINS[chain][-1] else [])
    check(platform, files)
    on_their_way = platform.home / "data" / "shop" / "blocks"
    assert [path for path in on_their_way.rglob("*") if path.is_file()] == [], "killed drivers have left blocks"


def test_killed_workers_do_not_show(platform: Platform, spark: object) -> None:
    """Python workers killed around their commits are replaced by Spark, and the run goes on to the right end."""
    files = shop_oracle.sales(240, 2)
    put_all(platform, files)
    points = [
        "receive-unit-after-claim", "receive-unit-after-commit", "postgres-unit-after-rows", "postgres-unit-after-commit"
    ]  # fmt: skip
    folder = platform.home / "failpoints"
    folder.mkdir()

    process = platform.start(
        "shop", "--close", ONLYONCE_FAILPOINT_DIR=str(folder), ONLYONCE_IN_DRIVER_BYTES="0",
        ONLYONCE_FAILPOINTS=",".join(f"{p}:1:kill-process" for p in points),
    )  # fmt: skip
    output, _ = process.communicate(timeout=JOB_TIMEOUT)

    assert process.returncode == 0, output[-3000:]
    assert all(platform.struck(p) >= 2 for p in points)
    ledger.compared("spark: workers", "four at once", 1, pairs(platform, files))
    check(platform, files)


@pytest.mark.parametrize(
    "point",
    [
        "receive-before-end",
        pytest.param("receive-lines-read", marks=pytest.mark.whole),
        pytest.param("delta-before-write", marks=pytest.mark.slow),
    ],
)
def test_zombie_that_wakes_is_fenced(platform: Platform, spark: object, point: str) -> None:
    """A driver stopped before an effect and woken after the new one has finished stops without effect; also one whose
    blocks the new one has cleared away, and it is told that it was superseded, and not to run again."""
    files = shop_oracle.sales(240, 2)
    put_all(platform, files)
    folder = platform.home / "failpoints"
    folder.mkdir()
    by_tasks = {"ONLYONCE_IN_DRIVER_BYTES": "0"} if point == "receive-lines-read" else {}
    zombie = platform.start(
        "shop", "--close", ONLYONCE_FAILPOINT_DIR=str(folder), ONLYONCE_FAILPOINTS=f"{point}:1:stop", **by_tasks
    )
    await_stopped(zombie.pid)

    platform.run("shop", "--close")
    zombie.send_signal(signal.SIGCONT)
    output, _ = zombie.communicate(timeout=JOB_TIMEOUT)

    assert zombie.returncode == SUPERSEDED, output[-3000:]
    ledger.compared("spark: zombie", point, 1, pairs(platform, files))
    check(platform, files)
    report = platform.run("shop", "--close")
    assert report.facts["batches"] == 0


@pytest.mark.whole
def test_two_drivers_at_once_make_one_result(platform: Platform, spark: object) -> None:
    """Two drivers started at the same instant on one checkpoint: each record and each effect once."""
    files = shop_oracle.sales(240, 2)
    put_all(platform, files)

    drivers = [platform.start("shop", "--close") for _ in range(2)]
    outputs = [driver.communicate(timeout=JOB_TIMEOUT)[0] for driver in drivers]
    platform.run("shop", "--close")

    codes = [driver.returncode for driver in drivers]
    assert set(codes) <= {0, SUPERSEDED, 75}, [o[-2000:] for o in outputs]
    ledger.compared("spark: two drivers", "at once", 1, pairs(platform, files))
    check(platform, files)


def await_stopped(pid: int) -> None:
    """Wait until a process has been stopped by its fail-point."""
    process = psutil.Process(pid)
    for _ in range(JOB_TIMEOUT * 10):
        if process.status() == psutil.STATUS_STOPPED:
            return
        try:
            process.wait(timeout=0.1)
        except psutil.TimeoutExpired:
            continue
        raise AssertionError("the driver ended before its fail-point")
    raise AssertionError("the driver was never stopped")
