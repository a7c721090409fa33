"""A whole run whose data is in S3: events, registry, checkpoints and result tables. Killed in its middle, it ends as the batch computation."""

from __future__ import annotations

import pandas as pd
import pytest

from onlyonce import settings
from onlyonce.model.location import Location
from onlyonce.storage import opening, stores
from tests.support import s3, shop_oracle
from tests.support.platform import Platform, multiset
from tests.support.s3 import S3

pytestmark = pytest.mark.spark

Kill = tuple[str, int]
COMMITTED: list[Kill] = [("receive-after-delta", 2)]
"""Rows are in `events`, and the log does not know."""
UNNAMED: list[Kill] = [("table-before-commit", 3), ("delta-after-deletes", 1), ("delta-after-write", 1), ("delta-before-replace", 1)]
"""Data files are there that no commit names; later results that the log does not know."""


@pytest.fixture
def root(platform: Platform, versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A platform whose data is below a prefix of a bucket."""
    pipelines = str(settings.ROOT / "tests" / "support" / "stored_shop.py")
    platform.give(
        monkeypatch, **versitygw.environment, ONLYONCE_DATA=f"{versitygw.bucket()}/lake", ONLYONCE_PIPELINES=pipelines
    )
    return settings.data_root()


def put_all(platform: Platform, files: list[list[dict[str, object]]]) -> None:
    """One file for each list."""
    for number, records in enumerate(files):
        platform.put("shop", f"sales-{number:04}.jsonl", list(records))


@pytest.mark.parametrize("kills", [COMMITTED, pytest.param(UNNAMED, marks=pytest.mark.whole)], ids=["committed", "unnamed"])
def test_kills_do_not_show_in_what_is_in_the_store(
    platform: Platform, root: Location, versitygw: S3, kills: list[Kill]
) -> None:
    files = shop_oracle.sales(300, 3)
    put_all(platform, files)
    told = ""
    for point, nth in kills:
        code, output = platform.run_killed(point, "shop", "--close", nth=nth)
        assert code < 0, output
        told += output
    code, output = platform.run_whole("shop", "--close")
    assert code == 0, output

    records = shop_oracle.distinct(files)
    kept = table("shop", "events", "oo_kind = 'kept'")
    assert multiset(kept, "id", "cents") == multiset(records, "id", "cents")
    assert multiset(result("each"), "id", "shop", "cents") == multiset(records, "id", "shop", "cents")
    assert multiset(result("newest"), "shop", "id", "cents") == multiset(shop_oracle.newest(records), "shop", "id", "cents")
    assert records.late.any()
    for name, used in (("per_shop", records[~records.late]), ("all_per_shop", records)):
        wanted, found = (
            rows.assign(weight=rows.weight.round(6), window_start=pd.to_datetime(rows.window_start, utc=True))
            for rows in (shop_oracle.per_shop(used), result(name))
        )
        columns = ("window_start", "shop", "sales", "cents", "weight")
        assert multiset(found, *columns) == multiset(wanted, *columns), name
    assert_all_in_the_store(platform, root)
    assert_no_secret(platform, versitygw, told + output)


def assert_all_in_the_store(platform: Platform, root: Location) -> None:
    """Events, registry, checkpoints and tables are there, and on the disk is nothing of them."""
    parts = {entry.at.relative_to(root).parts[:3] for entry in stores.of(root).entries(root)}  # type: ignore[arg-type]
    assert {("data", "shop", name) for name in ("events", "files", "checkpoints")} <= parts
    assert {("tables", "shop", name) for name in ("each", "per_shop", "newest", "newest_deleted", "all_per_shop")} <= parts
    assert [*platform.home.rglob("*.parquet"), *platform.home.rglob("_delta_log"), *platform.home.rglob("offsets")] == []


def assert_no_secret(platform: Platform, server: S3, told: str) -> None:
    """The key is in no output, no file of the home, no object, and not in the log."""
    assert server.buckets
    secret = s3.SECRET.encode()
    assert s3.SECRET not in told
    for folder in (platform.home, server.buckets):
        for file in folder.rglob("*"):
            assert not (file.is_file() and secret in file.read_bytes()), file
    for name in platform.sql("SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname = 'onlyonce_private'")["name"]:
        assert not platform.sql(f"SELECT 1 FROM {name} AS t WHERE t::text LIKE '%{s3.SECRET}%'").size, name


def table(instance: str, name: str, where: str) -> pd.DataFrame:
    """Rows of one of the platform's own tables."""
    column, _, value = where.partition(" = ")
    return opening.table(settings.data_location(instance) / name).to_pandas(filters=[(column, "=", value.strip("'"))])


def result(output: str) -> pd.DataFrame:
    """Rows of a result table."""
    return opening.table(settings.table_location(f"shop/{output}")).to_pandas()
