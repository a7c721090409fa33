"""Panes of open windows by a trigger: those that the log decides, and the last one is that of a batch."""

from __future__ import annotations

from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.spark.outputs import test_triggers as triggers
from tests.support.cut_records import Record
from tests.support.platform import multiset


class Panes(Case):
    """By the records of a window, and by the clock; with a new incarnation of each. None goes back over a strike."""

    declared = "tests/support/paned_shop.py"
    points = (*DELTA, *POSTGRES)

    def begin(self) -> None:
        """A pane of a window is due a second after its first record."""
        self.give_setting(PANED_SECONDS="1")
        self.before: dict[str, triggers.Windows] = {}
        super().begin()

    def records(self) -> list[Record]:
        """In order of time: nothing is late."""
        self.sales = triggers.sales(self.chance, 80)
        return self.sales

    def after(self, step: int) -> None:
        """What is there now is what the log says, before a new incarnation and behind it."""
        if step == 0:
            self.platform.run("shop")
            self.before = triggers.check_panes(self.platform, self.before)
            self.new_incarnation(*(f"shop/{query}" for query in triggers.QUERIES))

    def check(self) -> None:
        """See there."""
        triggers.check_panes(self.platform, self.before)
        found = multiset(self.sql("SELECT window_start, shop, sales, cents FROM results.counted"))
        assert found == triggers.wanted(self.sales, "counted")
        assert multiset(self.platform.table("shop/timed"), "window_start", "shop", "sales", "cents") == triggers.wanted(
            self.sales, "timed"
        )
        last = triggers.last_panes(self.platform.table("shop/numbered"))
        assert multiset(last, "window_start", "shop", "sales", "cents") == triggers.wanted(self.sales, "numbered")
        assert self.sql("SELECT * FROM onlyonce.panes WHERE NOT final OR held IS NOT NULL").empty
        self.check_books()
