"""A sink in another database than the log, a driver that is killed or stopped there, and a new incarnation: each row once.

Without Spark the same is asked in tests/contract/commitlog/test_authorities.py, in all its cases.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil
import pytest

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.run import reset
from tests.fault.test_kills import SUPERSEDED, put_all
from tests.support import shop_oracle
from tests.support.ended_runs import ended_at
from tests.support.platform import JOB_TIMEOUT, Platform, Server, multiset

pytestmark = [pytest.mark.spark, pytest.mark.fault]
FILES = shop_oracle.sales(60, 1)
ONCE = multiset(shop_oracle.distinct(FILES), "id", "cents")


@pytest.fixture
def apart(
    new_platform: Callable[..., Platform], server: Server, monkeypatch: pytest.MonkeyPatch
) -> tuple[Platform, str]:
    """The platform with its input, and the URL of the sink's database."""
    url = server.url("writer", server.new_database())
    platform = new_platform("tests/support/two_databases.py")
    platform.give(monkeypatch, TEST_OTHER_DATABASE=url)
    put_all(platform, FILES)
    return platform, url


def rows(platform: Platform, url: str) -> Counter[Any]:
    """What the sink holds."""
    return multiset(platform.sql("SELECT id, cents FROM results.plain", url))


@pytest.mark.whole
def test_a_kill_after_the_units_there_and_a_lost_checkpoint_write_nothing_twice(
    apart: tuple[Platform, str], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """The log has none of the units yet.

    Whether a new incarnation is refused or finishes the batch: the rows are there once.
    """
    platform, url = apart
    assert ended_at(platform, monkeypatch, "postgres-after-units")
    assert rows(platform, url) == ONCE
    folder = settings.data_dir("shop") / "checkpoints" / "plain" / "1"
    saved = shutil.move(folder, platform.home / "lost")

    with suppress(Refused):
        reset.new("shop/plain", yes=True)
    incarnations = platform.sql("SELECT ordinal FROM onlyonce_private.incarnations WHERE query = 'plain'")
    if incarnations["ordinal"].tolist() == [1]:
        shutil.move(saved, folder)
    platform.run("shop")

    assert rows(platform, url) == ONCE
    assert platform.sql("SELECT 1 FROM onlyonce.batches WHERE state = 'begun'").empty


@pytest.mark.slow
def test_a_zombie_before_its_commit_there_adds_nothing_to_a_new_incarnation(
    apart: tuple[Platform, str], spark: object
) -> None:
    """Stopped by SIGSTOP and woken when the new incarnation has written all: it ends, superseded, and each row is there
    once."""
    platform, url = apart
    folder = platform.home / "failpoints"
    folder.mkdir()
    armed = {"ONLYONCE_FAILPOINTS": "postgres-unit-before-commit:1:stop", "ONLYONCE_FAILPOINT_DIR": str(folder)}
    driver = platform.start("shop", **armed)
    try:
        stopped = _stopped(psutil.Process(driver.pid))

        reset.new("shop/plain", yes=True)
        platform.run("shop")
        assert rows(platform, url) == ONCE
        stopped.send_signal(signal.SIGCONT)
        output, _ = driver.communicate(timeout=JOB_TIMEOUT)
    finally:
        if driver.poll() is None:
            for process in [*psutil.Process(driver.pid).children(recursive=True), psutil.Process(driver.pid)]:
                process.kill()

    assert driver.returncode == SUPERSEDED, output[-3000:]
    assert "nothing of this driver was left half done" not in output
    assert rows(platform, url) == ONCE


def _stopped(driver: psutil.Process) -> psutil.Process:
    """The worker that has stopped itself."""
    until = time.monotonic() + JOB_TIMEOUT
    while time.monotonic() < until:
        assert driver.status() != psutil.STATUS_ZOMBIE, "the driver has ended"
        for child in driver.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if child.status() == psutil.STATUS_STOPPED:
                    return child
        time.sleep(0.1)
    raise AssertionError("nothing has stopped")
