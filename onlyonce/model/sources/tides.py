"""How far each of several sources has come in event time, and how far the pipeline that reads them has. Pure.

A pipeline's tide is the least of its sources' that are not idle. So records of one source are not late because another
one is ahead. A source is idle once nothing has come from it for its `idle_after`: that is decided between two batches
and noted in the log (`receive.idling`), so that a replay sees the same. It is awake again with its next batch. A
pipeline's tide never moves back, so old records of a source that wakes are late as any late record is.

Who calls it: `commitlog.turns`, `receive`. No errors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

from onlyonce.model.frontier import Frontier
from onlyonce.model.windows import Micros, micros


@dataclass(frozen=True)
class Reached:
    """How far one source has come.

    tide   the largest event time of it that committed batches have kept; None: none yet
    seen   the system time of its last batch; before the first one, since when it is waited for
    idle   whether it holds nothing back, by the last look
    """

    tide: Micros | None
    seen: Micros
    idle: bool = False


@dataclass(frozen=True)
class Tides:
    """The same of all sources, by name."""

    of: Mapping[str, Reached]

    @classmethod
    def read(cls, told: Mapping[str, Mapping[str, Any]] | None) -> Tides:
        """As the log has them."""
        return cls({name: Reached(**one) for name, one in (told or {}).items()})

    def told(self) -> dict[str, dict[str, Any]]:
        """For the log."""
        return {name: asdict(one) for name, one in self.of.items()}

    def declared(self, sources: Iterable[str], now: Micros) -> Tides:
        """Of the sources that are declared now.

        One that is new is waited for from now on; one that was retired holds nothing back any more.
        """
        return Tides({name: self.of.get(name, Reached(None, now)) for name in sources})

    def after_batch(self, source: str, largest: Micros | None, seen: Micros) -> Tides:
        """Once a batch of a source is committed, with its largest kept event time."""
        known = self.of[source]
        now = Reached(_later(known.tide, largest), max(known.seen, seen), idle=False)
        return Tides({**self.of, source: now})

    def fallen_idle(self, clock: Micros, idle_after: Mapping[str, timedelta | None], waiting: Collection[str]) -> Tides:
        """At the time `clock`: which sources are idle. None of which input is registered and waits is."""

        def is_idle(name: str, one: Reached) -> bool:
            after = idle_after.get(name)
            return one.idle or (after is not None and name not in waiting and clock - one.seen >= micros(after))

        return Tides({name: replace(one, idle=is_idle(name, one)) for name, one in self.of.items()})

    def least(self) -> Micros | None:
        """The least tide of the sources that are not idle: None while one of them has none.

        If all are idle nothing holds back the furthest.
        """
        awake = [one.tide for one in self.of.values() if not one.idle]
        known = [tide for tide in awake if tide is not None]
        return self.furthest() if not awake else min(known) if len(known) == len(awake) else None

    def furthest(self) -> Micros | None:
        """The largest event time of all."""
        return max((one.tide for one in self.of.values() if one.tide is not None), default=None)


@dataclass(frozen=True)
class Turn:
    """A batch of one of several sources: whose it is, its system time, and how far each source had come before it."""

    source: str
    seen: Micros
    before: Tides

    def after(self, largest: Micros | None) -> Tides:
        """How far each has come once it is committed."""
        return self.before.after_batch(self.source, largest, self.seen)


def after_batch(known: Frontier, turn: Turn | None, largest: Micros | None) -> Frontier:
    """The frontier once a batch with this largest kept event time is committed; `turn` of one of several sources."""
    return known.after_batch(largest if turn is None else turn.after(largest).least())


def _later(one: Micros | None, other: Micros | None) -> Micros | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
