"""What is ours is found and stopped, whoever its parent is by then; what is not is left alone."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from onlyonce.core.errors import Refused
from onlyonce.local import processes

# Ignores SIGTERM and starts a child in a session of its own: the hard case.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""


def start_stubborn(home: Path) -> None:
    processes.spawn("stubborn", [sys.executable, "-c", STUBBORN], dict(os.environ), home)
    processes.wait_until(lambda: len(processes.ours(home)) == 2, 60, "the child")
    processes.wait_until(lambda: "ready" in (home / "logs" / "stubborn.log").read_text(), 60, "its word")


def test_everything_that_we_started_ends(tmp_path: Path) -> None:
    start_stubborn(tmp_path)
    found = processes.find("stubborn", tmp_path)
    assert found is not None
    found.kill()  # its child has no parent of ours now
    found.wait(60)
    assert processes.find("stubborn", tmp_path) is None
    assert processes.has_ended("stubborn", tmp_path)
    assert len(processes.ours(tmp_path)) == 1
    assert processes.stop(processes.ours(tmp_path), patience=0.5) == []
    assert processes.ours(tmp_path) == []


def test_who_ignores_the_request_is_killed(tmp_path: Path) -> None:
    start_stubborn(tmp_path)
    began = time.monotonic()
    assert processes.stop(processes.ours(tmp_path), patience=0.5) == []
    assert time.monotonic() - began < 5
    assert processes.ours(tmp_path) == []


def test_a_platform_does_not_touch_another(tmp_path: Path) -> None:
    start_stubborn(tmp_path / "one")
    try:
        assert processes.ours(tmp_path / "two") == []
    finally:
        processes.stop(processes.ours(tmp_path / "one"), patience=0)


def test_a_pid_file_of_another_incarnation_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "scheduler.pid").write_text(f'{{"pid": {os.getpid()}, "create_time": 1.0}}')
    assert processes.find("scheduler", tmp_path) is None


def test_a_taken_port_is_one_line_that_names_port_owner_and_variable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Refused) as refusal:
            processes.require_free_port(port, "the test", "ONLYONCE_TEST_PORT")
    assert f"port {port} on 127.0.0.1, wanted for the test, is taken by" in refusal.value.what
    assert f"process {os.getpid()}" in refusal.value.what
    assert "ONLYONCE_TEST_PORT=<port>" in refusal.value.hint
