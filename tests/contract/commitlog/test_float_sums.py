"""What a unit says of its float columns comes back from the log as it was, also what JSON has no sign for."""

from __future__ import annotations

from math import inf, nan

import pytest

from onlyonce.commitlog import units
from onlyonce.commitlog.units import Units
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import run
from onlyonce.sinks.base import content as base_content
from tests.contract.conftest import Log

VALUES = [0.0, -1.5, 1e308, 5e-324, nan, inf, -inf]


@pytest.mark.parametrize("value", VALUES)
def test_a_sum_comes_back_as_it_was(log: Log, value: float) -> None:
    """A replay compares equal with what is there, and every other value does not."""
    driver = log.start("shop", "out")
    unit = UnitId(driver.incarnation, 0, "out", 0)
    content = Content(3, "hash", {"weight": base_content.of([value])})

    def write(connection: object) -> None:
        Units(connection).claim(units.Claim(unit, driver.epoch, "test", "data"))  # type: ignore[arg-type]
        Units(connection).fill(unit, content)  # type: ignore[arg-type]

    run(log.database, write)
    there = Units(log.database).find(unit)

    assert there is not None
    same = [other for other in VALUES if there.same_as(Content(3, "hash", {"weight": base_content.of([other])}))]
    assert list(map(str, same)) == [str(value)]
