"""What operates a platform, where its data is in S3.

The pipeline `shop` without Spark: its log, its tables and its checkpoints are what drivers leave.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import structlog
from starlette.requests import Request
from typer.testing import CliRunner

from onlyonce import settings
from onlyonce.airflow.page import find, read
from onlyonce.cli import app
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core.locations import Location, Url
from onlyonce.failpoints import FailPoint
from onlyonce.operate import assets, audit, compact, doctor, drop, forget, gc
from onlyonce.run import reset
from onlyonce.tables import attempt_files, opening, removal, rewrite, stores
from tests.contract.conftest import log, new_log
from tests.contract.shop import Shop, at, shop
from tests.support import airflow_users
from tests.support.s3 import S3

__all__ = ["log", "new_log", "shop"]
WHO = "u17-secret"
BROKEN = f'{{"id":"{WHO}", broken'


@pytest.fixture(autouse=True)
def in_the_store(monkeypatch: pytest.MonkeyPatch, versitygw: S3) -> Iterator[None]:
    """The data of the platform to come is below a prefix of a bucket; nothing moves between two looks."""
    for name, value in {**versitygw.environment, "ONLYONCE_DATA": f"{versitygw.bucket()}/lake"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(audit, "SECOND_LOOK_SECONDS", 0.0)
    yield
    structlog.reset_defaults()


@pytest.fixture
def lived(shop: Shop) -> Shop:
    """Five batches that both outputs have read and closed; the drivers have ended."""
    for number in range(4):
        shop.receive((f"s{number}", at(number)), (f"t{number}", at(number + 0.5)), ("{broken", "no JSON"))
    shop.receive((WHO, at(4)), (BROKEN, "no JSON"))
    shop.receive(("last", at(60)))
    for query in ("per_shop", "balance"):
        shop.output(query, closes=tuple(at(number) for number in range(5)))
        shop.output(query)
    shop.die()
    return shop


def objects(below: Location | None = None) -> set[str]:
    """All that is there."""
    at = below or settings.data_root()
    return {str(entry.at) for entry in stores.of(at).entries(at)}


def rows(table: Location) -> Counter[str]:
    """The rows of a table, as a multiset."""
    return Counter(repr(sorted(row.items())) for row in opening.table(table).to_pyarrow_table().to_pylist())


def killed_at(monkeypatch: pytest.MonkeyPatch, module: Any, point: str) -> None:
    """The process ends at a fail-point."""

    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    monkeypatch.setattr(module, "passing", passing)


def test_the_doctor_finds_a_store_healthy_and_what_the_log_does_not_know(lived: Shop) -> None:
    assert isinstance(lived.events, Url)
    assert doctor.main(["--grace=0"]).tables["findings"] == []
    stranger = settings.data_location("other") / "events"
    opening.make(stranger, pa_schema(), [], {})
    later = settings.data_location("shop") / "checkpoints" / "per_shop" / "2"
    stores.of(later).put(later / "metadata", b"{}")

    found = doctor.main(["--grace=0"]).tables["findings"]

    assert {one["where"] for one in found} == {str(stranger.parent), str(later)}


def test_the_doctor_finds_what_a_killed_start_and_a_killed_crash_test_left(lived: Shop, versitygw: S3) -> None:
    """Old as a whole; a crash test at work is left alone."""
    root = settings.data_root()
    killed = [
        root / f"onlyonce.json.{uuid4().hex}",
        root / "crashtest-00c0ffee" / "data" / "shop" / "rows",
        root / "crashtest-00c0ffee" / "onlyonce.json",
    ]
    for place in killed:
        stores.of(place).put(place, b"some")
    for file in bucket_of(versitygw).rglob("*"):
        os.utime(file, (0, 0))  # LastModified, as this server has it
    for name in ("old", "new"):
        place = root / "crashtest-0000beef" / name
        stores.of(place).put(place, b"some")
    old = bucket_of(versitygw) / "lake" / "crashtest-0000beef" / "old"
    os.utime(old, (0, 0))
    before = objects() - {str(place) for place in killed}

    [found] = doctor.main(["--grace=0"]).tables["findings"]
    assert (found["finding"], found["where"]) == ("stale temporaries", str(root))
    assert doctor.main(["--grace=0", "--fix", "--yes"]).tables["findings"] == []
    assert objects() == before


def test_the_doctor_finds_a_lost_checkpoint_and_gives_the_incarnation_a_new_incarnation(lived: Shop) -> None:
    stores.of(lived.events).clear(lived.checkpoint("balance"))
    [found] = doctor.main(["--grace=0"]).tables["findings"]
    assert "balance" in found["where"]

    reset.new("shop/balance", yes=True)

    assert doctor.main(["--grace=0"]).tables["findings"] == []


def test_the_audit_counts_what_is_in_the_store(lived: Shop) -> None:
    assert [*audit._events(lived.log.database, "shop", lived.events)] == []
    opening.table(lived.events).delete("id = 's1'")
    [found] = audit._events(lived.log.database, "shop", lived.events)
    assert "the log says 2 kept, `events` has 1" in found


def test_trace_late_and_the_page_find_a_record(lived: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["trace", "shop", "s1", "--json"])
    assert done.exit_code == 0, done.output
    assert '"kept"' in done.output

    monkeypatch.setenv("ONLYONCE_READER_URL", lived.log.url)
    with read.log(Request({"type": "http"}), airflow_users.user("USER")) as ask:
        [found] = find.find(ask, "id=s1").records
    assert (found["kind"], found["values"]["id"], found["state"]) == ("kept", "s1", "committed")
    assert find.late_records_of("shop", "shop", "per_shop").remark is None


@pytest.mark.spark
@pytest.mark.parametrize("command", ["late shop", "invalid shop", "plan shop"])
def test_what_reads_the_log_and_the_rows_works(lived: Shop, spark_in_store: None, command: str) -> None:
    """End as done, by the session of the tests."""
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output


def bucket_of(versitygw: S3) -> Path:
    """The folder of the bucket of this test."""
    root = settings.data_root()
    assert isinstance(root, Url)
    assert versitygw.buckets is not None
    return versitygw.buckets / root.root.removeprefix("s3://")


def test_maintenance_changes_no_row_and_old_files_stay_for_readers_from_then_on(
    lived: Shop, versitygw: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before and after its commit, and done again; then what is old enough goes, and nothing of the table."""
    before, old = rows(lived.events), objects(lived.events)
    for file in bucket_of(versitygw).rglob("*.parquet"):
        os.utime(file, (0, 0))  # LastModified, as this server has it
    for point in ("rewrite-before-commit", "rewrite-after-commit"):
        with monkeypatch.context() as armed:
            killed_at(armed, rewrite, point)
            with pytest.raises(FailPoint):
                compact.compact(lived.log.database, "shop", [], dry_run=False)
        assert rows(lived.events) == before
    report = compact.main(["shop"])
    assert report.warnings == []
    assert len(opening.table(lived.events).file_uris()) == 1
    assert rows(lived.events) == before

    warnings: list[str] = []
    assert attempt_files.sweep_attempts("shop", 1.0, warnings) == 0
    assert old <= objects(lived.events)
    replaced = [
        one
        for one in stores.of(lived.events).entries(lived.events)
        if str(one.at) in old and one.at.name.endswith(".parquet")
    ]
    assert replaced
    assert min(one.modified for one in replaced) > time.time() - 3600  # replaced a moment ago, as a sweep sees it
    assert attempt_files.sweep_attempts("shop", 0, warnings) > 0
    assert warnings == []
    assert rows(lived.events) == before


