"""A kill in a Spark session that lives on: a fail-point that raises, in this process or in Spark's Python workers.

All points are armed at their pass number FAR, by the environment with which the workers start. Where a point's count of
passes begins decides when it strikes, so that one session serves many cases.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onlyonce import failpoints

FAR = 100_000
IN_WORKERS = ("postgres-unit-", "files-unit-")
LOOK_SECONDS = 0.05


class Strikes:
    """The points of one session. Used by one thread."""

    def __init__(self, folder: Path, points: tuple[str, ...]) -> None:
        self._folder, self._points = folder, points
        self._armed = threading.Event()
        self.environment = {
            "ONLYONCE_FAILPOINTS": ",".join(f"{point}:{FAR}:fail" for point in points),
            "ONLYONCE_FAILPOINT_DIR": str(folder),
        }

    @contextmanager
    def at_hand(self, spark: Any) -> Iterator[None]:
        """This process and the workers that Spark starts from now on pass the points."""
        self._spark = spark
        of_workers = spark.sparkContext.environment
        before = dict(of_workers)
        of_workers.update(self.environment)
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("ONLYONCE_FAILPOINT_DIR", str(self._folder))
            patched.setattr(failpoints, "_POINTS", dict.fromkeys(self._points, (FAR, "fail")))
            yield
        of_workers.clear()
        of_workers.update(before)

    def arm(self, point: str, nth: int) -> None:
        """Strike at the nth pass from now on, and at each later one."""
        self.disarm()
        (self._folder / point).write_bytes(bytes(FAR - nth))
        if point.startswith(IN_WORKERS):
            self._armed.set()
            threading.Thread(target=self._cancel, args=(point,), daemon=True).start()

    def _cancel(self, point: str) -> None:
        """End the job with the task that was struck: Spark would try it three times more, each in a worker that starts
        anew."""
        while self._armed.is_set():
            if self.struck(point):
                self._spark.sparkContext.cancelAllJobs()
                return
            time.sleep(LOOK_SECONDS)

    def disarm(self) -> None:
        """Strike no more."""
        self._armed.clear()
        for path in self._folder.iterdir():
            path.unlink()

    def struck(self, point: str) -> bool:
        """Whether it has struck since it was armed."""
        path = self._folder / point
        return path.exists() and path.stat().st_size >= FAR
