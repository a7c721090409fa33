"""Airflow's own processes killed in mid-run, and the retry beside the driver that lives on.

The tests add days to the input of the platform that all tests of this folder share. The kill comes after the first
commit of a run. Then the driver is held by SIGSTOP, and woken when the retry has ended: a zombie. Not stopped before
the kill: a process group that loses its parent while one of it is stopped gets SIGHUP from the kernel, and dies of it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from onlyonce import settings
from onlyonce.local import platform as local
from onlyonce.local import processes
from onlyonce.local.airflow_api import AirflowApi
from tests import oracle
from tests.fault import ledger
from tests.spark.run.test_reference import KEYS, cut, plain
from tests.support.platform import Platform, multiset

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]

DAG, TASK, PIPELINE = "user_counts_stream", "run", "user_counts"
PATIENCE = 1200
SUPERSEDED = 69
FILES, LINES = 6, 100
ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER

Tree = list[psutil.Process]
Begun = dict[tuple[str, int], tuple[Any, ...]]


@pytest.fixture(scope="module")
def platform(home: Path) -> Platform:
    """The platform that runs, for its tables and its log."""
    return Platform(home, {"ONLYONCE_DATABASE_URL": settings.database_url()})


@pytest.fixture
def reaper() -> Iterator[None]:
    """Orphans of the platform become children of this process, which so learns their exit codes."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(ADOPT_ORPHANS, 1, 0, 0, 0) == 0
    yield
    libc.prctl(ADOPT_ORPHANS, 0, 0, 0, 0)


def test_a_worker_killed_in_mid_run_is_retried_and_its_driver_is_fenced(
    api: AirflowApi, home: Path, platform: Platform, reaper: None
) -> None:
    """Its whole chain of processes dies, the driver lives on: it ends as superseded, the run in success, the results
    are the oracle's, and of each query one batch at most was begun again."""
    files = put_day(platform, "2024-02-01")
    run = api.trigger(DAG, {"close": True, "max_files": 1})
    driver, workers = in_mid_run(home, platform, run)

    kill(workers)
    stopped = hold(driver)
    before = begun(platform)
    finished(api, run)
    assert processes.is_alive(driver), "the retry was beside it"
    signal_all(stopped, signal.SIGCONT)

    assert exit_code(driver) == SUPERSEDED
    check(api, platform, run, before)
    compare(platform, "worker killed", files)


def test_a_scheduler_killed_in_mid_run_is_healed_by_up_and_the_run_ends_well(
    api: AirflowApi, home: Path, platform: Platform
) -> None:
    """`up` starts another, which runs the task again beside the old worker and driver; when these wake their work has
    no effect and their word none on the state of the run, and they end.

    (The executor's own process stays, without work: Airflow's LocalExecutor waits for ever for a scheduler that is
    gone; `onlyonce down` takes it along.)"""
    files = put_day(platform, "2024-02-02")
    run = api.trigger(DAG, {"close": True, "max_files": 1})
    driver, workers = in_mid_run(home, platform, run)
    scheduler = processes.find("scheduler", home)
    assert scheduler is not None

    kill([scheduler])
    stopped = hold(*workers, driver)
    before = begun(platform)
    assert not local.is_up()
    local.up()
    finished(api, run)
    assert processes.is_alive(driver), "the retry was beside it"
    signal_all(stopped, signal.SIGCONT)
    old = [process for process in stopped if process != workers[-1]]
    processes.wait_until(lambda: not any(map(processes.is_alive, old)), PATIENCE, "the end of the old driver")

    check(api, platform, run, before)
    compare(platform, "scheduler killed", files)


