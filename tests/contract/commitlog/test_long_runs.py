"""Long runs in the log, on the real PostgreSQL: one driver, whoever starts when; its heartbeat; the request to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any

import pytest

from onlyonce.commitlog.drivers import LongRuns, Taken
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core.errors import OnlyonceError, Refused, Superseded
from onlyonce.core.runs import Stopped
from onlyonce.database.connect import Database, forget_connections, transaction
from onlyonce.run import stream
from tests.contract.conftest import Log
from tests.support.long_run import until
from tests.support.steps import Stage
from tests.support.together import together

EVERY = timedelta(seconds=5)
LONG, SHORT = timedelta(minutes=10), timedelta(0)
PATIENCE = 30


@pytest.fixture
def log(log: Log) -> Log:
    """A log with a pipeline that has run."""
    log.start()
    return log


def take(log: Log, driver: str = "m:1:a", beat: timedelta = LONG) -> Taken:
    """A driver takes the place."""
    return LongRuns(log.database).take("shop", "run", driver, every=EVERY, beat=beat)


def states(log: Log) -> list[tuple[Any, ...]]:
    """What the view tells."""
    return log.rows("SELECT attempt, state, driver, rounds, exit_code, error FROM onlyonce.long_runs")


def test_of_drivers_that_start_at_the_same_instant_one_takes_the_place(log: Log) -> None:
    """The first time, when there is no row yet, and over one whose heartbeat has ended."""
    for attempt in (1, 2):
        made = together(*[partial(take, log, f"m:{n}:{attempt}") for n in range(5)])

        assert Counter(type(m).__name__ for m in made) == Counter({"Taken": 1, "Superseded": 4})
        assert [m.attempt for m in made if isinstance(m, Taken)] == [attempt]
        log.rows("UPDATE onlyonce_private.long_runs SET heartbeat_at = heartbeat_at - interval '1 day'")


def test_a_start_waits_for_another_that_has_not_committed(log: Log) -> None:
    """It decides by the row as the other leaves it: that is what keeps two from both finding nobody."""

    def starts(session: str) -> Any:
        with transaction(Database(log.url, session)) as connection:
            LongRuns(connection).take("shop", session, session, every=EVERY, beat=LONG)
            yield
        yield

    with Stage(log.url) as stage:
        first, second = stage.enter("first", starts), stage.enter("second", starts)
        through = [stage.step(first), stage.step(second)]
        first.finish()
        second.finish()

    assert through == [True, False]
    assert first.error is None
    assert isinstance(second.error, Superseded)
    assert [row[:2] for row in states(log)] == [(1, "running")]


def test_after_a_lost_answer_a_driver_knows_its_own_place(log: Log) -> None:
    """Asked again under its name it has the same attempt; another is told who is there."""
    assert take(log) == take(log) == Taken("shop", 1)
    with pytest.raises(Superseded, match="attempt 1"):
        take(log, "m:2:b")


def test_one_whose_heartbeat_has_ended_is_overtaken_and_told_so(log: Log) -> None:
    """Its next beat says who it is not any more; its end changes nothing of the newer one."""
    dead, newer = take(log, beat=SHORT), take(log, "m:2:b")

    with pytest.raises(Superseded, match="attempt 1"):
        LongRuns(log.database).beat(dead, 4)
    LongRuns(log.database).end(dead, 4, 75, "late")

    assert newer.attempt == 2
    assert states(log) == [(2, "running", "m:2:b", 0, None, None)]


def test_a_heartbeat_waits_for_no_commit_and_keeps_none_waiting(log: Log) -> None:
    """A unit holds its epoch FOR SHARE, and a batch its pipeline's row, while the heart beats."""
    driver, taken = log.start("shop", "per_shop"), take(log)

    def unit(session: str) -> Any:
        with transaction(Database(log.url, session)) as connection:
            Incarnations(connection).check_epoch(driver.incarnation, driver.epoch)
            connection.exec_driver_sql("SELECT 1 FROM onlyonce_private.pipelines FOR SHARE")
            yield
        yield

    def beat(session: str) -> Any:
        with transaction(Database(log.url, session)) as connection:
            LongRuns(connection).beat(taken, 1)
            yield
        yield

    with Stage(log.url) as stage:
        units, beats = stage.enter("unit", unit), stage.enter("beat", beat)
        assert [stage.step(units), stage.step(beats)] == [True, True]
        units.finish()
        beats.finish()
    assert (units.error, beats.error) == (None, None)


