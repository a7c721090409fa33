"""How long a record is under way: in the long-running mode, and after a kill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import numpy as np
import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from onlyonce import settings
from tests.benchmarks import arrivals, measure, page, plot
from tests.support.long_run import ask_stop, committed, state, until
from tests.support.platform import JOB_TIMEOUT, Platform

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

PIPELINES = "tests/benchmarks/arrivals.py"
WARM, MEASURED = range(60), range(60, 150)
"""Files, two a second: those that are left out, and, once these are through, those that count."""
KILLS = 3
AIMS = {"p50": 1.0, "p99": 3.0}
WAYS = {
    "bare": ("arrivals", "rows"),
    "exactly_once": ("arrivals", "rows"),
    "windows": ("closing", "windows"),
    "windows_at_close": ("at_close", "windows"),
}
TABLES = {"arrivals": arrivals.TABLE, "closing": arrivals.CLOSING, "at_close": arrivals.AT_CLOSE}
"""A way: its pipeline, and what is waited for: rows as they come, or windows of a second from their close on."""


@pytest.mark.parametrize("rate", [1_000, 10_000])
@pytest.mark.parametrize("way", WAYS)
def test_arrival(way: str, rate: int, new_platform: Callable[..., Platform], spark: SparkSession) -> None:
    """For three quarters of a minute, by queries that are warm: from a file's arrival until its rows are in each sink,
    or the window that it closes."""
    platform, (pipeline, waits_for) = new_platform(PIPELINES), WAYS[way]
    records = rate // arrivals.A_SECOND

    def owed(number: int) -> int:
        # The first record of a second closes the one before.
        return (number + 1) * records if waits_for == "rows" else max(number // arrivals.A_SECOND, 0)

    play = _bare if way == "bare" else _ours
    waited = play(platform, spark, pipeline, records, owed)
    shown = Table("way", "sink", "p50, s", "p99, s", title=f"from a record's arrival to its row, at {rate:,} records/s")
    kept = {}
    for sink, seconds in waited.items():
        kept[sink] = {name: round(float(np.percentile(seconds, q)), 2) for name, q in (("p50", 50), ("p99", 99))}
        shown.add_row(way, sink, *(f"{value:.2f}" for value in kept[sink].values()))
    Console(width=100).print(shown)
    known = measure.kept("arrival").get("seconds", {})
    known.setdefault(str(rate), {})[way] = kept | {"load": measure.circumstances()["machine"]["load"]}
    measure.keep("arrival", seconds=known, aims=AIMS, **measure.circumstances())
    plot.waits(known, AIMS, page.DOCS / "arrival.svg", f"{date.today()}")


def _bare(
    platform: Platform, spark: SparkSession, pipeline: str, records: int, owed: arrivals.Owed
) -> dict[str, list[float]]:
    home, url = platform.home / "bare", settings.database_url().replace("+psycopg2", "")
    queries = arrivals.bare(spark, home, url)
    watches = {
        "delta": arrivals.Watch(arrivals.in_delta(home / "table")),
        "postgres": arrivals.Watch(arrivals.in_postgres(url, arrivals.BARE_TABLE)),
    }
    try:
        _, times = (
            arrivals.feed(home / "inbox", files, records, watches, owed, JOB_TIMEOUT) for files in (WARM, MEASURED)
        )
    finally:
        for query in queries:
            query.stop()
    return {name: watch.waited(times, owed) for name, watch in watches.items()}


def _ours(
    platform: Platform, _: SparkSession, pipeline: str, records: int, owed: arrivals.Owed
) -> dict[str, list[float]]:
    url = settings.database_url().replace("+psycopg2", "")
    driver = platform.start(pipeline, "--continuous", "--every", "0.1")
    assert driver.stdout is not None
    reading = ThreadPoolExecutor(1).submit(driver.stdout.read)  # a pipe that nobody reads would stop the run
    until(lambda: state(platform) == "running", "the long run")
    watches = {
        "delta": arrivals.Watch(arrivals.in_delta(settings.tables_dir() / pipeline / "delta")),
        "postgres": arrivals.Watch(arrivals.in_postgres(url, TABLES[pipeline])),
    }
    try:
        _, times = (
            arrivals.feed(settings.inbox(pipeline), files, records, watches, owed, JOB_TIMEOUT)
            for files in (WARM, MEASURED)
        )
    finally:
        ask_stop(platform, pipeline)
        code = driver.wait(timeout=JOB_TIMEOUT)
    assert code == 0, reading.result()[-3000:]
    return {name: watch.waited(times, owed) for name, watch in watches.items()}


def test_from_a_kill_to_the_commit_of_one_that_stands_by(new_platform: Callable[..., Platform]) -> None:
    """A long run is killed by SIGKILL between two files; another, with Spark started, takes its place and takes in the
    next."""
    platform = new_platform(PIPELINES)
    asked = ("arrivals", "--continuous", "--every", "0.2")
    waiting = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'onlyonce-place/arrivals'"
    seconds: list[float] = []
    driver = platform.start(*asked)
    for number in range(KILLS):
        arrivals.put(settings.inbox("arrivals"), number, records=10)
        until(lambda n=number: committed(platform) > n, "a batch more")  # type: ignore[misc]
        other = platform.start(*asked, "--standby")
        until(lambda: platform.sql(waiting)["n"][0] == 2, "one that stands by")
        arrivals.put(settings.inbox("arrivals"), 1000 + number, records=10)
        before, began = committed(platform), time.monotonic()
        os.killpg(driver.pid, signal.SIGKILL)
        arrivals.put(settings.inbox("arrivals"), 2000 + number, records=10)
        until(lambda n=before: committed(platform) > n, "a batch more")  # type: ignore[misc]
        seconds.append(round(time.monotonic() - began, 2))
        driver.communicate()
        driver = other
    ask_stop(platform, "arrivals")
    output, _ = driver.communicate(timeout=JOB_TIMEOUT)
    assert driver.returncode == 0, output[-3000:]
    print(f"from kill -9 to the next commit, by one that stands by: {seconds} s (aim 8)")
    measure.keep(
        "arrival",
        kill_to_commit_standing_by={
            "seconds": seconds,
            "median": measure.median(seconds),
            "aim": 8,
            **measure.circumstances(),
        },
    )


def test_from_a_kill_to_the_next_commit(new_platform: Callable[..., Platform]) -> None:
    """A drain is killed by SIGKILL when it has committed a batch more, and started again at once."""
    platform = new_platform(PIPELINES)
    for number in range(40):
        arrivals.put(settings.inbox("arrivals"), number, records=10)
    seconds: list[float] = []
    began, driver = time.monotonic(), platform.start("arrivals", "--max-files", "1")
    for _ in range(KILLS + 1):
        before = committed(platform)
        until(lambda n=before, d=driver: committed(platform) > n or d.poll() is not None, "a batch more")  # type: ignore[misc]
        assert driver.poll() is None, driver.communicate()[0][-3000:]
        seconds.append(time.monotonic() - began)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
        began, driver = time.monotonic(), platform.start("arrivals", "--max-files", "1")
    output, _ = driver.communicate(timeout=JOB_TIMEOUT)
    assert driver.returncode == 0, output[-3000:]
    assert sorted(platform.sql(f"SELECT id FROM {arrivals.TABLE}")["id"]) == list(range(400))
    first, after = seconds[0], measure.median(seconds[1:])
    shown = Table("", "seconds", title="to the first committed batch")
    shown.add_row("from the first start", f"{first:.1f}")
    shown.add_row("from kill -9 and a start at once", f"{after:.1f}")
    Console(width=80).print(shown)
    measure.keep(
        "arrival",
        kill_to_commit={"seconds": round(after, 2), "first_start_seconds": round(first, 2), **measure.circumstances()},
    )
