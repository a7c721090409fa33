"""What a driver that starts, and a supervisor, do with the last long run of a pipeline: by its row alone, at any
age."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from onlyonce.core.errors import EXIT_CODES, Refused, Superseded
from onlyonce.core.runs import (
    BEATS,
    LongRun,
    Stopped,
    ending,
    first_cause,
    lost_after,
    on_start,
    on_watch,
    refuse_beside,
    standing_by,
)

BEAT = timedelta(seconds=5)
ALIVE = LongRun(
    instance="shop", attempt=3, run_id="manual__1", driver="m:7:abc", quiet=timedelta(seconds=1),
    lost_after=lost_after(BEAT), rounds=9, stop_asked=False, exit_code=None, why=None,
)  # fmt: skip
LOST = replace(ALIVE, quiet=lost_after(BEAT))


def ended(code: int, **other: Any) -> LongRun:
    """One that said how it ended."""
    return replace(ALIVE, exit_code=code, why="it", **other)


def test_a_driver_counts_as_dead_after_so_many_beats_and_not_before() -> None:
    """The edge itself is dead: readers of the view decide the same way."""
    assert replace(ALIVE, quiet=BEAT * BEATS - timedelta(microseconds=1)).alive
    assert not replace(ALIVE, quiet=BEAT * BEATS).alive
    assert LOST.lost


def test_nothing_drives_beside_a_living_one() -> None:
    """Also when it was asked to stop: until it has, it is at work."""
    for known in (ALIVE, replace(ALIVE, stop_asked=True)):
        with pytest.raises(Superseded, match="attempt 3") as refused:
            refuse_beside(known)
        assert "onlyonce stop shop" in refused.value.hint


def test_a_driver_whose_lock_is_released_stops_nobody_however_young_its_heartbeat() -> None:
    """One of an older version has no lock, so only its heartbeat says that it has ended."""
    refuse_beside(replace(ALIVE, uses_lock=True), lock_is_free=True)
    with pytest.raises(Superseded):
        refuse_beside(replace(ALIVE, uses_lock=False), lock_is_free=True)


HELD = replace(ALIVE, uses_lock=True)


@pytest.mark.parametrize(
    "seen, now, lock_is_free, does",
    [
        (None, None, True, "take"),
        (LOST, LOST, False, "take"),
        (ended(0), ended(0), True, "take"),  # whoever starts it means it
        (HELD, HELD, False, "wait"),
        (HELD, replace(HELD, stop_asked=True), False, "wait"),
        (HELD, HELD, True, "take"),  # killed
        (HELD, ended(75, uses_lock=True), True, "take"),
        (HELD, replace(HELD, quiet=lost_after(BEAT)), False, "take"),  # it hangs, and holds its lock
        (HELD, ended(0, uses_lock=True), True, "take"),  # by SIGTERM: its machine shuts down
        (HELD, ended(0, uses_lock=True, stop_asked=True), True, "leave"),
        (HELD, replace(HELD, stop_asked=True), True, "leave"),  # killed while it was stopping
        (HELD, replace(HELD, attempt=4), False, "wait"),  # another was quicker
        (HELD, ended(0, attempt=4, stop_asked=True), True, "leave"),  # whichever was at work meanwhile
        (replace(HELD, stop_asked=True), ended(0, stop_asked=True), True, "take"),  # it was stopping before
        (ALIVE, ALIVE, True, "wait"),  # of an older version: the free lock says nothing
    ],
)
def test_a_driver_that_stands_by_takes_the_place_of_one_that_nobody_stopped(
    seen: LongRun | None, now: LongRun | None, lock_is_free: bool, does: str
) -> None:
    assert standing_by(seen, now, lock_is_free=lock_is_free) == does


@pytest.mark.parametrize("known", [None, LOST, ended(0), ended(75), ended(64), replace(LOST, stop_asked=True)])
def test_what_is_not_alive_stops_nobody_from_starting(known: LongRun | None) -> None:
    """However it ended, and whatever was asked of it: a person who starts it again means it."""
    refuse_beside(known)
    assert on_start(known) == "start"


def test_a_start_attaches_to_the_living_and_waits_for_one_that_is_stopping() -> None:
    """So a cleared run really runs again, after the one before has ended."""
    assert on_start(ALIVE) == "attach"
    assert on_start(replace(ALIVE, stop_asked=True)) == "wait"


@pytest.mark.parametrize(
    "known, does",
    [
        (ALIVE, "watch"),
        (replace(ALIVE, stop_asked=True), "watch"),
        (ended(0), "done"),
        (ended(0, stop_asked=True, rounds=0), "done"),
        (ended(75, stop_asked=True), "done"),
        (replace(LOST, stop_asked=True), "done"),
        (LOST, "start"),
        (ended(75), "start"),
        (ended(69), "start"),
        (ended(1), "start"),
        (replace(LOST, rounds=0), "retry"),
        (ended(75, rounds=0), "retry"),
        (ended(1, rounds=0), "retry"),
        (ended(64), "fail"),
        (ended(70), "fail"),
        (ended(64, rounds=0), "fail"),
        (None, "start"),
    ],
)
def test_a_supervisor_starts_again_what_died_and_nothing_else(known: LongRun | None, does: str) -> None:
    """A stop that was asked for holds; what needs a person fails; a driver that never gets through a turn is no
    loop."""
    assert on_watch(known) == does


def test_whatever_the_row_says_there_are_never_two() -> None:
    """Over all rows: a driver is started by nobody, supervisor or person, while one is alive."""
    for code, quiet, stop, rounds in product(
        [None, 0, 1, *EXIT_CODES], [timedelta(0), BEAT * BEATS, timedelta(days=1)], [False, True], [0, 1]
    ):
        known = replace(ALIVE, exit_code=code, quiet=quiet, stop_asked=stop, rounds=rounds)
        starts = on_start(known) == "start", on_watch(known) == "start"
        assert not (known.alive and any(starts)), known
        assert starts[0] == (not known.alive)


def test_an_end_is_told_with_its_cause() -> None:
    """The heartbeat's, or the driver's own."""
    assert "heartbeat of attempt 3 on m:7:abc ended 30 s ago" in ending(LOST)
    assert "exit code 75: it" in ending(ended(75))


def test_a_run_ends_with_the_first_failure_and_with_a_stop_only_where_there_is_none() -> None:
    """A failure asks all others to stop, and one may fail in the batch that it was let to end."""
    first, second, stop = Refused("first"), Refused("second"), Stopped()

    assert first_cause([stop, first, Stopped(), second]) is first
    assert first_cause([stop, Stopped()]) is stop
