"""Files with secrets: generated once, readable by their owner only, never half written.

Who calls it: the other modules of `onlyonce.local`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write the file in one step; at no moment can another user read it."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(text)
    unfinished.replace(path)


def read_or_make(path: Path, make: Callable[[], dict[str, str]]) -> dict[str, str]:
    """The secrets in the file, which is made at the first call."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, json.dumps(make()) + "\n")
    return dict(json.loads(path.read_text()))
