"""What stands between a job and its PostgreSQL fails: an answer lost, a session ended or stopped, a network cut in two.

The job is played without Spark (`play.py`) in a process of its own; the oracle is that of the kills.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from onlyonce.local.processes import wait_until
from tests.fault.matrix.declared import KINDS
from tests.fault.matrix.world import AGAIN, PATIENCE, Run, World
from tests.support.proxy import ANSWER_LOST, COMMIT_LOST, PASSED, Proxy

pytestmark = pytest.mark.timeout(3600)

IN_TRANSACTION = {
    "receive": ["receive-unit-after-claim", "receive-unit-before-commit"],
    "added": ["postgres-unit-after-claim", "postgres-unit-after-rows", "postgres-unit-before-commit"],
    "filed": ["delta-unit-after-claim"],
}
BETWEEN = {
    "receive": [
        "start-registered", "start-after-bump", "receive-after-begin", "receive-unit-before-claim",
        "receive-unit-after-commit", "receive-before-end", "marker-after-begin", "marker-after-delta",
    ],
    "added": ["output-after-begin", "postgres-unit-before-claim", "postgres-unit-after-commit", "output-before-end"],
    "filed": ["delta-unit-before-claim", "delta-after-write"],
}  # fmt: skip


@pytest.fixture
def proxy(world: World) -> Iterator[Proxy]:
    """A proxy before the server, for one run at a time."""
    with Proxy(world.url) as made:
        yield made


def finished(run: Run, code: int) -> None:
    """A run that was told of the fault goes on when the same command runs again; one that bore it is at its end."""
    assert code in {0, *AGAIN}, f"exit {code}\n{run.told()}"
    if code != 0:
        run.finish()


def sessions(world: World, run: Run) -> list[int]:
    """The server's processes for the sessions of a run's incarnations."""
    number = "SELECT incarnation_no FROM onlyonce_private.incarnations WHERE instance = %s"
    queries = [f"{kind}{run.play.suffix}" for kind in run.play.kinds] or ["receive"]
    names = world.rows(f"{number} AND query = ANY(%s)", run.play.name, queries)
    found = world.rows(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE ANY(%s)",
        [f"onlyonce/{n}/%" for (n,) in names],
    )
    return [pid for (pid,) in found]


@pytest.mark.slow
@pytest.mark.parametrize("how", [ANSWER_LOST, COMMIT_LOST])
@pytest.mark.parametrize("kind", ["receive", *KINDS])
def test_no_commit_whose_answer_is_lost_shows(world: World, proxy: Proxy, kind: str, how: str) -> None:
    """The first, second, … last COMMIT of a run, cut before or after the server has it: neither done nor failed."""
    counted = world.new(kind)
    assert counted.run(url=proxy.url) == 0, counted.told()

    def play(nth: int) -> None:
        with Proxy(world.url) as own:
            own.cut_next(*[PASSED] * (nth - 1), how)
            run = world.new(kind)
            finished(run, run.run(url=own.url))
            assert own.cuts == 1, f"there was no COMMIT {nth}"
        run.held(f"commit cut: {kind}", how, nth)

    assert world.each(range(1, proxy.commits + 1), play) >= 10


def ended_session(world: World, case: tuple[str, str]) -> None:
    """Stop the job at a point, end its sessions on the server, let it go on."""
    kind, point = case
    run = world.new(kind)
    job = run.start_stopped(point)
    for pid in sessions(world, run):
        world.rows("SELECT pg_terminate_backend(%s, 10000)", pid)
    job.send_signal(signal.SIGCONT)
    finished(run, run.end_of(job))
    run.held(f"session ended: {kind}", point)


def test_a_session_ended_inside_a_unit_does_not_show(world: World) -> None:
    """A fixed sample of each kind of unit."""
    cases = [("receive", "receive-unit-before-commit"), ("added", "postgres-unit-after-rows")]
    assert world.each(cases, lambda case: ended_session(world, case)) == 2


@pytest.mark.slow
def test_a_session_ended_anywhere_does_not_show(world: World) -> None:
    """Inside a transaction, and idle between two: the job goes on with a new one or is run again."""
    cases = [(kind, point) for part in (IN_TRANSACTION, BETWEEN) for kind in part for point in part[kind]]
    assert world.each(cases, lambda case: ended_session(world, case)) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", IN_TRANSACTION)
def test_a_session_stopped_and_woken_later_does_not_show(world: World, kind: str) -> None:
    """The server's process hangs while it holds the claim; the next driver can't end it, waits for its lock, and goes
    on as soon as it wakes and dies."""

    def play(point: str) -> None:
        run = world.new(kind)
        first = run.start_stopped(point)
        held = [psutil.Process(pid) for pid in sessions(world, run)]
        for process in held:
            process.suspend()
        first.send_signal(signal.SIGCONT)
        second = run.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE pg_blocking_pids(pid) && %s"
        wait_until(lambda: bool(world.rows(waits, [p.pid for p in held])), PATIENCE, "the second to wait")
        for process in held:
            process.resume()
        codes = [world.zygote.wait(second), run.end_of(first)]
        assert codes[0] == 0, run.told()
        assert codes[1] in AGAIN, run.told()
        run.held(f"session stopped: {kind}", point)

    assert world.each(IN_TRANSACTION[kind], play) >= 1


def through(run: Run, proxy: Proxy, point: str) -> psutil.Process:
    """A job that goes by the proxy, frozen at a point: it waits for an answer that does not come."""
    job = run.start_stopped(point, url=proxy.url)
    proxy.freeze()
    job.send_signal(signal.SIGCONT)
    wait_until(lambda: job.status() == psutil.STATUS_SLEEPING, PATIENCE, "the job to wait")
    return job


HALF_OPEN = [
    ("receive", "receive-unit-before-commit"), ("receive", "receive-before-end"), ("appended", "postgres-unit-after-claim"),
    ("added", "postgres-unit-before-commit"), ("filed", "delta-unit-before-claim"), ("added", "output-before-end"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind, point", HALF_OPEN)
def test_a_connection_that_is_half_open_does_not_show(world: World, proxy: Proxy, kind: str, point: str) -> None:
    """Nothing comes and nothing is closed. The next driver, which reaches the server, ends the session and finishes;
    when the first one's connection breaks at last, it is told that it was overtaken."""
    run = world.new(kind)
    job = through(run, proxy, point)
    run.finish()
    assert job.status() != psutil.STATUS_ZOMBIE
    proxy.refuse()
    proxy.allow()
    assert run.end_of(job) in {69, 75}, run.told()
    run.held("half-open", f"{kind} {point}")


