"""A start of Spark that is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from onlyonce.local import processes

LAUNCHER = """#!/bin/sh
echo $$ > "$LAUNCHED.new"
mv "$LAUNCHED.new" "$LAUNCHED"
exec sleep 600
"""


def test_an_interrupted_start_leaves_no_jvm(tmp_path: Path) -> None:
    """In the JVM's place is a program that does what an interrupted JVM does: it stays, whatever its parent does."""
    launcher, launched = tmp_path / "spark" / "bin" / "spark-submit", tmp_path / "launched"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    variables = {
        "SPARK_HOME": str(tmp_path / "spark"),
        "LAUNCHED": str(launched),
        "ONLYONCE_HOME": str(tmp_path / "home"),
    }
    code = "; ".join(
        (
            "import signal",
            "signal.signal(signal.SIGINT, signal.default_int_handler)",  # a job in a shell's background ignores it
            "from onlyonce.engine import session",
            "session.start('interrupted', 'local[1]')",
        )
    )
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **variables}) as driver:
        processes.wait_until(lambda: launched.exists() or driver.poll() is not None, 60, "the launch")
        jvm = psutil.Process(int(launched.read_text()))
        try:
            driver.send_signal(signal.SIGINT)
            driver.wait(60)
            processes.wait_until(lambda: not jvm.is_running(), 10, "the end of the JVM")
        finally:
            if jvm.is_running():
                jvm.kill()
    assert driver.returncode == -signal.SIGINT
