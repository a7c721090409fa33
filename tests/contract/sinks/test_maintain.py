"""Maintenance of Delta tables: what is compacted, what stays, and who wins where two write."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from onlyonce import settings
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.commitlog.batches import Batches
from onlyonce.core.errors import Refused
from onlyonce.core.ownership import Place
from onlyonce.core.windows import Fixed, Session
from onlyonce.database.statements import make_home
from onlyonce.failpoints import FailPoint
from onlyonce.operate import compact as operate
from onlyonce.sinks import maintain
from onlyonce.sinks.delta.delta_target import rows_by_window
from tests.contract.conftest import Log, plan_of
from tests.contract.shop import Shop, at, shop  # noqa: F401 - a fixture

DAYS = [date(2026, 1, day) for day in (1, 2, 3)]
WEEK = 168


def put(path: Path, day: date, number: int) -> None:
    """What a batch of the stream leaves: one small file for a date, with its transaction."""
    rows = pa.table(
        {"n": [number], "window_start": [datetime(day.year, day.month, day.day, tzinfo=UTC)], "window_date": [day]}
    )
    done = CommitProperties(app_transactions=[Transaction("shop/per_shop/1/per_shop", number)])
    write_deltalake(str(path), rows, mode="append", partition_by=["window_date"], commit_properties=done)


def rows(path: Path, version: int | None = None) -> Counter[Any]:
    """All rows of a version, as a multiset."""
    found = DeltaTable(str(path), version=version).to_pyarrow_table().to_pylist()
    return Counter((row["n"], row["window_date"]) for row in found)


def files(path: Path, day: date) -> int:
    """How many files a date has."""
    return len(DeltaTable(str(path)).file_uris(file_pruning_predicate=f"window_date = '{day}'"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three dates, with four files each."""
    path = tmp_path / "table"
    for number in range(12):
        put(path, DAYS[number % 3], number)
    return path


def test_closed_dates_are_compacted_and_no_row_changes(table: Path) -> None:
    """An open date keeps its files; the stream's transaction is as it was; a second time finds nothing to do."""
    before = rows(table)

    first = maintain.maintain(table, DAYS[2], WEEK, dry_run=False)
    version = DeltaTable(str(table)).version()
    second = maintain.maintain(table, DAYS[2], WEEK, dry_run=False)

    assert [files(table, day) for day in DAYS] == [1, 1, 4]
    assert rows(table) == before
    assert DeltaTable(str(table)).transaction_version("shop/per_shop/1/per_shop") == 11
    assert (first.dates, second.dates) == (2, 0)
    assert not any(
        "OPTIMIZE" in entry["operation"] for entry in DeltaTable(str(table)).history() if entry["version"] > version
    )


@pytest.mark.parametrize("closed", [None, DAYS[0]])
def test_nothing_is_compacted_before_a_date_is_closed(table: Path, closed: date | None) -> None:
    """And a look alone changes nothing at all."""
    version = DeltaTable(str(table)).version()
    assert maintain.maintain(table, DAYS[2], WEEK, dry_run=True).dates == 2
    assert DeltaTable(str(table)).version() == version

    maintain.maintain(table, closed, WEEK, dry_run=False)
    assert [files(table, day) for day in DAYS] == [4, 4, 4]


def test_a_reader_that_began_before_keeps_its_files(table: Path) -> None:
    """The files that were replaced stay for the retention: an older version is read as it was; past it they go."""
    version, before = DeltaTable(str(table)).version(), rows(table)

    assert maintain.maintain(table, DAYS[2], WEEK, dry_run=False).removed == 0
    assert rows(table, version) == before

    assert maintain.maintain(table, DAYS[2], 0, dry_run=False).removed == 8
    assert rows(table) == before
    with pytest.raises(Exception, match=r"(?i)not found|no such file"):
        rows(table, version)


