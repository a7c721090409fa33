"""What the log says of Airflow's drivers: that each began, and how the last one of a run ended, whatever was killed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onlyonce.commitlog import drivers
from onlyonce.commitlog.drivers import DriverRun, DriverRuns
from onlyonce.core.errors import Refused
from onlyonce.testing.scratch import Processes
from tests.contract.conftest import Log

RUN = ("flights_stream", "manual__1", "flights")


def drive(log: Log) -> None:
    """A driver that ends well."""
    with drivers.noted_run(log.database, *RUN):
        pass


def test_a_driver_continues_what_one_that_has_not_ended_well_has_begun(log: Log) -> None:
    """A retry does; the first driver of a run does not, nor does one of a run that was cleared, while its own retry
    continues what was begun since."""
    told: list[Any] = []
    for error in (None, Refused("early"), Refused("again"), None, None):
        with suppress(Refused), drivers.noted_run(log.database, *RUN) as since:
            told.append(since)
            if error:
                raise error

    first, cleared, retry, last, cleared_again = told
    assert cleared == retry == last
    assert first < cleared < cleared_again


def test_a_driver_whose_task_has_failed_after_it_has_not_ended_well(log: Log) -> None:
    """The next driver continues its work. A driver that has not ended is left as it is."""
    runs = DriverRuns(log.database)
    with drivers.noted_run(log.database, *RUN) as since:
        runs.fail(*RUN, Refused("too early"))
        assert known(log) == DriverRun(1, None, None)
    runs.fail(*RUN, Refused("the events"))
    assert known(log) == DriverRun(1, Refused.exit_code, "the events")

    with drivers.noted_run(log.database, *RUN) as after:
        assert after == since


def known(log: Log) -> DriverRun | None:
    """What a task asks."""
    return DriverRuns(log.database).look(*RUN)


@pytest.mark.parametrize(
    ("point", "said"), [("driver-after-begin", None), ("driver-before-end", None), ("driver-after-end", 0)]
)
def test_a_killed_driver_has_no_end_until_it_was_noted(log: Log, tmp_path: Path, point: str, said: int | None) -> None:
    """So a task takes it for one at work or killed, never for one that ended well; the next one is another attempt."""
    Processes(log, tmp_path).killed(lambda: drive(log), point)
    assert known(log) == DriverRun(1, said, None)

    drive(log)

    assert known(log) == DriverRun(2, 0, None)


def test_a_driver_that_ends_after_another_has_begun_says_nothing_of_it(log: Log) -> None:
    """The newer one is the run's."""

    def older() -> None:
        with drivers.noted_run(log.database, *RUN):
            with drivers.noted_run(log.database, *RUN):
                raise Refused("the newer one")
            raise AssertionError("not reached")

    with drivers.noted_run(log.database, *RUN), pytest.raises(Refused):
        older()

    newest = known(log)
    assert newest is not None
    assert (newest.attempt, newest.exit_code) == (3, Refused.exit_code)
