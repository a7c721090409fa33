"""A whole run whose data is in S3: events, manifest, checkpoints and result tables.

Killed in its middle, it ends as the batch computation.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from onlyonce import settings
from onlyonce.core.locations import Location, location
from onlyonce.sources import backlog
from onlyonce.tables import opening, stores
from tests.support import s3, shop_oracle
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, multiset
from tests.support.s3 import S3

pytestmark = pytest.mark.spark

SMALL, REQUESTS = 12, 25
"""Batches, and what one of them may ask: its own requests, and what looks now and then ask."""
End = tuple[str, int]
TOLD: list[End] = [("receive-before-begin", 2), ("receive-after-end", 2), ("output-before-begin", 2)]
"""The store has the plan of a batch that the log has not; then the log has the end of one of which the store has not
Spark's word."""
UNNAMED: list[End] = [("table-before-commit", 3), ("delta-after-write", 1)]
"""Data files are there that no commit names; later results that the log does not know."""

AVRO = {"type": "record", "name": "sale", "fields": [
    {"name": "id", "type": "string"}, {"name": "shop", "type": "string"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "cents", "type": "long"}, {"name": "weight", "type": "double"},
]}  # fmt: skip


def put_avro(path: Path, records: list[dict[str, Any]]) -> None:
    """As a file."""
    with path.open("wb") as file:
        fastavro.writer(file, AVRO, records)


PUT: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "parquet": lambda path, records: parquet.write_table(pa.Table.from_pylist(records), path, row_group_size=50), "avro": put_avro,
}  # fmt: skip