@pytest.mark.parametrize("point", ["maintain-before-compact", "maintain-after-compact", "maintain-after-vacuum"])
def test_stopped_at_any_point_the_next_run_does_what_is_left(
    table: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The rows are the same after the stop and after the next run, which leaves what an undisturbed one does."""
    before = rows(table)

    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        armed.setattr(maintain, "passing", passing)
        with pytest.raises(FailPoint):
            maintain.maintain(table, DAYS[2], WEEK, dry_run=False)
    assert rows(table) == before

    maintain.maintain(table, DAYS[2], WEEK, dry_run=False)
    assert rows(table) == before
    assert [files(table, day) for day in DAYS] == [1, 1, 4]


def test_the_stream_writes_beside_and_a_backfill_wins(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append to an open date is no conflict.

    A replacement of a closed date that came between is: the compaction fails, and the rows are the backfill's."""
    beside = [lambda: put(table, DAYS[2], 99), lambda: replace(table, DAYS[0], 500)]
    play = iter(beside)

    def passing(point: str) -> None:
        if point == "maintain-before-compact":
            next(play, lambda: None)()

    monkeypatch.setattr(maintain, "passing", passing)
    maintain.maintain(table, DAYS[1], WEEK, dry_run=False)
    assert (files(table, DAYS[0]), rows(table)[99, DAYS[2]]) == (1, 1)

    put(table, DAYS[0], 100)
    with pytest.raises(DeltaError):
        maintain.maintain(table, DAYS[1], WEEK, dry_run=False)
    assert {n for n, day in rows(table) if day == DAYS[0]} == {500}


def replace(path: Path, day: date, number: int) -> None:
    """What a backfill does with a date."""
    new = pa.table(
        {"n": [number], "window_start": [datetime(day.year, day.month, day.day, tzinfo=UTC)], "window_date": [day]}
    )
    write_deltalake(str(path), new, mode="overwrite", predicate=f"window_date = '{day}'")


def test_files_stay_longer_than_whatever_is_under_way(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that began ten days ago and is not at its end may still read what it began with."""
    monkeypatch.setenv("ONLYONCE_VACUUM_HOURS", "24")
    assert maintain.keep_hours(log.database) == settings.vacuum_hours() == 24
    driver = log.start("shop", "per_shop")
    Batches(log.database).begin(driver, "shop", plan_of(driver), None)
    log.rows("UPDATE onlyonce_private.batches SET begun_at = clock_timestamp() - interval '10 days'")

    assert maintain.keep_hours(log.database) >= 240


def test_a_date_is_closed_when_the_stream_has_written_all_its_windows(shop: Shop) -> None:  # noqa: F811
    """By the log's rule for backfills: nothing is closed before a batch has written it."""
    output = shop.pipeline.output("per_shop")

    def closed() -> date | None:
        return maintain.closed_before(shop.log.database, shop.pipeline, output)

    assert closed() is None
    shop.receive(("a", at(0)), ("b", at(60 * 30)))
    shop.output(closes=(at(0),))
    assert closed() is None  # what a batch has read closes windows that only the next one writes
    shop.log.rows(
        "UPDATE onlyonce_private.batches SET source_from = source_to WHERE incarnation LIKE 'shop/per_shop/%%'"
    )
    assert closed() == (at(0) + timedelta(days=1)).date()


@pytest.mark.parametrize(
    ("sink", "window", "kept"),
    [(Delta(), Fixed(timedelta(hours=1)), True), (Delta(), None, False), (Delta(), Session(timedelta(hours=1)), False),
     (Postgres(table="a.b"), Fixed(timedelta(hours=1)), False)],
)  # fmt: skip
def test_only_delta_tables_of_windows_that_close_are_maintained(
    sink: Any, window: Any, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have no date that is closed for good."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    output = Output(name="mine", transform="a:b", sink=sink, window=window)
    pipeline = Pipeline(
        name="shop",
        source=Files(),
        schema="id string, at timestamp",
        record_id=("id",),
        event_time="at",
        outputs=(output,),
    )
    first = settings.tables_dir() / "shop" / "mine" / "_delta_log" / f"{0:020}.json"
    first.parent.mkdir(parents=True)
    first.touch()

    assert (maintain.table_of(pipeline, output) is not None) == kept


@pytest.mark.parametrize(
    "entry",
    [
        "no JSON",
        json.dumps(
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["new"],
                    "writerFeatures": ["new"],
                }
            }
        ),
    ],
    ids=["damaged", "feature"],
)
def test_table_that_cannot_be_opened_is_left_with_a_warning(shop: Shop, entry: str) -> None:  # noqa: F811
    """The tables of other outputs are maintained."""
    path = settings.tables_dir() / "shop" / "per_shop"
    put(path, DAYS[0], 0)
    (path / "_delta_log" / f"{1:020}.json").write_text(entry)

    [told] = [warning for warning in operate.main(["shop"]).warnings if "per_shop" in warning]

    assert "left for the next time" in told


def test_a_table_whose_error_has_no_words_is_left_with_a_warning(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """A store that takes too long gives none."""

    def away(*_: object, **__: object) -> None:
        raise TimeoutError

    put(settings.tables_dir() / "shop" / "per_shop", DAYS[0], 0)
    monkeypatch.setattr(maintain, "maintain", away)
    [told] = [warning for warning in operate.main(["shop"]).warnings if "per_shop" in warning]

    assert told.endswith("left for the next time: TimeoutError")


FEATURES: dict[str, tuple[list[str], str]] = {
    "deletionVectors": (["deletionVectors"], "deletion vectors"),
    "columnMapping": (["columnMapping"], "column mapping"),
    "rowTracking": ([], "row tracking"),
    "inCommitTimestamp": ([], "in-commit timestamps"),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_what_a_team_has_switched_on_is_told_with_the_way_out_and_the_table_left_alone(
    shop: Shop,  # noqa: F811
    feature: str,
) -> None:
    """In three lines by `maintain`, and not as an error of the next night; the audit says what it could not compare,
    and why."""
    reader, name = FEATURES[feature]
    path = settings.tables_dir() / "shop" / "per_shop"
    for number in range(6):
        put(path, DAYS[number % 3], number)
    protocol = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    protocol |= {"readerFeatures": reader} if reader else {}
    (path / "_delta_log" / f"{6:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n")

    report = operate.main(["shop"])

    [told] = [warning for warning in report.warnings if "per_shop" in warning]
    assert name in told.splitlines()[0]
    assert "OPTIMIZE and VACUUM" in told.splitlines()[2]
    assert DeltaTable(str(path)).version() == 6
    if reader:
        with pytest.raises(Refused, match=f"has {name}: only Spark can count"):
            rows_by_window(Place(f"delta:{path}"), windowed=False)
    else:
        assert rows_by_window(Place(f"delta:{path}"), windowed=False)[None, None] == 6
