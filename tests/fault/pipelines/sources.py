"""Several sources with a pace of their own, one of them idle; and the changes of a table, compacted meanwhile."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from onlyonce import settings
from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.support import changed_table
from tests.support.platform import multiset
from tests.support.two_sources import Model, Sale

NOW = datetime.now(UTC)


class Sources(Case):
    """What is in time, by the rule said once more, is in the windows, once; the rest is late.

    The web is ahead of the till.
    """

    declared = "tests/support/two_sources.py"
    points = ("receive-before-source-batches", "receive-registered", "table-before-commit", *DELTA, *POSTGRES)

    def begin(self) -> None:
        """Ids are of each source."""
        self.model = Model(["web", "till"])
        self.sent: list[Sale] = []

    def give(self, step: int) -> None:
        """Two files of each source, one of which has sales that were sent before."""
        self.given: dict[str, list[list[Sale]]] = {}
        for source, ahead in (("web", 300), ("till", 0)):
            ids = range(20 * step, 20 * step + 16)
            new = [
                Sale(
                    source,
                    f"{n}",
                    max(0, ahead + 100 * step + self.chance.randint(-100, 60)),
                    self.chance.randint(1, 9),
                )
                for n in ids
            ]
            again = [sale for sale in self.sent if sale.source == source][:3]
            self.given[source] = [new[::2], [*new[1::2], *again]]
            self.sent += new
        for source, files in self.given.items():
            for number, sales in enumerate(files):
                self.platform.put(f"shop/{source}", f"{step}-{number}.txt", [sale.line for sale in sales])

    def after(self, step: int) -> None:
        """All that was given is taken in: the model judges run by run."""
        self.platform.run("shop")
        self.model.run(self.given, NOW)

    def check(self) -> None:
        """See there."""
        kept = self.model.in_time + self.model.late
        assert 0 < len(self.model.late) < len(kept)
        assert multiset(self.sql("SELECT id, place, cents FROM results.each")) == Counter(sale.row for sale in kept)
        self.check_windows(self.model.in_time)
        late = self.sql(
            "SELECT coalesce(sum(late), 0)::bigint AS late FROM onlyonce.batches WHERE query = 'per_minute'"
        )
        assert late["late"][0] == len(self.model.late)
        self.check_books()

    def check_windows(self, sales: list[Sale]) -> None:
        """Each minute's."""
        assert multiset(
            self.platform.table("shop/per_minute"), "window_start", "place", "cents", "sales"
        ) == self.model.windows(sales)


class SourcesOneIdle(Sources):
    """The kiosk falls idle at each look, and the till is far behind the web, in order: whatever is killed, nothing is
    late."""

    def begin(self) -> None:
        """A third source, which has nothing."""
        self.give_setting(TEST_SOURCES="web,till,kiosk", KIOSK_IDLE_SECONDS="0.001")
        super().begin()

    def give(self, step: int) -> None:
        """In order of time."""
        for source, ahead in (("web", 3600), ("till", 0)):
            seconds = sorted(self.chance.sample(range(ahead + 200 * step, ahead + 200 * step + 190), 16))
            new = [
                Sale(source, f"{20 * step + n}", second, self.chance.randint(1, 9)) for n, second in enumerate(seconds)
            ]
            for number, sales in enumerate((new[:8], [*new[8:], *new[:2]])):
                self.platform.put(f"shop/{source}", f"{step}-{number}.txt", [sale.line for sale in sales])
            self.sent += new

    def after(self, step: int) -> None:
        """Nothing befalls it."""

    def check(self) -> None:
        """See there."""
        assert multiset(self.sql("SELECT id, place, cents FROM results.each")) == Counter(
            sale.row for sale in self.sent
        )
        self.check_windows(self.sent)
        self.check_books()


class TableChanges(Case):
    """Each change of the feed is a record, deletes too: those that another reader of the feed has, and what is inserted
    less what is deleted is the table."""

    declared = "tests/support/changed_table.py"
    points = ("receive-registered", "table-before-commit", "receive-after-delta", *DELTA)

    def begin(self) -> None:
        """No version."""
        self.number = 0

    def give(self, step: int) -> None:
        """Some versions of any kind."""
        for _ in range(self.chance.randint(3, 5)):
            changed_table.change(self.path, self.chance, self.number)
            self.number += 1

    @property
    def path(self) -> Any:
        """Where the table is."""
        return settings.tables_dir() / changed_table.TABLE

    def check(self) -> None:
        """See there."""
        events = self.platform.events()
        kept = events[events["oo_kind"] == "kept"]
        assert (events["oo_kind"] == "invalid").sum() == 0
        table = DeltaTable(str(self.path))
        feed = pa.table(table.load_cdf(starting_version=0).read_all()).to_pylist()
        wanted = Counter(tuple(row[name] for name in changed_table.VALUES) for row in feed)
        assert multiset(kept, *changed_table.VALUES) == wanted
        assert multiset(self.platform.table("shop/each"), *changed_table.VALUES) == wanted
        net: Counter[Any] = Counter()
        for name, shop, cents, kind, _ in wanted.elements():
            net[name, shop, cents] += 1 if kind in ("insert", "update_postimage") else -1
        assert +net == multiset(table.to_pandas(), "id", "shop", "cents")
        assert min(net.values(), default=0) >= 0
        self.check_books()
