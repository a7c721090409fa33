"""Long suites in parts: what was played is kept in a file, so that the next session goes on where this one was broken
off.

ONLYONCE_FAULT_PARTS names the folder of these files (remove it to begin anew), ONLYONCE_FAULT_MINUTES how long one part
lasts.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tests.support.platform import ROOT

FOLDER = Path(os.environ.get("ONLYONCE_FAULT_PARTS", ROOT / ".fault-parts"))


class Parts:
    """What was played of one suite, one JSON object a line."""

    def __init__(self, suite: str) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._file = FOLDER / f"{suite}.jsonl"
        self._until = time.monotonic() + 60 * float(os.environ.get("ONLYONCE_FAULT_MINUTES", "inf"))
        # The last line of a session that was killed may be half there.
        lines = self._file.read_text().splitlines(keepends=True) if self._file.exists() else []
        self.played: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("\n")]
        if lines and not lines[-1].endswith("\n"):
            self._file.write_text("".join(lines[:-1]))

    def add(self, played: dict[str, Any]) -> None:
        """Keep what was played."""
        self.played.append(played)
        with self._file.open("a") as file:
            file.write(json.dumps(played) + "\n")

    def is_over(self) -> bool:
        """Whether the time of this part is over."""
        return time.monotonic() > self._until
