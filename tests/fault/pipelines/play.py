"""The harness: each step of a case is run and struck, by a seed; then it is run to its end and held against a batch.

A strike kills a driver with its JVM and its workers there (`driver`) or at a moment of
its own between two points (`moment`), or kills one Python worker, which Spark replaces (`worker`).
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.fault.pipelines.case import Case
from tests.support.warm_drivers import WarmDrivers

How = Literal["driver", "moment", "worker"]
WORKERS = ("postgres-unit-", "receive-unit-", "processor-")
"""Points that Python workers pass, if receive leaves its batches to them."""
AT_THE_END = ("close-", "backfill-")
"""Points that a run passes once, if its input ends."""
BY_TASKS = {"ONLYONCE_IN_DRIVER_BYTES": "0"}
MOMENTS = 12
SECONDS = 0.7


@dataclass(frozen=True)
class Strike:
    """At the nth pass of a point; a moment is so many seconds after the nth pass of any."""

    how: How
    point: str
    nth: int
    seconds: float = 0.0


def strikes(case: type[Case], chance: random.Random, how: tuple[How, ...]) -> list[Strike]:
    """One for each step, in one of these ways; of worker's the point is one that a worker passes."""
    found = []
    for step in range(case.steps):
        points, way = case.all_points(), chance.choice(how)
        if step < case.steps - 1:
            points = tuple(point for point in points if not point.startswith(AT_THE_END))
        if way == "worker":
            points = tuple(point for point in (*points, "receive-unit-after-commit") if point.startswith(WORKERS))
        point = chance.choice(points)
        nth = 1 if point.startswith(AT_THE_END) else chance.choice((1, 1, 2))
        found.append(
            Strike(way, point, chance.randrange(1, MOMENTS) if way == "moment" else nth, chance.uniform(0, SECONDS))
        )
    return found


def play(case: Case, drivers: Callable[[], WarmDrivers], planned: list[Strike]) -> None:
    """Its steps, each struck; raises AssertionError where the strikes show."""
    struck = 0
    for step, strike in enumerate(planned):
        case.give(step)
        closing = ["--close"] if step == case.steps - 1 else []
        for name in case.names:
            struck += _strike(case, drivers, strike, [name, *closing])
        case.after(step)
    for name in case.names:
        case.platform.run(name, "--close")
    assert struck, f"no strike of {planned} was reached"
    case.check()


def _strike(case: Case, drivers: Callable[[], WarmDrivers], strike: Strike, arguments: list[str]) -> bool:
    if strike.how == "moment":
        code, told = drivers().run_for(case.platform, strike.nth, strike.seconds, *arguments)
    else:
        action, more = ("kill-process", BY_TASKS) if strike.how == "worker" else ("kill", {})
        code, told = drivers().run(case.platform, strike.point, strike.nth, *arguments, action=action, **more)
    assert code in ((0,) if strike.how == "worker" else (0, -signal.SIGKILL)), f"{strike}: exit {code}\n{told[-3000:]}"
    return code != 0 or (strike.how == "worker" and case.platform.struck(strike.point) >= strike.nth)
