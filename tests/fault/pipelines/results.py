"""Several results of one function, and records that a function rejects: each has its sink or its reason, once."""

from __future__ import annotations

from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.spark.outputs import test_rejected as rejecting
from tests.spark.outputs import test_several_results as several
from tests.support.cut_records import Record
from tests.support.platform import multiset

QUERIES = ("per_shop", "visits", "each")


class Results(Case):
    """By window and record by record, with a new incarnation of each; a batch is one unit of each sink."""

    declared = "tests/support/sorted_shop.py"
    points = (*DELTA, *POSTGRES)

    def records(self) -> list[Record]:
        """In order of time, some of them paid back."""
        return several.sales(self.chance, 60)

    def after(self, step: int) -> None:
        """New incarnations write nothing twice."""
        if step == 0:
            self.platform.run("shop")
            self.new_incarnation("shop/sales", "shop/paid")

    def check(self) -> None:
        """See there."""
        assert several.found(self.platform) == several.wanted(
            list({one["id"]: one for file in self.files for one in file}.values())
        )
        units = self.sql("SELECT DISTINCT query, sink FROM onlyonce.commits WHERE query NOT IN ('receive')")
        assert {tuple(row) for row in units.itertuples(index=False)} == {
            ("sales", "sales"), ("sales", "refunds"), ("sales", "total"), ("paid", "paid"), ("paid", "paid_back"),
        }  # fmt: skip
        self.check_books()


class Rejections(Case):
    """The rows are those of a batch over the sound records, and the others are told once each, with the reason."""

    declared = "tests/support/rejecting_shop.py"
    points = (*DELTA, *POSTGRES)

    def records(self) -> list[Record]:
        """In order of time, some of them unsound."""
        return rejecting.sales(self.chance, 60)

    def after(self, step: int) -> None:
        """A new incarnation of each."""
        if step == 0:
            self.platform.run("shop")
            self.new_incarnation(*(f"shop/{query}" for query in QUERIES))

    def check(self) -> None:
        """See there."""
        records = list({one["id"]: one for file in self.files for one in file}.values())
        assert rejecting.found(self.platform) == rejecting.wanted(records)
        assert rejecting.told() == rejecting.rejected(records)
        counts = self.sql(
            "SELECT query, sum(in_time)::int, sum(late)::int, sum(rejected)::int FROM onlyonce.conservation WHERE "
            "query <> 'receive' GROUP BY 1"
        )
        unsound = sum(rejecting.reason(one) is not None for one in records)
        assert multiset(counts) == {(query, len(records) - unsound, 0, unsound): 1 for query in QUERIES}
        self.check_books()
