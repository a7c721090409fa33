"""What is kept, for how long, and that nothing goes which somebody can still ask for; on a real PostgreSQL, without a
JVM."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from structlog.testing import capture_logs

from onlyonce import settings
from onlyonce.catalog import look_up
from onlyonce.commitlog.backfills import Backfills, Request
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Outcome
from onlyonce.database.connect import run
from onlyonce.database.statements import make_home
from onlyonce.operate import audit, gc
from tests.contract.catalog.test_merging import killed_at
from tests.contract.conftest import Log, plan_of
from tests.contract.receive import Receive
from tests.contract.receiver import uniform


@pytest.fixture
def stream(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Receive:
    """The stream of the declared pipeline `shop`, in a home of its own."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/shop.py")
    look_up.forget()
    return Receive(log)


def age(log: Log, days: int, where: str = "true") -> None:
    """As if so many days had passed since the commits."""
    log.rows(f"UPDATE onlyonce_private.batches SET committed_at = committed_at - interval '{days} days' WHERE {where}")


def units(log: Log) -> Counter[Any]:
    """The units in the log."""
    return log.multiset("SELECT incarnation, batch_id FROM onlyonce_private.units")


def fates(log: Log) -> list[dict[str, Any]]:
    """What the audit and the status show of all committed batches."""
    return run(log.database, lambda conn: Views(conn).rows("fates") + Views(conn).rows("status"))


def test_old_units_go_and_every_total_stays(stream: Receive) -> None:
    """The batch rows keep the sums; the last batch of the incarnation keeps its units, as old as it is."""
    for number in range(4):
        stream.batch(100, uniform(10, number + 1) + uniform(10, number)[:3])
    age(stream.log, 91, "batch_id <> 1")
    before = fates(stream.log)
    report = gc.main([])

    incarnation = stream.driver.incarnation
    assert units(stream.log) == Counter({(incarnation, 1): 2, (incarnation, 3): 2})
    assert report.facts["units removed"] == 4
    assert report.facts["units kept (days)"] == 90
    assert fates(stream.log) == before
    assert all(row["conserved"] for row in before)
    assert stream.log.rows("SELECT batch, units_removed FROM onlyonce.batches ORDER BY 1") == [
        (0, 2), (1, None), (2, 2), (3, None),
    ]  # fmt: skip
    assert audit.examine_log().warnings == []


def test_units_that_are_missing_but_were_not_removed_still_are_a_finding(stream: Receive) -> None:
    """Only what the collector has removed is excused."""
    stream.batch(100, uniform(10, 1))
    stream.log.rows("DELETE FROM onlyonce_private.units WHERE partition = 0")

    assert ["does not add up" in finding for finding in audit.examine_log().warnings] == [True]


def test_a_begun_batch_keeps_its_units_whatever_their_age(stream: Receive) -> None:
    """Its replay is compared with them."""
    stream.batch(100, uniform(10, 0))
    records = uniform(10, 1)
    begun = stream.begin(100)
    first = stream.units(begun, records)
    age(stream.log, 400)
    stream.log.rows("UPDATE onlyonce_private.units SET committed_at = committed_at - interval '400 days'")
    gc.main([])
    stream.restart()
    again = stream.begin(100, begun.plan.batch_id)

    assert units(stream.log)[stream.driver.incarnation, 1] == 2
    assert stream.units(again, records) == first


