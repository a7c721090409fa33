"""Minutes into fives into tens: a batch over a batch over the distinct records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.support.chained_shop import LATENESS
from tests.support.cut_records import MINUTE, Record, at, came, floor, times
from tests.support.platform import Platform, multiset

Sums = dict[tuple[datetime, str], tuple[int, ...]]
SPAN = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:20:00Z")
BEST = ("window_start", "shop", "windows", "best", "sales", "cents")


def per_shop(pairs: Iterable[tuple[Record, datetime]]) -> Sums:
    """(sales, cents) by window and shop, of records with the start of a window that each is in."""
    found: dict[tuple[datetime, str], list[int]] = defaultdict(lambda: [0, 0])
    for one, start in pairs:
        sums = found[start, one["shop"]]
        sums[0], sums[1] = sums[0] + 1, sums[1] + one["cents"]
    return {window: tuple(sums) for window, sums in found.items()}


def best(windows: Sums, size: int, minutes: int) -> Sums:
    """(windows, best, sales, cents) of the windows of a size whose last moments are in each window of so many minutes."""
    found: dict[tuple[datetime, str], list[tuple[int, ...]]] = defaultdict(list)
    for (start, shop), sums in windows.items():
        last = start + size * MINUTE - timedelta(microseconds=1)
        found[floor(last, minutes * MINUTE), shop].append(sums[-2:])
    return {
        window: (len(them), max(c for _, c in them), sum(s for s, _ in them), sum(c for _, c in them)) for window, them in found.items()
    }


def rows(sums: Sums) -> Counter[Any]:
    """As a table has them."""
    return Counter((*window, *values) for window, values in sums.items())


def in_delta(platform: Platform, name: str) -> Counter[Any]:
    """What a reader of the table sees."""
    table = platform.table(name)
    return multiset(table[[column for column in BEST if column in table]])


def in_postgres(platform: Platform, name: str) -> Counter[Any]:
    """The same of a table in PostgreSQL."""
    return multiset(platform.sql(f"SELECT {', '.join(BEST)} FROM results.{name}"))


class Chains(Case):
    """Outputs that fold late records in have all of them; the last one those that came before its windows closed, and after a backfill all."""

    declared = "tests/support/chained_shop.py"
    points = (*DELTA, *POSTGRES, "backfill-after-begin", "backfill-before-end", "backfill-after-end")

    def records(self) -> list[Record]:
        """Sales of a few shops in twenty minutes, most of them in order of time."""
        return [
            {"id": f"{n}", "shop": self.chance.choice("ab"), "at": time, "cents": self.chance.randrange(100)}
            for n, time in enumerate(times(self.chance, 80, 20, (0, 0, 15, 400)))
        ]

    def check(self) -> None:
        """See there."""
        every = [one for one, _ in came(self.files)]
        ten = 10 * MINUTE
        timely = [one for one, tide in came(self.files) if tide is None or floor(at(one), ten) + ten > tide - 4 * LATENESS]
        assert 0 < len(timely) < len(every)
        minutes = per_shop((one, floor(at(one))) for one in every)
        of_timely = per_shop((one, floor(at(one))) for one in timely)
        assert in_delta(self.platform, "shop/minutes") == rows(minutes)
        assert in_postgres(self.platform, "fives") == rows(best(minutes, 1, 5))
        assert in_delta(self.platform, "shop/tens") == rows(best(best(of_timely, 1, 5), 5, 10))
        self.platform.backfill("shop", *SPAN)
        assert in_delta(self.platform, "shop/tens") == rows(best(best(minutes, 1, 5), 5, 10))
        self.check_books()
        assert self.sql("SELECT * FROM onlyonce.windows WHERE late_not_folded > 0").empty


class ChainsAnew(Chains):
    """And a new life of the link in the middle and of the last."""

    def after(self, step: int) -> None:
        """Of what is whole, after the first strike."""
        if step == 0:
            self.platform.run("shop")
            self.new_life("shop/fives", "shop/tens")