@pytest.fixture
def root(platform: Platform, versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A platform whose data is below a prefix of a bucket, but for one table, which has a bucket of its own."""
    pipelines = str(settings.ROOT / "tests" / "support" / "stored_shop.py")
    own = {"ONLYONCE_PIPELINES": pipelines, "STORED_SHOP_EACH": f"{versitygw.bucket()}/each"}
    platform.give(monkeypatch, **versitygw.environment, ONLYONCE_DATA=f"{versitygw.bucket()}/lake", **own)
    return settings.data_root()


def put_all(platform: Platform, files: list[list[dict[str, object]]]) -> None:
    """One file for each list."""
    for number, records in enumerate(files):
        platform.put("shop", f"sales-{number:04}.jsonl", list(records))


def test_a_kill_does_not_show_in_what_is_in_the_store(platform: Platform, root: Location, versitygw: S3) -> None:
    """Kill a driver whose rows are in `events`, and the log does not know.

    The next driver finishes the batch; neither shows the store's secret.
    """
    files = shop_oracle.sales(300, 3)
    put_all(platform, files)
    code, killed = platform.run_killed("receive-after-delta", "shop", "--close", nth=2)
    assert code == -signal.SIGKILL, killed
    code, output = platform.run_whole("shop", "--close")
    assert code == 0, output

    assert_equals_the_batch(files)
    assert_all_in_the_store(platform, root)
    assert_no_secret(platform, versitygw, killed + output)


@pytest.mark.whole
@pytest.mark.parametrize("ends", [TOLD, UNNAMED], ids=["told", "unnamed"])
def test_ends_of_runs_do_not_show_in_what_is_in_the_store(
    platform: Platform, root: Location, monkeypatch: pytest.MonkeyPatch, spark_in_store: None, ends: list[End]
) -> None:
    """End a run at each of these steps, then run to the end."""
    files = shop_oracle.sales(300, 3)
    put_all(platform, files)
    for point, nth in ends:
        assert ended_at(platform, monkeypatch, point, nth, "--close")
    platform.run("shop", "--close")

    assert_equals_the_batch(files)
    assert_all_in_the_store(platform, root)


def test_what_a_batch_of_ten_asks_of_the_store(
    platform: Platform, root: Location, versitygw: S3, spark_in_store: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its plan to the next one's. It is as much for the twelfth as for the second.

    What the driver asks of the source, at most four times a minute whatever the batches are, is left out.
    """
    monkeypatch.setattr(backlog, "ask_and_store", lambda database, pipelines: [])
    put_all(platform, shop_oracle.sales(10 * SMALL, SMALL))
    versitygw.well()
    platform.run("shop")

    log = versitygw.log
    plans = [at for at, line in enumerate(log) if line.startswith("PUT ") and "/checkpoints/receive/1/offsets/" in line]
    asked = [len(log[at:after]) for at, after in pairwise(plans)]
    assert len(asked) == SMALL - 1
    first, *later = asked
    assert max(later) <= REQUESTS, log[plans[-2] : plans[-1]]
    assert first <= REQUESTS + 1, log[plans[0] : plans[1]]  # a driver looks once whether a newer one has fenced it


@pytest.mark.whole
@pytest.mark.parametrize("form", PUT)
def test_rows_of_files_in_a_store_after_a_kill(
    platform: Platform,
    root: Location,
    versitygw: S3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark_in_store: None,
    form: str,
) -> None:
    """Parquet and Avro that lie in a store as well, read by Spark's tasks."""
    files, inbox = shop_oracle.sales(200, 2), location(f"{versitygw.bucket()}/in")
    platform.give(monkeypatch, STORED_SHOP_INBOX=str(inbox), STORED_SHOP_FORMAT=form)
    for number, records in enumerate(files):
        PUT[form](
            tmp_path / f"{number}", [record | {"at": datetime.fromisoformat(str(record["at"]))} for record in records]
        )
        stores.of(inbox).put(inbox / f"{number}", (tmp_path / f"{number}").read_bytes())
    assert ended_at(platform, monkeypatch, "receive-after-delta", 1, "--close")
    platform.run("shop", "--close")
    assert_equals_the_batch(files)


@pytest.mark.parametrize(
    "point", ["delta-after-deletes", pytest.param("delta-before-replace", marks=pytest.mark.whole)]
)
def test_upserts_deletes_and_recomputed_windows_in_the_store(
    platform: Platform, root: Location, monkeypatch: pytest.MonkeyPatch, spark_in_store: None, point: str
) -> None:
    """Ended between the two commits of a batch with deletes, and before late records are included."""
    platform.give(monkeypatch, ONLYONCE_PIPELINES=str(settings.ROOT / "tests" / "support" / "stored_upserts.py"))
    files = shop_oracle.sales(120, 2)
    put_all(platform, files)
    assert ended_at(platform, monkeypatch, point, 1, "--close")
    platform.run("shop", "--close")

    records = shop_oracle.distinct(files)
    assert multiset(result("newest"), "shop", "id", "cents") == multiset(
        shop_oracle.newest(records), "shop", "id", "cents"
    )
    assert records.late.any()
    wanted, found = (
        rows.assign(window_start=pd.to_datetime(rows.window_start, utc=True))
        for rows in (shop_oracle.per_shop(records), result("all_per_shop"))
    )
    assert multiset(found, "window_start", "shop", "sales", "cents") == multiset(
        wanted, "window_start", "shop", "sales", "cents"
    )


@pytest.mark.whole
@pytest.mark.parametrize(("kind", "method"), [("slow", ""), ("error", ""), ("cut", "PUT")])
def test_a_store_that_is_ill_all_of_the_time_does_not_show(
    platform: Platform, root: Location, versitygw: S3, spark_in_store: None, kind: str, method: str
) -> None:
    """Whoever asks, asks again: the driver, the tasks and Spark's own writer of checkpoints."""
    files = shop_oracle.sales(120, 2)
    put_all(platform, files)
    versitygw.ill(kind, every=9, method=method)
    try:
        platform.run("shop", "--close")
    finally:
        versitygw.well()
    assert_equals_the_batch(files)


@pytest.mark.whole
@pytest.mark.parametrize(("kind", "says"), [("expired", "ExpiredToken"), ("gone", "does not exist")])
def test_a_run_whose_store_shuts_it_out_says_so_and_the_next_goes_on(
    platform: Platform, root: Location, versitygw: S3, spark_in_store: None, kind: str, says: str
) -> None:
    """Once batches are under way: from the first batch's commit to `events` on."""
    files = shop_oracle.sales(120, 2)
    put_all(platform, files)
    versitygw.ill(kind, every=1, since="shop/events/_delta_log/00000000000000000001.json")
    try:
        code, output = platform.run_whole("shop", "--close")
    finally:
        versitygw.well()
    assert code > 0, output
    assert says in output, output[-3000:]
    assert "Traceback" not in output
    platform.run("shop", "--close")
    assert_equals_the_batch(files)


def assert_equals_the_batch(files: list[list[dict[str, object]]]) -> None:
    """What is kept, and both results."""
    records = shop_oracle.distinct(files)
    kept = table("shop", "events", "oo_kind = 'kept'")
    assert multiset(kept, "id", "cents") == multiset(records, "id", "cents")
    each = opening.table(location(os.environ["STORED_SHOP_EACH"])).to_pandas()
    assert multiset(each, "id", "shop", "cents") == multiset(records, "id", "shop", "cents")
    wanted, found = (
        rows.assign(weight=rows.weight.round(6), window_start=pd.to_datetime(rows.window_start, utc=True))
        for rows in (shop_oracle.per_shop(records[~records.late]), result("per_shop"))
    )
    columns = ("window_start", "shop", "sales", "cents", "weight")
    assert multiset(found, *columns) == multiset(wanted, *columns)


def assert_all_in_the_store(platform: Platform, root: Location) -> None:
    """Events, manifest, checkpoints and tables are there, and on the disk is nothing of them."""
    parts = {entry.at.relative_to(root).parts[:3] for entry in stores.of(root).entries(root)}  # type: ignore[arg-type]
    assert {("data", "shop", name) for name in ("events", "files", "checkpoints")} <= parts
    assert {part for part in parts if part[0] == "tables"} == {("tables", "shop", "per_shop")}
    assert [
        *platform.home.rglob("*.parquet"),
        *platform.home.rglob("_delta_log"),
        *platform.home.rglob("offsets"),
    ] == []


def assert_no_secret(platform: Platform, server: S3, told: str) -> None:
    """The key is in no output, no file of the home, no object, and not in the log."""
    assert server.buckets
    secret = s3.SECRET.encode()
    assert s3.SECRET not in told
    for folder in (platform.home, server.buckets):
        for file in folder.rglob("*"):
            assert not (file.is_file() and secret in file.read_bytes()), file
    for name in platform.sql(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname = 'onlyonce_private'"
    )["name"]:
        assert not platform.sql(f"SELECT 1 FROM {name} AS t WHERE t::text LIKE '%{s3.SECRET}%'").size, name


def table(instance: str, name: str, where: str) -> pd.DataFrame:
    """Rows of one of the platform's own tables."""
    column, _, value = where.partition(" = ")
    return opening.table(settings.data_location(instance) / name).to_pandas(filters=[(column, "=", value.strip("'"))])


def result(output: str) -> pd.DataFrame:
    """Rows of a result table."""
    return opening.table(settings.table_location(f"shop/{output}")).to_pandas()
