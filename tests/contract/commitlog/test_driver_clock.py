"""A driver whose clock is far from PostgreSQL's registers nothing: ingestion time never moves back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest

from onlyonce.commitlog import drivers
from onlyonce.commitlog.drivers import DriverClock, DriverRuns
from onlyonce.core.errors import Refused
from tests.contract.conftest import Log

YEAR = timedelta(days=365).total_seconds()


class Times(SimpleNamespace):
    """The clocks of a machine, as they may be set."""

    wrong = 0.0

    def time(self) -> float:
        """The clock that people see."""
        return time.time() + self.wrong

    def monotonic(self) -> float:
        """The steady clock."""
        return time.monotonic()


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    """The clocks of this machine."""
    found = Times()
    monkeypatch.setattr(drivers, "time", found)
    return found


@pytest.mark.parametrize("wrong", [-YEAR, -310.0, 310.0, YEAR])
def test_a_clock_far_from_the_databases_is_refused(log: Log, times: Times, wrong: float) -> None:
    """In both directions; also if it is set during a run. Nearly five minutes are allowed."""
    clock = DriverClock(log.database)
    for allowed in (0.0, 290.0, -290.0):
        times.wrong = allowed
        clock.check()
    times.wrong = wrong
    with pytest.raises(Refused, match=r"and PostgreSQL's .* they differ by"):
        clock.check()
    with pytest.raises(Refused, match="they differ by"):
        clock.check()
    times.wrong = 0.0
    clock.check()


def test_a_clock_that_drifts_is_compared_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ten minutes, and not at each of the polls of a long run."""
    asked: list[str] = []
    clock_of = DriverRuns.clock

    def counted(runs: DriverRuns, here: Callable[[], float]) -> tuple[float, float]:
        asked.append("clock")
        return clock_of(runs, here)

    monkeypatch.setattr(DriverRuns, "clock", counted)
    clock = DriverClock(log.database)
    for _ in range(100):
        clock.check()
    assert asked == ["clock"]
    monkeypatch.setattr(drivers, "AGAIN_SECONDS", 0.0)
    clock.check()
    assert asked == ["clock"] * 2
