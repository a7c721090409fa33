"""A table beside the rows that changes before each run and behind each strike: a batch join with the version that each
batch began with."""

from __future__ import annotations

from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.spark.outputs import test_lookups as looking


class Lookups(Case):
    """A Delta table."""

    declared = "tests/support/looks_up.py"
    points = (*DELTA, *POSTGRES)
    cities: type[looking.Cities] = looking.Cities

    def begin(self) -> None:
        """No batch has begun."""
        self.there = self.cities()
        self.seen: dict[str, set[int]] = {"each": set(), "per_city": set(), "per_shop": set()}
        self.given = 0

    def give(self, step: int) -> None:
        """Other cities, and some sales."""
        self.change()
        seconds = [60 * step + self.chance.randint(0, 40) for _ in range(6)]
        self.platform.put(
            "shop",
            f"{step}.jsonl",
            [looking.sale(self.given + n, at, self.chance.choice(looking.SHOPS)) for n, at in enumerate(seconds)],
        )
        self.given += 6

    def change(self) -> None:
        """Each version is another."""
        self.there.change(
            {
                shop: f"{self.chance.choice('xyz')}{len(self.there.history)}"
                for shop in looking.SHOPS[: self.chance.randint(1, 3)]
            }
        )

    def after(self, step: int) -> None:
        """What the batches that have begun saw stays theirs."""
        looking.check_begun(self.platform, self.seen, self.there)
        self.change()

    def check(self) -> None:
        """See there."""
        looking.check_begun(self.platform, self.seen, self.there)
        looking.check_rows(self.platform, self.there)
        self.check_books()


class Copies(Lookups):
    """A table in PostgreSQL, which has only what it is now."""

    declared = "tests/support/looks_up_copies.py"
    cities = looking.CopiedCities