def put_day(platform: Platform, day: str) -> list[Path]:
    """A day's input: an hour of it in disorder, some of it late, a tenth delivered again in the next file."""
    start = pd.Timestamp(day, tz="UTC")
    files: list[Path] = []
    last: list[dict[str, str]] = []
    for number in range(FILES):
        ids = range(number * LINES, (number + 1) * LINES)
        # The last of each file are of one file before, and so late where that has closed their window.
        minutes = [10 * (number - (n % 20 == 0)) + n % 10 for n in range(LINES)]
        records = [
            {"event_id": f"{day}-{n:05}", "user": f"u{n % 7}", "at": str(start + pd.Timedelta(minutes=m)), "action": "view"}
            for n, m in zip(ids, minutes, strict=True)
        ]  # fmt: skip
        files.append(platform.put(PIPELINE, f"{day}-{number}.jsonl", [*last, *records]))
        last = records[:: LINES // 10]
    return files


def in_mid_run(home: Path, platform: Platform, run: str) -> tuple[psutil.Process, Tree]:
    """After the first commit of a run: the JVM of its driver, and what is above it in Airflow."""
    committed = f"SELECT 1 FROM onlyonce.batches WHERE run_id = '{run}' AND state = 'committed'"
    processes.wait_until(lambda: len(platform.sql(committed)) > 0, PATIENCE, "the first commit of the run")
    [jvm] = [process for process in processes.drivers(home) if run in " ".join(process.cmdline())]
    scheduler = processes.find("scheduler", home)
    assert scheduler is not None
    above = jvm.parents()
    return jvm, above[: above.index(scheduler)]


def hold(*roots: psutil.Process) -> Tree:
    """SIGSTOP to these and all below them; gives whom it has stopped."""
    tree = {process: None for root in roots for process in (root, *root.children(recursive=True))}
    signal_all([*tree], signal.SIGSTOP)
    return [*tree]


def begun(platform: Platform) -> Begun:
    """Each batch of the pipeline with its state and who had it last."""
    rows = platform.sql(
        "SELECT incarnation, batch, state, epoch, run_id, committed_at::text AS at FROM onlyonce.batches "
        f"WHERE instance = '{PIPELINE}'"
    )
    return {(r.incarnation, r.batch): (r.state, r.epoch, r.run_id, r.at) for r in rows.itertuples()}


def finished(api: AirflowApi, run: str) -> None:
    """The run ends well, by another attempt of its task; on a busy machine Airflow may give that one up too."""
    state = api.wait_for_run(DAG, run, PATIENCE)
    [task] = api.tasks(DAG, run)
    assert state == "success", api.task_log(DAG, run, TASK, task["try_number"])[-4000:]
    assert task["try_number"] >= 2


def check(api: AirflowApi, platform: Platform, run: str, before: Begun) -> None:
    """The run stays a success; what was committed before the kill is untouched, and one batch of a query at most was
    begun again; the log adds up."""
    assert api.run_state(DAG, run) == "success"
    after = begun(platform)
    again = [incarnation for (incarnation, batch), was in before.items() if after[incarnation, batch] != was]
    assert max(Counter(again).values(), default=0) <= 1
    assert all(before[key][0] == "begun" for key in before if after[key] != before[key])
    assert len(after) > len(before), "the kill was in mid-run"
    assert {state for state, *_ in after.values()} == {"committed"}
    conserved = platform.sql(
        f"SELECT bool_and(conserved) AS ok FROM onlyonce.conservation WHERE instance = '{PIPELINE}'"
    )
    assert conserved["ok"][0]


def compare(platform: Platform, fault: str, files: list[Path]) -> None:
    """What was kept of the day, and both outputs in its windows, as multisets."""
    judged = oracle.fates_by_cut(cut(files, 1), "2min", "1min", of=oracle.USER_COUNTS)
    assert judged["late"].any(), "some were late"
    in_time = judged[~judged["late"]]
    start = judged["window_start"].min()
    pairs = [
        (oracle.counts_per_user(in_time), platform.table(f"{PIPELINE}/per_user"), [*KEYS, "user", "count"]),
        (oracle.count_of_all(in_time), platform.sql("SELECT * FROM results.count_of_all"), [*KEYS, "count", "users"]),
    ]
    events = platform.events(PIPELINE)
    day = events[(events["oo_kind"] == "kept") & (events["oo_event_time"] >= start)]
    kept = multiset(judged, "event_id"), multiset(day, "event_id")
    found = [kept] + [(multiset(plain(w), *names), multiset(of_day(f, start), *names)) for w, f, names in pairs]
    assert ledger.compared("airflow", fault, 1, found) == (0, 0)


def of_day(frame: pd.DataFrame, start: pd.Timestamp) -> pd.DataFrame:
    """The windows from the day's first on; the days come in order."""
    rows = plain(frame)
    return rows[rows["window_start"] >= start]


def kill(tree: Tree) -> None:
    """SIGKILL; returns when they are gone."""
    signal_all(tree, signal.SIGKILL)
    processes.wait_until(lambda: not any(map(processes.is_alive, tree)), PATIENCE, "the end of the killed")


def signal_all(tree: Tree, which: signal.Signals) -> None:
    """Send it to those that are left."""
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(which)


def exit_code(orphan: psutil.Process) -> int:
    """Of a process that this one has adopted."""
    processes.wait_until(lambda: not processes.is_alive(orphan), PATIENCE, "the end of the driver")
    return os.waitstatus_to_exitcode(os.waitpid(orphan.pid, 0)[1])