def test_a_stop_is_told_by_the_next_beat_and_forgotten_by_the_next_driver(log: Log) -> None:
    """It is of one run: who starts the pipeline again means it."""
    taken = take(log)
    before = LongRuns(log.database).beat(taken, 1)
    asked = LongRuns(log.database).ask_stop("shop")
    after = LongRuns(log.database).beat(taken, 2)

    assert (before, asked, after) == (False, True, True)
    assert [row[1] for row in states(log)] == ["stopping"]
    LongRuns(log.database).end(taken, 2, 0, None)
    assert LongRuns(log.database).ask_stop("shop") is False
    assert states(log) == [(1, "stopped", "m:1:a", 2, 0, None)]
    newer = take(log, "m:2:b")
    assert LongRuns(log.database).beat(newer, 0) is False


def test_the_view_tells_of_a_driver_that_was_lost(log: Log) -> None:
    """By its heartbeat; and one that was lost and then asked to stop is not waited for."""
    take(log, beat=SHORT)
    assert [row[1] for row in states(log)] == ["lost"]
    found = LongRuns(log.database).look("shop")
    assert found
    assert found.lost
    LongRuns(log.database).ask_stop("shop")
    assert [row[1] for row in states(log)] == ["stopped"]


def test_before_the_first_long_run_there_is_none(log: Log) -> None:
    """Neither in the view nor for who asks; asking it to stop changes nothing."""
    assert LongRuns(log.database).ask_stop("shop") is False
    assert LongRuns(log.database).look("shop") is None
    assert states(log) == []


def test_status_and_lag_say_that_it_is_running(log: Log) -> None:
    """In place of the incarnation's state, as long as it is at work; then the incarnation's again."""
    taken = take(log)

    def told() -> list[Any]:
        status = Views(log.database).rows("status")
        lag = Views(log.database).rows("lag")
        return [row["state"] for row in status] + [row["long_run"] for row in lag]

    assert told() == ["running", "running"]
    LongRuns(log.database).end(taken, 0, 0, None)
    assert told() == ["live", "stopped"]


# --- the driver's side
# -------------------------------------------------------------------------------------------------


@pytest.fixture
def hold(log: Log, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[stream.LongRun], None]], None]:
    """Does something as the driver of a long run whose heart beats quickly."""
    monkeypatch.setenv("ONLYONCE_HEARTBEAT", "0.05")

    def held(work: Callable[[stream.LongRun], None]) -> None:
        with stream.held_long_run(log.database, "shop", "run", EVERY) as mine:
            work(mine)

    return held


Hold = Callable[[Callable[[stream.LongRun], None]], None]


@pytest.mark.parametrize("how", ["onlyonce stop", "SIGTERM", "Ctrl-C"])
def test_a_driver_that_is_asked_to_stop_does_so_between_two_batches(log: Log, hold: Hold, how: str) -> None:
    """Whoever asks: the turn at work goes on until the next batch would begin, and the end is one as asked."""
    batches: list[int] = []
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def turn() -> bool:
        batches.append(len(batches))
        if how == "onlyonce stop":
            LongRuns(log.database).ask_stop("shop")
        else:
            os.kill(os.getpid(), signal.SIGTERM if how == "SIGTERM" else signal.SIGINT)
        return True

    def run(mine: stream.LongRun) -> None:
        mine.signals.started()
        mine.rounds(turn, timedelta(seconds=PATIENCE))

    hold(run)

    assert batches == [0]
    assert [(row[1], row[3:]) for row in states(log)] == [("stopped", (1, 0, None))]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_a_driver_whose_place_was_taken_stops_before_its_next_batch(log: Log, hold: Hold) -> None:
    """As after a sleep of its machine: its heart finds the newer one, and it ends as superseded, which stays."""
    reached = threading.Event()

    def turn() -> bool:
        log.rows("UPDATE onlyonce_private.long_runs SET attempt = attempt + 1, driver = 'm:2:b'")
        reached.set()
        return True

    with pytest.raises(Superseded, match="another driver has taken the place of attempt 1"):
        hold(lambda mine: mine.rounds(turn, timedelta(seconds=PATIENCE)))
    assert reached.is_set()
    [(attempt, _, *rest)] = states(
        log
    )  # whether the newer one is lost by now is the machine's word: no heart of it beats here
    assert (attempt, *rest) == (2, "m:2:b", 0, None, None)


