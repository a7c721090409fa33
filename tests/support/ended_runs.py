"""Runs of the tests' own process that end at a fail-point, as a run whose driver is lost.

Spark's session stays up, so such a run costs a sixth of a driver of its own. A fail-point that Spark's tasks pass can't
end it: these are other processes. `Platform.run_killed` sends SIGKILL to a whole driver.
"""

from __future__ import annotations

from typing import Literal

import pytest

from onlyonce import failpoints
from tests.support.platform import Platform


class _Every(dict[str, tuple[int, str]]):
    """Every fail-point, from its first pass on."""

    def __contains__(self, _: object) -> bool:
        return True

    def __getitem__(self, _: str) -> tuple[int, str]:
        return 1, "fail"


def ended_at(
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    nth: int = 1,
    *arguments: str,
    pipeline: str = "shop",
    command: Literal["run", "backfill"] = "run",
) -> bool:
    """Run or backfill until this pass of a fail-point, or to the end. Return whether the run came to the fail-point.

    From then on every fail-point fails: a driver that is lost takes no further step, neither of this output nor of
    another.
    """
    folder = platform.home / "failpoints"
    folder.mkdir(exist_ok=True)
    (folder / point).unlink(missing_ok=True)
    with monkeypatch.context() as armed:

        def strike(name: str, _: str) -> None:
            armed.setattr(failpoints, "_POINTS", _Every())
            armed.setattr(failpoints, "STRIKES", "")  # what fails from now on is no strike
            raise failpoints.FailPoint(name)

        armed.setattr(failpoints, "_POINTS", {point: (nth, "raise")})
        armed.setattr(failpoints, "_strike", strike)
        armed.setenv("ONLYONCE_FAILPOINT_DIR", str(folder))
        try:
            getattr(platform, command)(pipeline, *arguments)
        except failpoints.FailPoint:
            return True
    return False
