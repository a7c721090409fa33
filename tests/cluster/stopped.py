"""The processes that a fail-point has stopped, so that a test can strike elsewhere and let them continue."""

from __future__ import annotations

from contextlib import suppress

import psutil


def stopped(root: psutil.Process) -> list[psutil.Process]:
    """The processes below one, and itself, that a fail-point has stopped."""
    found = []
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                found.append(process)
    return found
