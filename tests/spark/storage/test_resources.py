"""What a run needs is away or full: one clear error in bounded time, and a rerun completes with the right results."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from onlyonce import settings
from onlyonce.core.errors import Retryable
from onlyonce.database import statements
from tests.fault.test_kills import put_all
from tests.support import shop_oracle
from tests.support.bad_input import record
from tests.support.check_shop import check
from tests.support.long_run import committed
from tests.support.platform import JOB_TIMEOUT, Platform, free_port
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.spark, pytest.mark.slow]

AWAY = 75
FILES = shop_oracle.sales(240, 2)


def once_at(monkeypatch: pytest.MonkeyPatch, module: str, point: str, act: Callable[[], Any]) -> None:
    """Do something the first time that a module of the driver passes a fail-point."""
    done: list[str] = []

    def passing(name: str) -> None:
        if name == point and not done:
            done.append(name)
            act()

    monkeypatch.setattr(f"onlyonce.{module}.passing", passing)


def test_without_a_database_a_run_ends_with_one_clear_error(platform: Platform) -> None:
    """Nobody listens: the exit code says that it may be run again, the last lines say what, and no trace is shown;
    far sooner than the patience of a run that has a database."""
    url = platform.environment["ONLYONCE_DATABASE_URL"]
    nobody = f"{url.rsplit(':', 1)[0]}:{free_port()}/{url.rsplit('/', 1)[1]}"

    run = platform.start("shop", ONLYONCE_DATABASE_URL=nobody, ONLYONCE_DATABASE_PATIENCE="2")
    output, _ = run.communicate(timeout=JOB_TIMEOUT)

    assert run.returncode == AWAY, output[-3000:]
    at = re.escape(nobody.rpartition("@")[2].partition("?")[0])
    assert len(re.findall(f"\nthe PostgreSQL database at {at} did not answer: ", output)) == 1
    assert "Traceback" not in output
    assert "next: is the database up at that address?" in output.splitlines()[-1]
    assert not settings.data_dir("shop").exists()


def test_a_database_that_goes_away_in_the_middle_is_one_error_and_a_rerun_completes(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are in `events` and the batch can't end: Retryable, within the patience; with the database back the same
    command gives the result of no outage."""
    put_all(platform, FILES)
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", "2.0")
    with Proxy(platform.environment["ONLYONCE_DATABASE_URL"]) as proxy, monkeypatch.context() as outage:
        outage.setenv("ONLYONCE_DATABASE_URL", proxy.url)
        once_at(outage, "receive.loop", "receive-before-end", proxy.refuse)
        with pytest.raises(Retryable, match=r"database at \S+ did not answer") as failure:
            platform.run("shop", "--close")
    assert "run the same command again" in failure.value.hint

    platform.run("shop", "--close")

    check(platform, FILES)


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path], Path]]:
    """Puts a file system of 16 MB under a folder; skips where that is not allowed."""
    mounted: list[Path] = []

    def mount(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() != 0:
            pytest.skip("only root may mount the small file system that this test fills")
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True)
        if done.returncode:
            pytest.skip(f"this machine lets nobody mount a small file system: {done.stderr.decode().strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Take all the space that is left."""
    with (folder / "ballast").open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


# What is full → (its folder, the module and the fail-point from which on)
FULL = {
    "events": (lambda: settings.data_dir("shop") / "events", "receive.loop", "receive-after-begin"),
    "blocks": (lambda: settings.data_dir("shop") / "blocks", "receive.loop", "receive-after-begin"),
    "checkpoint": (lambda: settings.data_dir("shop") / "checkpoints", "receive.loop", "receive-after-delta"),
    "sink": (lambda: settings.tables_dir() / "shop", "sinks.delta.sink_delta", "delta-before-write"),
}


@pytest.mark.parametrize(
    "full", ["events", "blocks", *[pytest.param(n, marks=pytest.mark.slow) for n in ("checkpoint", "sink")]]
)
def test_a_full_disk_is_one_error_and_a_rerun_completes(
    platform: Platform, spark: Any, monkeypatch: pytest.MonkeyPatch, small_disk: Callable[[Path], Path], full: str
) -> None:
    """The run ends with an error that says so; with space the same command gives the result of no full disk."""
    where, module, point = FULL[full]
    statements.make_home()  # a home with folders and without its format is refused
    folder = small_disk(where())
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES="0" if full == "blocks" else str(1 << 22))
    put_all(platform, FILES)
    with monkeypatch.context() as patch:
        once_at(patch, module, point, lambda: fill(folder))
        with pytest.raises(Retryable, match="disk is full") as failure:
            platform.run("shop", "--close")
    assert "free space, then run the same command again" in failure.value.hint
    (folder / "ballast").unlink()

    platform.run("shop", "--close")

    check(platform, FILES)


def memory(process: psutil.Process) -> dict[str, int]:
    """Resident bytes of the driver and of its JVM. Raises NoSuchProcess when one of its processes ends meanwhile."""
    java = [child for child in process.children(recursive=True) if child.name() == "java"]
    return {"python": process.memory_info().rss, "java": sum(child.memory_info().rss for child in java)}


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_the_memory_of_a_driver_is_bounded_over_many_batches(new_platform: Callable[..., Platform]) -> None:
    """300 batches in one drain (1,000 with ONLYONCE_LONG): at the end Python and JVM hold little more than after the
    first third; and every record is there once."""
    batches = 1000 if os.environ.get("ONLYONCE_LONG") else 300
    platform = new_platform("tests/support/plain.py")
    for number in range(batches):
        platform.put("plain", f"{number:04}.jsonl", [record(f"r{number}").decode()])
    run = platform.start("plain", "--max-files", "1", ONLYONCE_DRIVER_MEMORY="512m")
    seen: dict[int, dict[str, int]] = {}
    driver = psutil.Process(run.pid)
    assert run.stdout is not None
    reading = ThreadPoolExecutor(1).submit(run.stdout.read)  # a pipe that nobody reads would stop the run
    while run.poll() is None:
        done = committed(platform)
        # Python's workers come and go with the batches: a look that meets one on its way out is left out.
        with suppress(psutil.NoSuchProcess):
            held = memory(driver)
            if done and held["python"]:  # none is held by a process that has just ended
                seen[done] = held
        time.sleep(0.2)  # samples a curve; nothing waits for it
    output = reading.result()

    assert run.returncode == 0, output[-3000:]
    assert sorted(platform.sql("SELECT id FROM results.rows")["id"]) == sorted(f"r{n}" for n in range(batches))
    third = next(seen[n] for n in sorted(seen) if n >= batches // 3)
    end = seen[max(n for n in seen if n > batches * 0.9)]
    ratios = {name: end[name] / third[name] for name in third}
    print(f"memory after {batches} batches against a third of them: {ratios}, at the end {end}")
    assert ratios["python"] < 1.3
    assert ratios["java"] < 1.5
