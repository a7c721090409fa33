"""A server of Azure's blobs on this machine: azurite, Microsoft's own, which is a program of Node.

Fetched once by npm into the user's cache.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from onlyonce import environment
from tests.support.platform import free_port
from tests.support.s3 import served

VERSION, TIMEOUT = "3.35.0", 600
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every emulator, and its key, which Microsoft's documents have."""
API = "2021-08-06"


@dataclass(frozen=True)
class Azure:
    """A running server."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead obstore and delta-rs to it."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": self.url,
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }  # fmt: skip

    def bucket(self) -> str:
        """A new container; gives its URL."""
        name = f"b{uuid4().hex[:12]}"
        said = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": API}
        told = (
            "PUT"
            + "\n" * 12
            + "".join(f"{key}:{value}\n" for key, value in said.items())
            + f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        sign = base64.b64encode(hmac.new(base64.b64decode(KEY), told.encode(), hashlib.sha256).digest()).decode()
        made = httpx.put(
            f"{self.url}/{ACCOUNT}/{name}?restype=container",
            headers={**said, "Authorization": f"SharedKey {ACCOUNT}:{sign}"},
        )
        made.raise_for_status()
        return f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"


@contextmanager
def azurite() -> Iterator[Azure]:
    """A server that keeps all in memory.

    Skips without Node and npm, and where the package can't be had, in continuous integration as well: npm is no part of
    what the project needs.
    """
    port = free_port()
    command = [
        "node",
        str(_program()),
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--silent",
        "--disableTelemetry",
    ]
    with served(command, port, environment.inherited()):
        yield Azure(f"http://127.0.0.1:{port}")


def _program() -> Path:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip(
            "there is no Node with npm on this machine: the tests of Azure run against azurite, which is a "
            "program of it"
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onlyonce"
    folder = cache / f"azurite-{VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # The workers of pytest share the cache: one installs, the others wait for it.
        if not folder.exists():
            partial = cache / f".{folder.name}"
            shutil.rmtree(partial, ignore_errors=True)
            done = subprocess.run(
                [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(partial), f"azurite@{VERSION}"],
                capture_output=True, text=True, timeout=TIMEOUT,
            )  # fmt: skip
            if done.returncode:
                pytest.skip(f"azurite could not be fetched by npm: {done.stderr[-500:]}")
            partial.replace(folder)
    return folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