@pytest.mark.slow
@pytest.mark.parametrize("length", [30, 300], ids="{} s".format)
def test_a_partition_does_not_show(world: World, length: int) -> None:
    """Several jobs are cut off from the server in mid-unit and between two, for so long; then all traffic comes
    through, or the session is found to be gone. Each goes on or is run again."""
    proxies = [Proxy(world.url) for _ in HALF_OPEN]
    runs = [world.new(kind) for kind, _ in HALF_OPEN]
    points = [point for _, point in HALF_OPEN]
    jobs = [through(run, proxy, point) for run, proxy, point in zip(runs, proxies, points, strict=True)]
    time.sleep(length)  # the partition itself
    for proxy in proxies:
        proxy.thaw()
    for run, job, (kind, point) in zip(runs, jobs, HALF_OPEN, strict=True):
        finished(run, run.end_of(job))
        run.held(f"partition of {length} s", f"{kind} {point}")
    for proxy in proxies:
        proxy.refuse()


def test_the_oracle_sees_what_a_fault_would_do(world: World) -> None:
    """The control: a row taken away or written twice behind the platform's back is lost, or doubled, in the books."""
    run = world.writing("appended")
    run.finish()
    name = f"results.appended_{run.play.name}{run.play.suffix}"

    def sums() -> tuple[int, int]:
        wanted, found = run.pairs()["appended"]
        return (wanted - found).total(), (found - wanted).total()

    changes: list[tuple[str, tuple[int, int]]] = [
        (f"DELETE FROM {name} WHERE id = 'sale 1'", (1, 0)),
        (f"INSERT INTO {name} SELECT * FROM {name} WHERE id = 'sale 2'", (1, 1)),
    ]
    assert sums() == (0, 0)
    for statement, wanted in changes:
        world.rows(statement)
        assert sums() == wanted
