"""A PostgreSQL table as a lookup: the same content is one version, another one is another, and what can't be a copy is
refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, make_url

from onlyonce import Lookup, Postgres, settings
from onlyonce.core.errors import Refused
from onlyonce.lookups import copies, postgres_versions
from onlyonce.testing.scratch import Log

VARIABLE = "SHOP_DATABASE_URL"


def cities(**changed: Any) -> Lookup:
    """A lookup that takes a copy at each look."""
    plain: dict[str, Any] = {
        "table": Postgres(table="shop.cities", connection=VARIABLE),
        "keys": "shop",
        "refresh": timedelta(0),
    }
    return Lookup(name="cities", **plain | changed)


@pytest.fixture
def shop(log: Log, tmp_path: Any) -> Iterator[Any]:
    """Runs statements in a database of a user's own, which the variable names."""
    engine = create_engine(log.url)

    def execute(*statements: str) -> None:
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    execute("CREATE SCHEMA shop", "CREATE TABLE shop.cities (shop text, city text)")
    with settings.within({"ONLYONCE_HOME": str(tmp_path), VARIABLE: log.url}):
        yield execute
    engine.dispose()


def rows(lookup: Lookup, version: Any) -> list[dict[str, Any]]:
    """What is in a version."""
    return pq.read_table(str(postgres_versions.file(lookup, version))).to_pylist()


def test_content_that_is_the_same_is_one_version_in_whatever_order_it_lies(shop: Any) -> None:
    """An update that changes nothing moves rows on the disk; rows without a key have an order too.

    What comes back has its version again.
    """
    lookup = cities()
    empty = postgres_versions.newest(lookup)
    shop("INSERT INTO shop.cities VALUES ('a', 'Rome'), ('b', NULL), (NULL, 'Bern'), (NULL, 'Ulm')")
    first = postgres_versions.newest(lookup)
    shop("UPDATE shop.cities SET city = city WHERE shop = 'a' OR city = 'Bern'")
    again = postgres_versions.newest(lookup)
    shop("UPDATE shop.cities SET city = '' WHERE shop = 'b'")
    changed = postgres_versions.newest(lookup)
    shop("UPDATE shop.cities SET city = NULL WHERE shop = 'b'")
    back = postgres_versions.newest(lookup)
    shop("DELETE FROM shop.cities")

    assert [one["version"] for one in (empty, first, again, changed, back, postgres_versions.newest(lookup))] == [
        1,
        2,
        2,
        3,
        2,
        1,
    ]
    assert sum(kind == "parquet" for _, kind in copies.copies_there(postgres_versions.folder_of_lookup(lookup))) == 3
    found = [rows(lookup, one) for one in (empty, first, changed)]
    assert found[0] == []
    assert [row["city"] for row in found[1]] == ["Rome", None, "Bern", "Ulm"]
    assert [row["city"] for row in found[2]] == ["Rome", "", "Bern", "Ulm"]


def test_another_type_of_a_column_is_another_version(shop: Any) -> None:
    """Its text is the same, and a function would get something else."""
    shop("ALTER TABLE shop.cities ADD people int", "INSERT INTO shop.cities VALUES ('a', 'Rome', 3)")
    before = postgres_versions.newest(cities())
    shop("ALTER TABLE shop.cities ALTER people TYPE bigint")
    assert postgres_versions.newest(cities())["version"] == before["version"] + 1