def test_a_collection_looks_at_the_store(lived: Shop) -> None:
    assert gc.main(["shop"]).warnings == []


def test_an_event_for_assets_has_the_version(lived: Shop) -> None:
    assert assets._version(settings.table_location("shop/per_shop"), "none") is None


def test_forgotten_records_are_in_no_object(lived: Shop, versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forget, "_compute_again", lambda *_: [])
    before = rows(lived.events)

    forget.main(["shop", "--where", f"id = '{WHO}'", "--by", "privacy desk", "--yes"])

    assert rows(lived.events) == Counter({row: n for row, n in before.items() if WHO not in row})
    assert not any(WHO in str(row) for row in every_row(lived.events))


def every_row(table: Location) -> Iterator[Any]:
    """The rows of every data file that is there, whether the table has it or not."""
    from onlyonce.tables import arrow_files

    for entry in stores.of(table).entries(table):
        if entry.at.name.startswith("part-") or entry.at.name.endswith(".zstd.parquet"):
            yield from arrow_files.rows(entry.at).to_pylist()


def test_a_new_incarnation_takes_the_transaction_of_a_batch_whose_rows_are_not_in_the_table(shop: Shop) -> None:
    shop.receive(("a", at(0)))
    shop.receive(upto="begin")
    driver, number, before = shop.drivers["receive"], 1, rows(shop.events)
    shop.die()

    reset.new("shop/receive", yes=True)

    assert opening.table(shop.events).transaction_version(f"{driver.incarnation}/events") == number
    live = Incarnations(shop.log.database).live("shop", "receive")
    assert live is not None
    assert live.incarnation == "shop/receive/2"
    assert not reset.batch_holds(shop.events, f"{driver.incarnation}/events", number)
    assert rows(shop.events) == before


@pytest.mark.parametrize("point", [None, "drop-after-log", "drop-after-rename"])
def test_a_drop_leaves_no_object_and_one_that_was_killed_goes_on(
    lived: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str | None
) -> None:
    others = settings.data_location("mill") / "events"
    opening.make(others, pa_schema(), [], {})
    before = objects(others)
    (tmp_path / "none.py").write_text("PIPELINES = []\n")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(tmp_path / "none.py"))
    lived.log.rows(
        "CREATE SCHEMA IF NOT EXISTS results; CREATE TABLE results.total (n int); CREATE TABLE results.balance (n int)"
    )
    assert objects(settings.table_location("shop"))
    if point:
        with monkeypatch.context() as armed:
            killed_at(armed, removal if point == "drop-after-rename" else drop, point)
            with pytest.raises(FailPoint):
                drop.main(["shop", "--tables", "--yes"])
    drop.main(["shop", "--tables", "--yes"])

    assert objects() == before
    assert lived.log.rows("SELECT * FROM onlyonce_private.leftovers") == []


def pa_schema() -> str:
    """A column, as Delta's log has it."""
    return json.dumps({"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]})
