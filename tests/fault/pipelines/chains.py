"""Minutes into fives into tens: a batch over a batch over the distinct records."""

from __future__ import annotations

from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.support.chained_oracle import best, in_delta, in_postgres, per_shop, rows
from tests.support.chained_shop import WATERMARK_DELAY
from tests.support.cut_records import MINUTE, Record, at, came, floor, times

SPAN = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:20:00Z")


class Chains(Case):
    """Outputs that fold late records in have all of them; the last one those that came before its windows closed, and
    after a backfill all."""

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
        timely = [
            one
            for one, max_event_time in came(self.files)
            if max_event_time is None or floor(at(one), ten) + ten > max_event_time - 4 * WATERMARK_DELAY
        ]
        assert 0 < len(timely) < len(every)
        minutes = per_shop((one, floor(at(one))) for one in every)
        of_timely = per_shop((one, floor(at(one))) for one in timely)
        assert in_delta(self.platform, "shop/minutes") == rows(minutes)
        assert in_postgres(self.platform, "fives") == rows(best(minutes, 1, 5))
        assert in_delta(self.platform, "shop/tens") == rows(best(best(of_timely, 1, 5), 5, 10))
        self.platform.backfill("shop", *SPAN)
        assert in_delta(self.platform, "shop/tens") == rows(best(best(minutes, 1, 5), 5, 10))
        self.check_books()
        assert self.sql("SELECT * FROM onlyonce.windows WHERE late_not_included > 0").empty


class ChainsAnew(Chains):
    """And a new incarnation of the link in the middle and of the last."""

    def after(self, step: int) -> None:
        """Of what is whole, after the first strike."""
        if step == 0:
            self.platform.run("shop")
            self.new_incarnation("shop/fives", "shop/tens")
