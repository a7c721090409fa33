"""Attempts at a transaction, stepped on command: every interleaving of two can be played, none by chance.

An attempt is a generator; what stands between two `yield`s is a step. It runs in a thread of its own with a
session of its own. A step that waits for a lock is found by PostgreSQL's own lock table.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

import psycopg2

PATIENCE = 60.0
"""After this an attempt that neither ends its step nor waits for a lock fails the test."""

_LOOK_EVERY = 0.01

Steps = Callable[[str], Iterator[None]]
"""Takes the name that its session must have in pg_stat_activity."""


class Attempt:
    """One attempt; `submit` lets it take its next step. `error` is what ended it, if anything did."""

    _numbers = itertools.count(1)

    def __init__(self, name: str, steps: Steps) -> None:
        # One session name is the start of no other.
        self.session = f"{name}-{next(self._numbers)}."
        self.error: BaseException | None = None
        self._steps = steps
        self._orders: queue.Queue[bool] = queue.Queue()
        self._change = threading.Condition()
        self._ordered, self._taken, self.ended = 0, 0, False
        self._thread = threading.Thread(target=self._work, name=self.session, daemon=True)
        self._thread.start()

    def submit(self) -> None:
        """Let it take one more step, when it is through with those before."""
        self._ordered += 1
        self._orders.put(True)

    def idle(self, wait: float) -> bool:
        """Whether all its steps are taken, awaited for so long."""
        with self._change:
            return self._change.wait_for(lambda: self.ended or self._taken == self._ordered, wait)

    def finish(self) -> None:
        """Let it run to its end. Raises AssertionError when it does not get there."""
        self._orders.put(False)
        self._thread.join(PATIENCE)
        assert self.ended, f"{self.session} did not end"

    def _work(self) -> None:
        steps = self._steps(self.session)
        try:
            while self._orders.get():
                next(steps)
                self._note()
            for _ in steps:
                pass
        except StopIteration:
            pass
        except BaseException as error:
            self.error = error
        with self._change:
            self.ended = True
            self._change.notify_all()

    def _note(self) -> None:
        with self._change:
            self._taken += 1
            self._change.notify_all()


class Stage:
    """Where attempts are played; it has a session of its own that looks at the locks."""

    def __init__(self, url: str) -> None:
        self._watch = psycopg2.connect(url.replace("+psycopg2", ""))
        self._watch.autocommit = True
        self._cast: list[Attempt] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._watch.close()

    def enter(self, name: str, steps: Steps) -> Attempt:
        """A new attempt, which has not taken a step."""
        self._cast.append(Attempt(name, steps))
        return self._cast[-1]

    def step(self, attempt: Attempt) -> bool:
        """One step; returns when each attempt is through or waits for a lock. Gives whether this one is through."""
        attempt.submit()
        self.settle()
        return attempt.idle(0)

    def settle(self) -> None:
        """Wait until each attempt has taken its steps, has ended, or waits for a lock."""
        for attempt in self._cast:
            for _ in range(int(PATIENCE / _LOOK_EVERY)):
                if attempt.idle(_LOOK_EVERY) or self.is_blocked(attempt.session):
                    break
            else:
                raise AssertionError(f"{attempt.session} neither ends its step nor waits for a lock")

    def play(self, order: str, **cast: Steps) -> dict[str, Attempt]:
        """A new attempt for each letter of the cast, their steps in this order, to their end."""
        self._cast = []
        attempts = {name: self.enter(name, steps) for name, steps in cast.items()}
        for name in order:
            self.step(attempts[name])
        for attempt in attempts.values():
            attempt.finish()
        return attempts

    def is_blocked(self, session: str) -> bool:
        """Whether the session of that name (or that begins so) waits for another's lock."""
        with self._watch.cursor() as cursor:
            cursor.execute(
                "SELECT coalesce(bool_or(cardinality(pg_blocking_pids(pid)) > 0), false) FROM pg_stat_activity "
                "WHERE starts_with(application_name, %s)",
                (session,),
            )
            return bool((cursor.fetchone() or [False])[0])


def interleavings(steps: int) -> list[str]:
    """All orders in which A and B can take so many steps each: 'AABB', 'ABAB', …"""
    places = itertools.combinations(range(2 * steps), steps)
    return ["".join("A" if n in chosen else "B" for n in range(2 * steps)) for chosen in places]
