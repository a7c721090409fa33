"""Long runs that are killed, frozen and started twice: the next one goes on, and each record and effect is there
once."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest

from tests.fault.test_kills import SUPERSEDED, await_stopped
from tests.support import shop_oracle
from tests.support.check_shop import check
from tests.support.long_run import QUICK, ask_stop, committed, meanwhile, state, until
from tests.support.platform import JOB_TIMEOUT, Platform

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow]

FOREVER = ("shop", "--continuous", "--every", "0.2")
FILES = shop_oracle.sales(240, 3)


@pytest.fixture(autouse=True)
def _quick_hearts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)


def put(platform: Platform, number: int) -> None:
    """The next file comes in."""
    platform.put("shop", f"sales-{number:04}.jsonl", FILES[number])


def start(platform: Platform, point: str, nth: int, action: str = "kill") -> subprocess.Popen[str]:
    """A long run in a process of its own, that a fail-point strikes."""
    folder = platform.home / "failpoints"
    folder.mkdir(exist_ok=True)
    return platform.start(*FOREVER, ONLYONCE_FAILPOINTS=f"{point}:{nth}:{action}", ONLYONCE_FAILPOINT_DIR=str(folder))


def whole_rounds(platform: Platform, batches: int) -> None:
    """Until so many receive batches are committed and each output has read them."""
    waits = "SELECT count(*) AS n FROM onlyonce.lag WHERE batches_waiting > 0"
    queries = "SELECT count(DISTINCT query) AS n FROM onlyonce.batches WHERE state = 'committed'"
    until(
        lambda: (committed(platform), platform.sql(queries)["n"][0], platform.sql(waits)["n"][0]) == (batches, 3, 0),
        f"{batches} batches",
    )


def killed(process: subprocess.Popen[str]) -> None:
    """It was struck, and died of it."""
    output, _ = process.communicate(timeout=JOB_TIMEOUT)
    assert process.returncode == -signal.SIGKILL, output[-3000:]


def goes_on(platform: Platform) -> None:
    """A long run of this process takes in what is left, and is stopped; what is open then is closed, and all is
    right."""
    with meanwhile(platform, lambda: whole_rounds(platform, len(FILES))):
        platform.run(*FOREVER)
    assert state(platform) == "stopped"
    platform.run("shop", "--close")
    check(platform, FILES)


@pytest.mark.parametrize(
    "at_receive, nth, at_output",
    [
        ("receive-after-delta", 2, "delta-after-write"),
        ("receive-unit-after-commit", 2, "postgres-unit-before-commit"),
        # A turn without news registers nothing: with both files there at its start there is no second time.
        ("receive-registered", 1, "output-before-end"),
        ("receive-before-begin", 2, "output-after-end"),
        ("receive-after-end", 2, "postgres-after-units"),
    ],
)
def test_a_long_run_that_is_killed_and_started_again_makes_one_result(
    platform: Platform, spark: object, at_receive: str, nth: int, at_output: str
) -> None:
    """One dies while it receives, the next at an output; each next one is let in when the heartbeat of the
    one before has ended, and the third takes in the last file. The batches tell of three drivers."""
    put(platform, 0)
    first = start(platform, at_receive, nth)
    put(platform, 1)
    killed(first)
    until(lambda: state(platform) == "lost", "the end of the heartbeat")
    killed(start(platform, at_output, nth=1))
    until(lambda: state(platform) == "lost", "the end of the heartbeat")
    put(platform, 2)
    goes_on(platform)

    assert platform.sql("SELECT attempt FROM onlyonce.long_runs")["attempt"].tolist() == [3]


def test_a_driver_that_stands_by_goes_on_where_the_killed_one_was(platform: Platform, spark: object) -> None:
    """No heartbeat is waited for: with the default one the place would be free after half a minute.

    A third stands by for the second, and ends with it when that is asked to stop.
    """
    put(platform, 0)
    first = start(platform, "receive-after-delta", 2)
    until(lambda: state(platform) == "running", "a long run")
    others = [platform.start(*FOREVER, "--standby") for _ in range(2)]
    until(
        lambda: (
            platform.sql("SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'onlyonce-place/shop'")[
                "n"
            ][0]
            == 3
        ),
        "two that stand by",
    )
    put(platform, 1)
    killed(first)
    put(platform, 2)
    whole_rounds(platform, len(FILES))
    ask_stop(platform)
    ends = [(driver.communicate(timeout=JOB_TIMEOUT)[0][-2000:], driver.returncode) for driver in others]

    assert [code for _, code in ends] == [0, 0], ends
    assert platform.sql("SELECT attempt FROM onlyonce.long_runs")["attempt"].tolist() == [2]
    platform.run("shop", "--close")
    check(platform, FILES)


def test_a_frozen_long_run_that_wakes_is_fenced(platform: Platform, spark: object) -> None:
    """It is stopped before the end of a batch, another takes its place, and when it wakes it ends as superseded."""
    for number in range(len(FILES)):
        put(platform, number)
    zombie = start(platform, "receive-before-end", nth=1, action="stop")
    await_stopped(zombie.pid)
    until(lambda: state(platform) == "lost", "the end of the heartbeat")
    goes_on(platform)

    zombie.send_signal(signal.SIGCONT)
    output, _ = zombie.communicate(timeout=JOB_TIMEOUT)
    assert zombie.returncode == SUPERSEDED, output[-3000:]
    check(platform, FILES)


def test_of_long_runs_started_at_the_same_instant_one_is_at_work(platform: Platform, spark: object) -> None:
    """The others end as superseded before Spark starts, and a drain beside it too."""
    for number in range(len(FILES)):
        put(platform, number)
    drivers = [platform.start(*FOREVER) for _ in range(3)]
    until(lambda: state(platform) == "running", "a long run")
    whole_rounds(platform, len(FILES))
    beside, _ = platform.start("shop").communicate(timeout=JOB_TIMEOUT)
    ask_stop(platform)
    ends: list[Any] = [driver.communicate(timeout=JOB_TIMEOUT)[0][-2000:] for driver in drivers]

    assert sorted(driver.returncode for driver in drivers) == [0, SUPERSEDED, SUPERSEDED], ends
    assert "a continuous run is active" in beside
    platform.run("shop", "--close")
    check(platform, FILES)
