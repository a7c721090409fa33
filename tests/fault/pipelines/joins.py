"""Joins of two streams, inner into Delta and full into PostgreSQL: a plain join over the same rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from onlyonce.core.errors import Refused
from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.support.cut_records import Record, in_time, times
from tests.support.joined_oracle import COLUMNS, distinct, joined
from tests.support.joined_shop import WATERMARK_DELAY
from tests.support.platform import multiset

SPAN = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:11:00Z")


class Joins(Case):
    """Inner over the rows in time, and after a backfill over all; full over all, since late records are included by
    themselves."""

    declared = "tests/support/joined_shop.py"
    points = (*DELTA, *POSTGRES)

    def records(self) -> list[Record]:
        """Orders and payments of a few shops; some have no shop."""
        of = self.chance.choice
        return [
            {"id": f"{n}", "kind": of(("order", "payment")), "shop": of(("a", "b", "c", None)), "at": time, "cents": n}
            for n, time in enumerate(times(self.chance, 60, 10, (0, 0, 5, 150)))
        ]

    def check(self) -> None:
        """See there."""
        timely, every = in_time(self.files, WATERMARK_DELAY), distinct(self.files)
        assert 0 < len(timely) < len(every)
        assert self.paid() == joined(timely, "inner")
        assert multiset(self.sql(f"SELECT {', '.join(COLUMNS)} FROM results.all_of_both")) == joined(every, "full")
        self.platform.backfill("shop", *SPAN, "--output", "paid")
        assert self.paid() == joined(every, "inner")
        self.check_books()
        assert self.sql("SELECT * FROM onlyonce.windows WHERE late_not_included > 0").empty
        with pytest.raises(Refused, match="is a join: which of its rows are written is in the state of its stream"):
            self.new_incarnation("shop/paid")

    def paid(self) -> Counter[Any]:
        """What a reader of the table sees."""
        return multiset(self.platform.table("shop/paid"), *COLUMNS)
