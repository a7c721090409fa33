"""Tables elsewhere: Iceberg, MySQL, and a write stream of BigQuery behind the outbox."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

import onlyonce
from docs.generate import specification
from onlyonce.sinks.outbox import send_bigquery
from tests.fault.pipelines.case import POSTGRES, Case
from tests.fault.pipelines.commands import killed
from tests.support import iceberg_shop, mysql_shop, shop_oracle
from tests.support.platform import multiset
from tests.support.write_streams import WriteStreams

ICEBERG = (*specification.points("iceberg-"), "output-before-end")
BIGQUERY = (
    "deliver-unit-before-begin", "deliver-unit-after-begin", "bigquery-after-stream", "bigquery-after-note", "bigquery-after-append",
    "bigquery-after-rows", "bigquery-after-end", "deliver-unit-after-write", "deliver-unit-after-record",
)  # fmt: skip
SPAN = ("shop", "--from", "2025-12-31T00:00:00Z", "--to", "2026-01-01T00:30:00Z", "--output", "per_shop")
WINDOW = ("window_start", "shop", "sales", "cents")


class Warehouse(Case):
    """Sales, late ones and re-deliveries among them; after a backfill the windows have the late ones too."""

    def begin(self) -> None:
        """As many batches as steps."""
        self.files = shop_oracle.sales(self.chance.randrange(100, 200), self.steps, seed=self.chance.randrange(1000))

    def check(self) -> None:
        """See there."""
        records = shop_oracle.distinct(self.files)
        assert 0 < records["late"].sum() < len(records)
        assert self.there("plain", "id", "shop", "cents") == multiset(records, "id", "shop", "cents")
        self.check_windows(shop_oracle.per_shop(records[~records["late"]]))
        self.platform.backfill(*SPAN)
        self.check_windows(shop_oracle.per_shop(records))
        self.check_books()

    def check_windows(self, windows: pd.DataFrame) -> None:
        """These are there, and what is made of them."""
        assert self.there("per_shop", *WINDOW) == plain(windows, *WINDOW)

    def there(self, output: str, *columns: str) -> Counter[Any]:
        """The rows of a table."""
        raise NotImplementedError


class InIceberg(Warehouse):
    """In a catalog in a database of its own."""

    declared = "tests/support/iceberg_shop.py"
    points = (*ICEBERG, *ICEBERG)

    def begin(self) -> None:
        """See there."""
        server = self.request.getfixturevalue("server")
        self.give_setting(**iceberg_shop.configured(server.url("writer", server.new_database()), self.platform.home))
        super().begin()

    def check_windows(self, windows: pd.DataFrame) -> None:
        """And each window's total."""
        super().check_windows(windows)
        totals = windows.groupby("window_start")[["sales", "cents"]].sum().reset_index()
        assert self.there("total", "window_start", "sales", "cents") == plain(totals, "window_start", "sales", "cents")

    def there(self, output: str, *columns: str) -> Counter[Any]:
        """As a notebook reads it."""
        return plain(onlyonce.open("shop").output(output), *columns)


class InMySQL(Warehouse):
    """Appended windows, the newest of each shop, records."""

    declared = "tests/support/mysql_shop.py"
    points = (*POSTGRES, *POSTGRES)

    def begin(self) -> None:
        """In a database of its own."""
        self.server = self.request.getfixturevalue("mariadb")
        self.database = self.server.new_database()
        self.request.addfinalizer(lambda: self.server.rows("", f"DROP DATABASE {self.database}"))
        self.give_setting(**{mysql_shop.THERE: self.server.url(self.database)})
        super().begin()

    def check_windows(self, windows: pd.DataFrame) -> None:
        """And of each shop the last."""
        super().check_windows(windows)
        last = windows.sort_values("window_start").groupby("shop").tail(1)
        assert self.there("newest", "shop", "cents") == multiset(last, "shop", "cents")

    def there(self, output: str, *columns: str) -> Counter[Any]:
        """See there."""
        named = ", ".join(f"CAST({name} AS CHAR(19))" if name == "window_start" else name for name in columns)
        return Counter(self.server.rows(self.database, f"SELECT {named} FROM {output}"))


class InWriteStreams(Case):
    """The rows of the outbox, delivered between the strikes by processes that are killed: each is visible once, and
    none is uncertain."""

    declared = "tests/support/streaming.py"
    points = POSTGRES[1:-1]

    def begin(self) -> None:
        """The server outlives all of them."""
        self.files = shop_oracle.sales(120, self.steps, seed=self.chance.randrange(1000))
        self.server = WriteStreams(columns={"id": "STRING", "shop": "STRING", "cents": "INT64"})
        self.server.__enter__()
        self.request.addfinalizer(lambda: self.server.__exit__(None, None, None))
        self.give_setting(**{send_bigquery.EMULATOR: self.server.address})

    def after(self, step: int) -> None:
        """Two deliverers, killed."""
        for point in self.chance.sample(BIGQUERY, 2):
            killed(self.platform, point, "onlyonce.sinks.outbox.deliver", "shop", nth=self.chance.choice((1, 1, 2)))

    def check(self) -> None:
        """See there."""
        self.after(self.steps)
        assert not killed(self.platform, "none", "onlyonce.sinks.outbox.deliver", "shop")
        records = shop_oracle.distinct(self.files)
        assert Counter((row["id"], row["shop"], row["cents"]) for row in self.server.rows()) == multiset(
            records, "id", "shop", "cents"
        )
        states = self.sql(
            "SELECT state, bool_or(uncertain) AS uncertain, count(*)::int AS rows FROM onlyonce.outbox GROUP BY 1"
        )
        assert multiset(states) == {("delivered", False, len(records)): 1}
        self.check_books()


def plain(frame: pd.DataFrame, *columns: str) -> Counter[Any]:
    """Rows with their times as texts."""
    if "window_start" in columns:
        frame = frame.assign(
            window_start=pd.to_datetime(frame["window_start"], utc=True).dt.strftime("%Y-%m-%d %H:%M:%S")
        )
    return multiset(frame, *columns)
