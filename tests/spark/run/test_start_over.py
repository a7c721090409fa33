"""A platform is started over by the steps of docs/how-to/start-over.md, and finds the result tables of the old one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from onlyonce.core.errors import Refused
from tests.support import shop_oracle
from tests.support.mariadb import MariaDB
from tests.support.platform import Platform, Server, multiset

pytestmark = pytest.mark.spark


def test_start_over_beside_old_tables_doubles_no_row_and_is_not_stuck(
    new_platform: Callable[..., Platform],
    server: Server,
    mariadb: MariaDB,
    spark: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each old table is refused by its name while it is in the way.

    Once it is renamed, the new one has each record once.
    """
    elsewhere, there = server.url("writer", server.new_database()), mariadb.new_database()
    monkeypatch.setenv("TEST_OTHER_DATABASE", elsewhere)
    monkeypatch.setenv("TEST_MYSQL", mariadb.url(there))
    records = shop_oracle.sales(60, 1)[0]

    old = new_platform("tests/support/start_over_shop.py")
    old.put("shop", "a.jsonl", records)
    old.run("shop")
    before = rows_of(old, elsewhere, mariadb, there)
    old.end_sessions()
    # Steps 1 to 3: a new home and a new database. The result tables stay where they are, the journals of the team's
    # databases go.
    new = new_platform("tests/support/start_over_shop.py")
    (old.home / "tables").rename(new.home / "tables")
    old.sql("DROP SCHEMA onlyonce_private CASCADE", elsewhere)
    for [table] in mariadb.rows(there, "SHOW TABLES LIKE 'onlyonce\\_%%'"):
        mariadb.rows(there, f"DROP TABLE {table}")
    new.put("shop", "a.jsonl", records)

    def refused() -> str:
        """Run, and return what is refused."""
        with pytest.raises(Refused, match="holds the results of another platform") as refusal:
            new.run("shop")
        new.end_sessions()
        assert rows_of(new, elsewhere, mariadb, there) == before
        return refusal.value.what

    assert "shop/delta" in refused()
    (new.home / "tables" / "shop" / "delta").rename(new.home / "tables" / "shop" / "old")
    before["delta"] = expected(records)  # this output runs before the next one is refused
    assert "results.plain" in refused()
    old.sql("ALTER TABLE results.plain RENAME TO old", elsewhere)
    before["postgres"] = expected(records)
    assert "plain holds" in refused()
    mariadb.rows(there, "RENAME TABLE plain TO old")
    new.run("shop")

    assert rows_of(new, elsewhere, mariadb, there) == dict.fromkeys(["delta", "postgres", "mysql"], expected(records))


def expected(records: list[Any]) -> Counter[Any]:
    """The rows of a result that has each record once."""
    found = shop_oracle.distinct([records])
    return multiset(found, "id", "shop", "cents")


def rows_of(platform: Platform, elsewhere: str, mariadb: MariaDB, there: str) -> dict[str, Counter[Any]]:
    """The rows of each result."""
    return {
        "delta": multiset(platform.table("shop/delta"), "id", "shop", "cents"),
        "postgres": multiset(platform.sql("SELECT id, shop, cents FROM results.plain", elsewhere)),
        "mysql": Counter(map(tuple, mariadb.rows(there, "SELECT id, shop, cents FROM plain"))),
    }
