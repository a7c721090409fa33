"""Programs of the tests that are Go, since what they are made of is: Google's fake of Pub/Sub, the loader of `docker compose`, a server of S3.

Each is built once, from its folder, into the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.needed import missing

BUILD_TIMEOUT = 900
SOURCES = ("*.go", "go.mod", "go.sum")


def built(source: Path, why: str, package: str = ".") -> Path:
    """The program of a folder, or of a package that its go.mod names, built if its sources are new. Skips without Go; `why` says what it is needed for."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if go is None:
        missing(f"no Go: {why}")
    content = b"".join(file.read_bytes() for pattern in SOURCES for file in sorted(source.glob(pattern)))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onlyonce"
    program = cache / f"{source.name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = cache / f".{program.name}.{os.getpid()}"
        done = subprocess.run(
            [str(go), "build", "-o", str(partial), package], cwd=source, capture_output=True, text=True, timeout=BUILD_TIMEOUT
        )  # fmt: skip
        if done.returncode:
            missing(f"{source.name} could not be built, {why}: {done.stderr[-500:]}")
        partial.replace(program)
    return program
