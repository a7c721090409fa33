"""A platform of its own for a test: another folder, free ports, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from onlyonce.local import platform


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """The folder of a platform that is stopped at the end. pytest's own folders may be entered by root only."""
    folder = Path(tempfile.mkdtemp(prefix="onlyonce-test-")).resolve()
    folder.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONLYONCE_HOME", str(folder / "home"))
        patch.setenv("ONLYONCE_PG_PORT", str(free_port()))
        patch.setenv("ONLYONCE_AIRFLOW_PORT", str(free_port()))
        for name in ("ONLYONCE_DATABASE_URL", "ONLYONCE_READER_URL", "ONLYONCE_PIPELINES", "ONLYONCE_MASTER"):
            patch.delenv(name, raising=False)
        try:
            yield folder / "home"
        finally:
            platform.down()
            if "ONLYONCE_KEEP" not in os.environ:
                shutil.rmtree(folder, ignore_errors=True)
