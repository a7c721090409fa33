"""Programs of the tests that are Go, since what they are made of is: Google's fake of Pub/Sub, the loader of `docker
compose`, a server of S3.

Each is built once, from its folder, into the user's cache: `python -m tests.support.go_programs` builds all of them
before the tests begin.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.needed import missing

BUILD_TIMEOUT = 900
SOURCES = ("*.go", "go.mod", "go.sum")
PACKAGES = {"s3_server": "github.com/versity/versitygw/cmd/versitygw"}
"""The packages of programs that are not in their folder: its go.mod names the version."""


def built(source: Path, why: str) -> Path:
    """Return the program of a folder, built if its sources are new.

    Skip the test without Go; `why` says what the program is needed for.
    """
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if go is None:
        missing(f"no Go: {why}")
    content = b"".join(file.read_bytes() for pattern in SOURCES for file in sorted(source.glob(pattern)))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onlyonce"
    program = cache / f"{source.name}-{hashlib.sha256(content).hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{source.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # The workers of pytest share the cache: one builds, the others wait for it.
        if not program.exists():
            partial = cache / f".{program.name}"
            done = subprocess.run(
                [str(go), "build", "-o", str(partial), PACKAGES.get(source.name, ".")], cwd=source, capture_output=True, text=True, timeout=BUILD_TIMEOUT
            )  # fmt: skip
            if done.returncode:
                missing(f"{source.name} could not be built, {why}: {done.stderr[-500:]}")
            partial.replace(program)
    return program


if __name__ == "__main__":
    with suppress(pytest.skip.Exception, pytest.fail.Exception):  # a test that needs the program says what is missing
        for module in sorted(Path(__file__).parents[1].rglob("go.mod")):
            built(module.parent, "for all tests")
