"""PostgreSQL itself fails: the server is killed and comes back, its disk is full and gets room again.

The job is played without Spark (`play.py`) against a server of its own; the oracle is that of the kills.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg2
import pytest

from onlyonce.database.connect import forget_connections
from onlyonce.database.migrate import migrate
from onlyonce.local import postgres
from tests.contract.database.test_server_deaths import kill, own_server  # noqa: F401 - a fixture
from tests.fault.matrix.world import AGAIN, World
from tests.fault.matrix.zygote import Zygote
from tests.support.platform import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

MIB = 1 << 20
DISK = 64 * MIB
STRIKES = [
    ("receive", "start-after-bump"), ("receive", "receive-after-begin"), ("receive", "receive-unit-after-claim"),
    ("receive", "receive-unit-before-commit"), ("receive", "receive-unit-after-commit"),
    ("receive", "receive-after-delta"), ("receive", "receive-before-end"), ("receive", "marker-after-delta"),
    ("appended", "postgres-unit-after-rows"), ("upserted", "postgres-unit-before-commit"),
    ("added", "postgres-unit-after-claim"), ("added", "postgres-unit-after-rows"), ("added", "postgres-unit-after-commit"),
    ("filed", "delta-unit-after-claim"), ("filed", "delta-after-write"), ("staged", "output-before-end"),
]  # fmt: skip
"""Inside a unit's transaction, between two, and around the Delta commits."""
FILLED = [
    ("receive", "receive-after-begin"), ("receive", "receive-unit-after-claim"),
    ("appended", "postgres-before-units"), ("upserted", "postgres-unit-after-claim"),
    ("added", "postgres-unit-after-claim"), ("staged", "postgres-unit-before-claim"),
]  # fmt: skip
"""Before rows that need a page of their own."""


@pytest.fixture
def world(own_server: Server, zygote: Zygote, tmp_path: Path) -> World:  # noqa: F811
    """A database on a server of this test's own."""
    url = own_server.url("writer", own_server.new_database())
    migrate(url)
    return World(url, tmp_path, zygote)


def test_a_server_killed_anywhere_does_not_show(own_server: Server, world: World) -> None:  # noqa: F811
    """SIGKILL to the postmaster while the job stands at a point; the server comes back, the job goes on or runs
    again."""
    for kind, point in STRIKES:
        run = world.new(kind)
        job = run.start_stopped(point)
        kill(own_server)
        job.send_signal(signal.SIGCONT)
        postgres.start()
        world.connect()
        code = run.end_of(job)
        assert code in {0, *AGAIN}, f"exit {code}\n{run.told()}"
        run.finish()
        run.held("server killed", f"{kind} {point}")


@pytest.fixture
def small_disk(own_server: Server) -> Iterator[Path]:  # noqa: F811
    """A file system of a few MiB that the server may write to."""
    pid = int((own_server.folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    owner = psutil.Process(pid).uids().real
    folder = own_server.folder / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},uid={owner},mode=0700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system of its own needs root and the right to mount")
    (folder / "data").mkdir()
    os.chown(folder / "data", owner, -1)
    yield folder
    forget_connections()
    postgres.stop()
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all room that is left; gives the file that takes it."""
    ballast = folder / "ballast"
    with ballast.open("wb") as file:
        for size in (MIB, 4096):
            while shutil.disk_usage(folder).free >= size:
                file.write(b"x" * size)
                file.flush()
    return ballast


def test_a_full_disk_of_the_server_does_not_show(
    own_server: Server,  # noqa: F811
    small_disk: Path,
    zygote: Zygote,
    tmp_path: Path,
) -> None:
    """The job ends with the one error that says: run it again (75); with room it does, and nothing is lost or
    doubled."""
    admin = psycopg2.connect(own_server.url("admin").replace("+psycopg2", ""))
    admin.autocommit = True
    cursor = admin.cursor()
    cursor.execute(f"CREATE TABLESPACE small LOCATION '{small_disk / 'data'}'")
    cursor.execute('CREATE DATABASE "on_small" OWNER onlyonce_writer TABLESPACE small')
    admin.close()
    url = own_server.url("writer", "on_small")
    migrate(url)
    world = World(url, tmp_path, zygote)
    for kind, point in FILLED:
        run = world.new(kind)
        job = run.start_stopped(point, ONLYONCE_DATABASE_PATIENCE="2")
        ballast = fill(small_disk)
        job.send_signal(signal.SIGCONT)
        code = run.end_of(job)
        told = run.told()
        ballast.unlink()
        assert (code, "No space left on device" in told) == (75, True), f"{kind} {point}: exit {code}\n{told}"
        run.finish()
        run.held("disk full", f"{kind} {point}")
    world.session.close()
