"""Halves of a suite, for a machine that has no time for all of it: which one runs alternates (`.ci/run`).

ONLYONCE_TEST_HALF=0 or 1 chooses. A file is in one half, by the checksum of its name.
"""

from __future__ import annotations

import os
import zlib

import pytest

VARIABLE = "ONLYONCE_TEST_HALF"


def of(nodeid: str) -> str:
    """Return the half in which the file of a test is."""
    return str(zlib.crc32(nodeid.partition("::")[0].encode()) % 2)


def keep(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests of the other half out. Raises UsageError for a half that does not exist."""
    half = os.environ.get(VARIABLE)
    if not half:
        return
    if half not in ("0", "1"):
        raise pytest.UsageError(f"{VARIABLE}={half}: it is 0 or 1")
    config.hook.pytest_deselected(items=[item for item in items if of(item.nodeid) != half])
    items[:] = [item for item in items if of(item.nodeid) == half]
