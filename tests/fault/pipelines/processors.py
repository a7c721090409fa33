"""State and timers of one's own, into Delta and PostgreSQL: a plain computation over the records in time."""

from __future__ import annotations

from collections import Counter
from typing import Any

from docs.generate import specification
from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.support.cut_records import Record, at, in_time, times
from tests.support.platform import multiset
from tests.support.stateful_shop import COLUMNS, GAP, WATERMARK_DELAY

IN_PROCESSOR = ("processor-rows", "processor-timer")
FROM_START = specification.points("from-start-")


def silences(them: list[Record]) -> Counter[Any]:
    """(shop, what, at, id, records): each record, and each time after which a shop was silent, by its plain
    definition."""
    found: Counter[Any] = Counter()
    for shop in {one["shop"] for one in them}:
        moments = [at(one) for one in them if one["shop"] == shop]
        found.update((shop, "came", at(one), one["id"], None) for one in them if one["shop"] == shop)
        for time in set(moments):
            if not any(time < other <= time + GAP for other in moments):
                found[shop, "silent", time, None, sum(other <= time for other in moments)] += 1
    return found


class Silences(Case):
    """Late records are counted and stay out."""

    declared = "tests/support/stateful_shop.py"
    points = (*DELTA, *IN_PROCESSOR)

    def records(self) -> list[Record]:
        """Of a few shops; some have no shop."""
        return [
            {"id": f"{n}", "shop": self.chance.choice(("a", "b", None)), "at": time}
            for n, time in enumerate(times(self.chance, 60, 10, (0, 0, 5, 150)))
        ]

    def found(self) -> Counter[Any]:
        """What a reader of the table sees."""
        return multiset(self.platform.table("shop/silences"), *COLUMNS)

    def check(self) -> None:
        """See there."""
        timely = in_time(self.files, WATERMARK_DELAY)
        late = len({one["id"] for file in self.files for one in file}) - len(timely)
        assert late > 0
        assert self.found() == silences(timely)
        self.check_books()
        assert self.sql("SELECT sum(late) AS late FROM onlyonce.windows")["late"][0] == late


class SilencesInPostgres(Silences):
    """The same of a table in PostgreSQL."""

    points = (*POSTGRES, *IN_PROCESSOR)
    names = ("till",)

    def found(self) -> Counter[Any]:
        """See there."""
        return multiset(self.sql(f"SELECT {', '.join(COLUMNS)} FROM results.silences"))


class SilencesAnew(SilencesInPostgres):
    """And a new incarnation, which computes all from the start in the place of what was there."""

    points = (*SilencesInPostgres.points, *FROM_START, *FROM_START)

    def after(self, step: int) -> None:
        """Behind the first strike the incarnation ends, and the second meets the new one's start."""
        if step == 0:
            self.platform.run("till")
            self.new_incarnation("till/silences")

    def check(self) -> None:
        """Once more after another start: its own rows stay."""
        super().check()
        self.platform.run("till")
        super().check()


class SilencesAnewInDelta(Silences):
    """The same of a Delta table."""

    points = (*Silences.points, *FROM_START, *FROM_START)

    def after(self, step: int) -> None:
        """See there."""
        if step == 0:
            self.platform.run("shop")
            self.new_incarnation("shop/silences")