def test_each_type_that_is_known_arrives_as_it_is(shop: Any) -> None:
    """With nulls, and with text that looks like what CSV is made of."""
    shop(
        "CREATE TYPE shop.size AS ENUM ('small', 'large')",
        "CREATE DOMAIN shop.price AS numeric(10, 2)",
        """CREATE TABLE shop.kinds (id uuid, flag boolean, small smallint, number int, large bigint, f4 real, f8 double precision,
           name varchar(40), note text, doc jsonb, day date, at timestamptz(3), here timestamp, size shop.size, price shop.price)""",
        """INSERT INTO shop.kinds VALUES ('00000000-0000-0000-0000-000000000001', true, 1, -2, 3000000000, 0.5, 0.1,
           'a"b,c', E'two\\nlines \\\\.', '{"a": [1, null]}', '2026-02-03', '2026-02-03 04:05:06.789+02', '2026-02-03 04:05:06', 'large', 12.34)""",
        "INSERT INTO shop.kinds (id) VALUES (NULL)",
    )
    lookup = cities(table=Postgres(table="shop.kinds", connection=VARIABLE), keys="id")

    full, empty = rows(lookup, postgres_versions.newest(lookup))

    assert full == {
        "id": "00000000-0000-0000-0000-000000000001", "flag": True, "small": 1, "number": -2, "large": 3_000_000_000, "f4": 0.5, "f8": 0.1,
        "name": 'a"b,c', "note": "two\nlines \\.", "doc": '{"a": [1, null]}', "day": date(2026, 2, 3),
        "at": datetime(2026, 2, 3, 2, 5, 6, 789000, UTC), "here": datetime(2026, 2, 3, 4, 5, 6), "size": "large", "price": Decimal("12.34"),
    }  # fmt: skip
    assert set(empty.values()) == {None}


def test_a_copy_is_taken_anew_when_it_is_older_than_refresh_or_gone(shop: Any) -> None:
    """Until then the driver has the version that it took."""
    lookup = cities(refresh=timedelta(hours=1))
    before = postgres_versions.newest(lookup)
    shop("INSERT INTO shop.cities VALUES ('a', 'Rome')")
    assert postgres_versions.newest(lookup) == before
    assert postgres_versions.newest(cities())["version"] == 2

    postgres_versions.refuse_gone(lookup, before)
    postgres_versions.file(lookup, before).unlink()  # type: ignore[union-attr]
    with pytest.raises(Refused, match="version 1 of the table is gone: its copy is not at"):
        postgres_versions.refuse_gone(lookup, before)
    assert postgres_versions.newest(lookup)["version"] == 2


@pytest.mark.parametrize(
    ("statements", "says", "hint"),
    [
        (["DROP TABLE shop.cities"], "there is no table shop.cities", "correct its name"),
        (["ALTER TABLE shop.cities ADD stamps int[]"], "column stamps of shop.cities .* is integer\\[\\]", "a view"),
        (["ALTER TABLE shop.cities ADD price numeric"], "column price of shop.cities .* is numeric", "numeric(38, 9)"),
        (
            ["ALTER TABLE shop.cities ADD at timestamptz", "INSERT INTO shop.cities VALUES ('a', 'Rome', 'infinity')"],
            "a value of shop.cities .* is none that Spark has", "infinite time",
        ),
        (["INSERT INTO shop.cities SELECT n, 'Rome' FROM generate_series(1, 1000) n"], "shop.cities .* is larger than 1,000 bytes", "a Delta table"),
    ],
)  # fmt: skip
def test_what_can_be_no_copy_is_refused(
    shop: Any, monkeypatch: pytest.MonkeyPatch, statements: list[str], says: str, hint: str
) -> None:
    """By name, and nothing is stored."""
    monkeypatch.setattr(postgres_versions, "MOST_BYTES", 1000)
    shop(*statements)
    with pytest.raises(Refused, match=f"lookup cities: {says}") as refused:
        postgres_versions.newest(cities())
    assert hint in str(refused.value.hint)
    assert not list(copies.copies_there(postgres_versions.folder_of_lookup(cities())))


def test_a_table_that_may_not_be_read_is_refused_without_the_url(shop: Any, log: Log) -> None:
    """The password is in no message. So it is where no variable is set."""
    reader = log.server.url("reader", log.name)
    with settings.within({VARIABLE: reader}), pytest.raises(Refused, match=r"may not read shop\.cities") as refused:
        postgres_versions.newest(cities())
    assert (make_url(reader).password or reader) not in str(refused.value)
    other = cities(table=Postgres(table="shop.cities", connection="NOBODY_SETS_THIS"))
    with pytest.raises(Refused, match="NOBODY_SETS_THIS of the lookup cities's database is not set"):
        postgres_versions.newest(other)
