"""How a query is started again, and stopped: with a stand-in for Spark's query, and no JVM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.context import RESTARTS, Query, run_query
from onlyonce.core.errors import InvariantBroken, Retryable
from onlyonce.core.runs import Stopped
from onlyonce.database.connect import Database
from onlyonce.engine.failures import OTHER_DRIVER

FENCED = RuntimeError(f"[{OTHER_DRIVER[0]}]")


class Running:
    """Spark's side of a query: each wait for its end plays the next step; a step gives whether it has ended, or
    raises."""

    def __init__(self, steps: list[Callable[[Running], bool]]) -> None:
        self.steps, self.on_batch = steps, None
        self.trigger_active, self.stopped_in = False, list[bool]()

    def awaitTermination(self, _: float) -> bool:
        return True if self.stopped_in else self.steps.pop(0)(self)

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": self.trigger_active}

    def stop(self) -> None:
        self.stopped_in.append(self.trigger_active)


class Frame:
    """A frame whose stream starts the given queries, one after the other; the calls of its writer are of no matter."""

    def __init__(self, *runs: Running) -> None:
        self.runs, self.started = list(runs), 0
        self.writeStream = self

    def __getattr__(self, _: str) -> Callable[..., Frame]:
        return lambda *_, **__: self

    def foreachBatch(self, on_batch: Any) -> Frame:
        self.runs[self.started].on_batch = on_batch
        return self

    def start(self) -> Running:
        self.started += 1
        return self.runs[self.started - 1]


@pytest.fixture
def drain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Drains a frame under an epoch that stays the highest."""
    monkeypatch.setattr(Incarnations, "check_epoch", lambda *_: None)

    def drained(frame: Frame, between: Callable[[], None] = lambda: None, look: Any = lambda _: None) -> None:
        driver = Driver("shop/receive/1", 1, 1, "run")
        query = Query(driver, tmp_path, Database("postgresql://nowhere"), {}, between)
        run_query(query, frame, "append", lambda frame, batch: None, look)  # type: ignore[arg-type]

    return drained


def fenced(_: Running) -> bool:
    raise FENCED


def a_batch(running: Running) -> bool:
    assert running.on_batch is not None
    running.on_batch(None, 0)
    return False


def test_a_query_is_started_again_so_often_in_a_row_and_no_more(drain: Callable[..., None]) -> None:
    """Each time another driver wrote into its checkpoint; then it is an error that may be tried again."""
    frame = Frame(*[Running([fenced]) for _ in range(RESTARTS + 2)])

    with pytest.raises(Retryable, match="another driver wrote"):
        drain(frame)
    assert frame.started == RESTARTS + 1


def test_a_query_that_ends_a_batch_between_has_as_many_restarts_again(drain: Callable[..., None]) -> None:
    """One that stays up for weeks is not ended by what happens once a day."""
    days = RESTARTS * 3
    frame = Frame(*[Running([a_batch, fenced]) for _ in range(days)], Running([lambda _: True]))

    drain(frame)
    assert frame.started == days + 1


def test_a_query_that_is_to_end_is_stopped_when_no_trigger_is_at_work(drain: Callable[..., None]) -> None:
    """The batch at work goes on to its end, and what the run was asked to stop with is raised."""

    def stop() -> None:
        raise Stopped

    def idle(running: Running) -> bool:
        running.trigger_active = False
        return False

    running = Running([lambda _: False, lambda _: False, idle])
    running.trigger_active = True

    with pytest.raises(Stopped):
        drain(Frame(running), stop)
    assert running.stopped_in == [False]
    assert running.steps == []


def test_a_batch_that_would_begin_after_a_failure_does_not(drain: Callable[..., None]) -> None:
    """What a look has found while the query was between two batches is what its next batch ends with."""
    looks = iter([None, InvariantBroken("rows are lost"), None])

    def look(_: Running) -> None:
        if error := next(looks, None):
            raise error

    def busy(running: Running) -> bool:
        running.trigger_active = True
        return False

    with pytest.raises(InvariantBroken, match="rows are lost"):
        drain(Frame(Running([busy, busy, a_batch])), look=look)


def test_lost_rows_found_at_the_end_are_no_reason_to_start_again(drain: Callable[..., None]) -> None:
    """Also where another driver wrote into the checkpoint, after which it would."""
    frame = Frame(Running([fenced]), Running([lambda _: True]))

    def look(_: Running) -> None:
        raise InvariantBroken("rows are lost")

    with pytest.raises(InvariantBroken, match="rows are lost"):
        drain(frame, look=look)
    assert frame.started == 1


def test_a_query_is_among_those_of_its_run_while_it_runs(tmp_path: Path) -> None:
    """Whatever session of Spark it is in, and also if it fails."""
    query = Query(Driver("shop/receive/1", 1, 1, "run"), tmp_path, Database("postgresql://nowhere"), {})

    def there(running: Running) -> bool:
        assert query.running == {"shop/receive/1": running}
        return True

    def fails(running: Running) -> bool:
        raise ValueError(there(running))

    run_query(query, Frame(Running([there])), "append", lambda frame, batch: None)  # type: ignore[arg-type]
    assert query.running == {}
    with pytest.raises(ValueError, match="True"):
        run_query(query, Frame(Running([fails])), "append", lambda frame, batch: None, lambda _: None)  # type: ignore[arg-type]
    assert query.running == {}