def test_how_long_is_a_setting_and_printed(stream: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment, which the DAG has too."""
    for number in range(3):
        stream.batch(100, uniform(5, number))
    age(stream.log, 8)
    assert gc.main([]).facts["units removed"] == 0
    monkeypatch.setenv("ONLYONCE_KEEP_UNITS_DAYS", "7")
    report = gc.main([])

    assert (report.facts["units kept (days)"], report.facts["units removed"]) == (7, 4)


def test_many_old_batches_go_in_several_transactions(stream: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, also when one transaction takes two."""
    monkeypatch.setattr("onlyonce.commitlog.removals.AT_ONCE", 2)
    for number in range(6):
        stream.batch(100, uniform(2, number))
    age(stream.log, 100)

    assert gc.main([]).facts["units removed"] == 10


@pytest.mark.parametrize(
    "point", ["gc-after-drop", "retention-after-fold", "retention-after-final", "retention-after-units"]
)
def test_a_collection_that_is_killed_is_finished_by_the_next(stream: Receive, tmp_path: Path, point: str) -> None:
    """Sums and units are those of a collection that nobody has killed: none is added twice, none goes that is
    needed."""
    for number in range(4):
        stream.batch(100 + number, uniform(10, number))
    stream.log.rows("UPDATE onlyonce_private.pipelines SET gc_floor = 103 RETURNING 1")
    driver = stream.log.start("shop", "per_shop")
    for number in range(3):
        output_batch(stream.log, driver, number, ends=True)
    age(stream.log, 100)
    before = fates(stream.log)
    assert killed_at(point, "from onlyonce.operate import gc; gc.main([])", tmp_path) == -9
    assert fates(stream.log) == before
    gc.main([])

    assert fates(stream.log) == before
    assert units(stream.log) == Counter({(stream.driver.incarnation, 3): 2})
    folded = stream.log.rows("SELECT incarnation, upto, batches::int, kept::int, final_upto FROM onlyonce_private.sums")
    assert Counter(folded) == Counter([(stream.driver.incarnation, 3, 4, 40, -1), (driver.incarnation, 2, 3, None, 2)])
    assert {bucket for bucket, *_ in stream.chunks()} == {103}
    assert audit.examine_log().warnings == []


# --- staged rows
# -------------------------------------------------------------------------------------------------------


def stage(incarnation: str, batch_id: int) -> None:
    """The staged rows of one output batch, in the commit that the output's driver makes."""
    rows = pa.table(
        {"n": [batch_id * 10, batch_id * 10 + 1], "oo_incarnation": [incarnation] * 2, "oo_batch": [batch_id] * 2}
    )
    mark = CommitProperties(app_transactions=[Transaction(f"{incarnation}/staged", batch_id)])
    path = settings.data_dir("shop") / "staged" / "per_shop" / "d1"
    path.mkdir(parents=True, exist_ok=True)
    write_deltalake(str(path), rows, mode="append", partition_by=["oo_incarnation", "oo_batch"], commit_properties=mark)


def staged() -> Counter[tuple[str, int, int]]:
    """What is stored."""
    table = DeltaTable(str(settings.data_dir("shop") / "staged" / "per_shop" / "d1")).to_pyarrow_table()
    return Counter(zip(*[table[name].to_pylist() for name in ("oo_incarnation", "oo_batch", "n")], strict=True))


def output_batch(log: Log, driver: Driver, number: int, *, ends: bool) -> None:
    """A batch of an output, ended or left."""
    plan = plan_of(driver, number)
    batch = Batches(log.database).begin(driver, "shop", plan, None)
    if ends:
        Batches(log.database).end(driver, batch, Outcome(in_time=0, late=0))


def test_staged_rows_go_a_day_after_their_batch_and_those_of_open_batches_stay(stream: Receive) -> None:
    """In the order of the batches: none after one that is young or not committed. The transaction numbers stay."""
    driver = stream.log.start("shop", "per_shop")
    for number in range(4):
        stage(driver.incarnation, number)
        output_batch(stream.log, driver, number, ends=number < 3)
    before = staged()
    assert gc.main([]).facts["staged files removed"] == 0
    assert staged() == before
    age(stream.log, 2, "batch_id < 2")
    report = gc.main([])

    assert report.facts["staged files removed"] == 2
    assert staged() == Counter((incarnation, n, row) for incarnation, n, row in before if n >= 2)
    table = DeltaTable(str(settings.data_dir("shop") / "staged" / "per_shop" / "d1"))
    assert table.transaction_version(f"{driver.incarnation}/staged") == 3
    assert gc.main([]).facts["staged files removed"] == 0


def test_staged_rows_of_backfills_and_of_a_closed_incarnation_go_too(stream: Receive) -> None:
    """Also of a begun batch that a new incarnation has withdrawn. Those of a begun backfill stay."""
    log, span = stream.log, Span.of(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    request = Request("shop", "per_shop", span, "person", "hash")
    driver = Backfills(log.database).open_incarnation(request, "run")
    for _ in range(3):  # each replaces the one before
        stage(driver.incarnation, Backfills(log.database).begin(driver, request, 1))
    withdrawn = log.start("shop", "per_shop")
    stage(withdrawn.incarnation, 0)
    log.rows(
        "UPDATE onlyonce_private.incarnations SET state = 'closed' WHERE incarnation = %s RETURNING 1",
        withdrawn.incarnation,
    )
    log.rows("UPDATE onlyonce_private.backfills SET begun_at = begun_at - interval '2 days' RETURNING 1")
    last = max(n for _, n, _ in staged() if n)

    assert gc.main([]).facts["staged files removed"] == 3

    assert {(incarnation, n) for incarnation, n, _ in staged()} == {(driver.incarnation, last)}


def test_sums_are_added_up_to_batches_that_do_not_add_up(stream: Receive) -> None:
    """Of several incarnations, whose last good batches come in different rounds."""
    drivers = [stream.log.start("shop", query) for query in ("per_shop", "balance", "total")]
    for driver, good in zip(drivers, (0, 2, 1), strict=True):
        for number in range(good + 1):
            output_batch(stream.log, driver, number, ends=True)
        stream.log.rows(
            "UPDATE onlyonce_private.batches SET in_time = 7 WHERE incarnation = %s AND batch_id = %s RETURNING 1",
            driver.incarnation, good,
        )  # fmt: skip
    age(stream.log, 100, "true")

    assert gc.fold_sums(stream.log.database) == 3
    assert gc.fold_sums(stream.log.database) == 0


def test_staged_rows_that_cannot_be_removed_are_named(stream: Receive) -> None:
    """By their table: if it can't be changed at all, the next gc removes nothing either."""
    driver = stream.log.start("shop", "per_shop")
    stage(driver.incarnation, 0)
    output_batch(stream.log, driver, 0, ends=True)
    age(stream.log, 2, "true")
    path = settings.data_dir("shop") / "staged" / "per_shop" / "d1"
    DeltaTable(str(path)).alter.set_table_properties({"delta.appendOnly": "true"})

    with capture_logs() as lines:
        assert gc.main([]).facts["staged files removed"] == 0

    assert [line["table"] for line in lines if line["event"].startswith("staged rows")] == [str(path)]
