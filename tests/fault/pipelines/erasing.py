"""Records that go: forgotten by a condition, by a command that is killed, and finished by the same command."""

from __future__ import annotations

from onlyonce import settings
from onlyonce.operate import forget
from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.fault.pipelines.commands import killed
from tests.support import shop_oracle
from tests.support.cut_records import Record
from tests.support.platform import multiset

WHO = "shop-3"
FORGET = ("shop", "--where", f"shop = '{WHO}'", "--yes", "--master", "local[2]")
FORGETTING = (
    "forget-after-begin", "forget-after-count", "remove-before-commit", "remove-after-commit", "forget-before-sweep", "forget-after-records",
    "forget-before-file", "forget-after-files", "backfill-after-begin", "delta-before-replace", "delta-after-replace", "backfill-before-end",
    "backfill-after-end", "forget-after-copies", "forget-after-state", "forget-after-leftovers", "forget-before-end",
)  # fmt: skip
SHOPS = ("window_start", "shop", "sales", "cents")


class Forgotten(Case):
    """The results are those of the input without the records, of the windows that they were in; all others are as they
    were."""

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
        assert killed(self.platform, first, "onlyonce.operate.forget", *FORGET)
        killed(self.platform, second, "onlyonce.operate.forget", *FORGET)
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
