"""Commands that change what is kept, killed at a fail-point in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.support.platform import JOB_TIMEOUT, ROOT, Platform


def killed(platform: Platform, point: str, module: str, *arguments: str, nth: int = 1) -> bool:
    """Whether the command came there; else it has ended well."""
    folder = platform.home / "failpoints"
    folder.mkdir(exist_ok=True)
    (folder / point).unlink(missing_ok=True)
    armed = {"ONLYONCE_FAILPOINTS": f"{point}:{nth}:kill", "ONLYONCE_FAILPOINT_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, env=os.environ | platform.environment | armed, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=JOB_TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), f"{point}: exit {done.returncode}\n{done.stdout[-3000:]}"
    return done.returncode != 0
