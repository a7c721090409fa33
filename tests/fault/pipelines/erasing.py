"""Records that go: forgotten by a condition, and old days under a chain. Both by commands that are killed, and finished by the same command."""

from __future__ import annotations

from datetime import timedelta

from onlyonce import settings
from onlyonce.operate import maintain
from onlyonce.operate.erase import forget
from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.fault.pipelines.chains import best, in_delta, in_postgres, per_shop, rows
from tests.fault.pipelines.commands import killed
from tests.support import shop_oracle
from tests.support.cut_records import START, Record, at, floor
from tests.support.platform import multiset

WHO = "shop-3"
FORGET = ("shop", "--where", f"shop = '{WHO}'", "--yes", "--master", "local[2]")
FORGETTING = (
    "forget-after-begin", "forget-after-count", "remove-before-commit", "remove-after-commit", "forget-before-sweep", "forget-after-records",
    "forget-before-file", "forget-after-files", "backfill-after-begin", "delta-before-replace", "delta-after-replace", "backfill-before-end",
    "backfill-after-end", "forget-after-beside", "forget-before-end",
)  # fmt: skip
RETAINING = ("retention-after-begin", "retention-after-count", "remove-before-commit", "remove-after-commit", "retention-before-end")
SHOPS = ("window_start", "shop", "sales", "cents")


class Forgotten(Case):
    """The results are those of the input without the records, of the windows that they were in; all others are as they were."""

    declared = "tests/support/before_compaction.py"
    points = (*DELTA, *POSTGRES)

    def begin(self) -> None:
        """Late records are among them."""
        self.files = shop_oracle.sales(120, self.steps, seed=self.chance.randrange(1000))

    def check(self) -> None:
        """See there."""
        last: Record = {"id": "last", "shop": "shop-1", "at": "2026-01-02T00:00:00Z", "cents": 1, "weight": 1.0}
        self.platform.put("shop", "last.jsonl", [last])
        self.platform.run("shop", "--close")
        self.platform.end_sessions()
        first, second = sorted(self.chance.sample(FORGETTING, 2), key=FORGETTING.index)
        assert killed(self.platform, first, "onlyonce.operate.erase.forget", *FORGET)
        killed(self.platform, second, "onlyonce.operate.erase.forget", *FORGET)
        report = forget.main([*FORGET])

        every = shop_oracle.distinct([*self.files, [last]])
        gone = every["shop"] == WHO
        touched = every["window_start"].isin(every[gone]["window_start"])
        left = every[~gone & (touched | ~every["late"])]
        self.check_windows = multiset(shop_oracle.per_shop(left), *SHOPS)
        assert multiset(self.platform.table("shop/per_shop"), *SHOPS) == self.check_windows
        assert report.facts["kept"] == gone.sum() > 0
        assert multiset(self.platform.events().dropna(subset=["id"]), "id") == multiset(every[~gone], "id")
        assert all(WHO not in file.read_text() for file in settings.inbox("shop").iterdir())
        self.check_books()
        self.platform.put("shop", "again.jsonl", [record for records in self.files for record in records])
        self.platform.run("shop", "--close")
        assert multiset(self.platform.table("shop/per_shop"), *SHOPS) == self.check_windows


class KeptChain(Case):
    """Old days go under a chain whose last windows are open: what is made of them stays, what comes again is a duplicate."""

    declared = "tests/support/chain_of_two_days.py"
    points = (*DELTA, *POSTGRES)

    def begin(self) -> None:
        """A file for each of seven days, five of them first."""
        self.days = [[self._sale(day, number) for number in range(12)] for day in range(7)]

    def _sale(self, day: int, number: int) -> Record:
        time = START + timedelta(days=day, minutes=7 * number, seconds=self.chance.randrange(400))
        return {"id": f"d{day}-{number}", "shop": self.chance.choice("ab"), "at": time.isoformat(), "cents": self.chance.randrange(100)}

    def give(self, step: int) -> None:
        """With the first day once more."""
        for number in range(5) if step == 0 else range(5, 7):
            self.platform.put("shop", f"{number}.jsonl", [*self.days[number], *self.days[0]])

    def after(self, step: int) -> None:
        """Three days go, by commands that are killed. As if the ids of these batches were collected, some days later."""
        if step:
            return
        self.platform.run("shop")
        self.sql("UPDATE onlyonce_private.batches SET bucket = bucket - 500 WHERE lineage LIKE '%/receive/%' RETURNING 1")
        self.sql("UPDATE onlyonce_private.pipelines SET gc_floor = (SELECT max(bucket) + 1 FROM onlyonce_private.batches) RETURNING 1")
        first, second = sorted(self.chance.sample(RETAINING, 2), key=RETAINING.index)
        assert killed(self.platform, first, "onlyonce.operate.maintain", "shop")
        killed(self.platform, second, "onlyonce.operate.maintain", "shop")
        maintain.main(["shop"])
        kept = [one["id"] for day in self.days[:5] for one in day if at(one) >= START + timedelta(days=1)]
        there = set(self.platform.events().dropna(subset=["id"])["id"])
        assert there < set(kept) | {one["id"] for one in self.days[0]}
        assert "d0-0" not in there

    def check(self) -> None:
        """See there."""
        minutes = per_shop((one, floor(at(one))) for day in self.days for one in day)
        assert in_delta(self.platform, "shop/minutes") == rows(minutes)
        assert in_postgres(self.platform, "fives") == rows(best(minutes, 1, 5))
        assert in_delta(self.platform, "shop/tens") == rows(best(best(minutes, 1, 5), 5, 10))
        self.check_books()