def test_a_batch_that_would_begin_is_stopped_inside_a_turn_too(log: Log, hold: Hold) -> None:
    """A turn may have a thousand batches before it: what asks between them raises, and nothing else does."""
    done: list[str] = []

    def turn() -> bool:
        for name in ("first", "second", "third"):
            mine_of[0].between_batches()
            done.append(name)
            if name == "second":
                mine_of[0].stop()
        return True

    mine_of: list[stream.LongRun] = []

    def work(mine: stream.LongRun) -> None:
        mine_of.append(mine)
        mine.rounds(turn, timedelta(0))

    hold(work)
    assert done == ["first", "second"]


@pytest.mark.parametrize("error, code", [(Refused("no"), 64), (ZeroDivisionError("what"), 1), (Stopped(), 0)])
def test_the_log_says_how_a_driver_ended(log: Log, hold: Hold, error: Exception, code: int) -> None:
    """With the exit code of its error and its first line, for the supervisor; a stop is no error."""

    def turn() -> bool:
        raise error

    def work(mine: stream.LongRun) -> None:
        mine.rounds(turn, EVERY)

    if code:
        with pytest.raises(type(error)):
            hold(work)
    else:
        hold(work)
    why = None if code == 0 else str(error)
    assert [row[3:] for row in states(log)] == [(0, code, why)]


def test_a_long_run_whose_block_ends_by_itself_has_stopped(log: Log, hold: Hold) -> None:
    """Also for the process, which may live on: no heart beats in it."""
    hold(lambda mine: None)

    assert [row[1:2] + row[3:] for row in states(log)] == [("stopped", 0, 0, None)]
    assert [thread for thread in threading.enumerate() if thread.name == "heartbeat"] == []


def test_a_heart_goes_on_when_the_database_was_away(log: Log, hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session is ended in mid-run; the next beats are there, and the driver goes on."""

    def beats() -> Any:
        return log.rows("SELECT heartbeat_at FROM onlyonce_private.long_runs")

    def turn() -> bool:
        log.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'onlyonce-long%'")
        before, left = beats(), PATIENCE * 20
        while beats() == before and left:
            threading.Event().wait(0.05)
            left -= 1
        assert left, "no heartbeat came"
        raise Stopped

    hold(lambda mine: mine.rounds(turn, EVERY))
    assert [row[1] for row in states(log)] == ["stopped"]
    forget_connections()


def test_a_second_start_takes_nothing(log: Log, hold: Hold) -> None:
    """While one holds the place another is refused before it does anything, and the first goes on."""

    def turn() -> bool:
        with pytest.raises(OnlyonceError, match="a continuous run is active"):
            hold(lambda mine: mine.rounds(lambda: True, EVERY))
        raise Stopped

    hold(lambda mine: mine.rounds(turn, EVERY))
    assert [row[:2] for row in states(log)] == [(1, "stopped")]


def test_the_place_of_a_driver_is_free_as_soon_as_its_session_ends(
    log: Log, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeat counts as young for minutes; the next driver is let in at once, and not before.

    So is the one that stands by.
    """
    monkeypatch.setenv("ONLYONCE_HEARTBEAT", "60")
    ends = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'onlyonce-place/shop'"
    attempts: list[int] = []

    def first(mine: stream.LongRun) -> None:
        with pytest.raises(Superseded):
            hold(lambda mine: None)
        standing = Thread(
            target=lambda: attempts.append(
                stream.wait_for_turn(log.database, "shop", stream.Place(log.database, "shop"))
            )
        )
        standing.start()
        standing.join(1.0)
        assert standing.is_alive()
        log.rows(ends)
        standing.join(PATIENCE)
        log.rows(ends)  # that of the one that stood by
        hold(lambda mine: attempts.append(mine.taken.attempt))

    hold(first)
    assert attempts == [True, 2]


def test_a_driver_that_stands_by_ends_with_the_one_that_is_asked_to_stop(log: Log, hold: Hold) -> None:
    found: list[bool] = []
    standing = Thread(
        target=lambda: found.append(stream.wait_for_turn(log.database, "shop", stream.Place(log.database, "shop")))
    )

    def work(mine: stream.LongRun) -> None:
        standing.start()
        places = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onlyonce-place/shop' AND datname = "
            "current_database()"
        )
        until(lambda: log.rows(places) == [(2,)], "one that stands by")  # it has looked who is at work by then
        LongRuns(log.database).ask_stop("shop")
        mine.rounds(lambda: True, timedelta(milliseconds=10))

    hold(work)
    standing.join(PATIENCE)
    assert found == [False]
