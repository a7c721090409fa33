"""`events` compacted without Spark: which files and entries of the log go, and what a kill at any step leaves."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from onlyonce import settings
from onlyonce.commitlog.cuts import Compactions
from onlyonce.core.batch import to_micros
from onlyonce.core.frontier import Frontier
from onlyonce.core.locations import on_disk
from onlyonce.failpoints import FailPoint
from onlyonce.operate import compact as operate_compact
from onlyonce.operate import in_use
from onlyonce.receive import events
from onlyonce.sources import manifest
from onlyonce.tables import attempt_files, opening, own_tables, rewrite
from onlyonce.tables import commit as tables_commit
from tests.contract.shop import EVENTS, Shop, at, shop  # noqa: F401 - a fixture


def rows(shop: Shop) -> Counter[Any]:  # noqa: F811
    """All rows of `events`, as a multiset."""
    found = DeltaTable(str(shop.events)).to_pyarrow_table().to_pylist()
    return Counter(repr(sorted(row.items())) for row in found)


def fill(shop: Shop, first: int = 0, batches: int = 5) -> None:  # noqa: F811
    """Batches of receive, each of a minute of its own, which both outputs have read and closed."""
    for number in range(first, first + batches):
        shop.receive((f"s{number}", at(number)), (f"t{number}", at(number + 0.5)), ("{broken", "no JSON"))
    for query in ("per_shop", "balance"):
        shop.output(query)
        shop.output(query)


def compact(shop: Shop) -> operate_compact.Compacted:  # noqa: F811
    """Compact once."""
    [done] = operate_compact.compact(shop.log.database, "shop", [], dry_run=False)
    return done


def test_what_is_ended_and_read_becomes_few_files_in_order_of_time_with_the_same_rows(shop: Shop) -> None:  # noqa: F811
    """A look alone changes nothing; the second time finds nothing to do; the transactions of receive stay known."""
    fill(shop)
    before, version = rows(shop), tables_commit.latest(shop.events)

    operate_compact.compact(shop.log.database, "shop", [], dry_run=True)
    assert tables_commit.latest(shop.events) == version
    first, second = compact(shop), compact(shop)

    assert (first.files_after, second.new_files) == (1, 0)
    assert rows(shop) == before
    assert opening.added(shop.events, tables_commit.latest(shop.events)) == []  # no stream sees them again
    times = (
        DeltaTable(str(shop.events))
        .to_pyarrow_table(columns=["oo_event_time"])["oo_event_time"]
        .drop_null()
        .to_pylist()
    )
    assert times == sorted(times)
    assert DeltaTable(str(shop.events)).transaction_version("shop/receive/1/events") == 4
    assert Compactions(shop.log.database).compacted("shop") == first.upto


def test_control_rows_become_one_that_tells_the_latest_frontier(shop: Shop) -> None:  # noqa: F811
    """The next compaction folds it with those that came since."""
    shop.events.mkdir(parents=True)
    DeltaTable.create(str(shop.events), EVENTS, partition_by=["oo_kind"])  # type: ignore[arg-type]
    fill(shop)
    for count in (5, 8):
        for number in range(3):
            commit = tables_commit.Commit("shop/receive/1/control", count + number, f"control/{count + number}", 1, "")
            events.add_control(
                shop.events,
                commit,
                "shop/receive/1",
                number,
                Frontier(max_event_time=to_micros(at(count + number))),
                at(count),
            )
        fill(shop, count, 3)
        compact(shop)
        told = DeltaTable(str(shop.events)).to_pyarrow_table(filters=[("oo_kind", "=", "control")])["oo_frontier"]
        assert [frontier["max_event_time"] for frontier in told.to_pylist()] == [at(count + 2)]


def test_a_query_that_stands_still_holds_what_it_has_not_read(shop: Shop) -> None:  # noqa: F811
    """Its commits keep their files, and it is named."""
    fill(shop)
    read = tables_commit.latest(shop.events)
    for number in range(5, 9):
        shop.receive((f"s{number}", at(number)))
    shop.output("balance")
    shop.output("balance")

    done = compact(shop)

    assert (done.upto, done.held_by) == (read, "per_shop")
    for version in range(read + 1, tables_commit.latest(shop.events)):
        assert all(on_disk(file.path).exists() for file in opening.added(shop.events, version))


def begins_later(shop: Shop) -> None:  # noqa: F811
    """An output that is declared after the others have run."""
    more = replace(shop.pipeline.output("per_shop"), name="later")
    shop.pipeline = replace(shop.pipeline, outputs=(*shop.pipeline.outputs, more))
    shop.open("later")


def test_what_is_behind_a_first_batch_that_may_be_read_again_is_not_compacted(shop: Shop) -> None:  # noqa: F811
    """Its rows are those of the table as it was when it was planned; from there its query reads on commit by commit."""
    fill(shop)
    begins_later(shop)
    planned = tables_commit.latest(shop.events)
    shop.output("later", upto="begin")
    fill(shop, 5)

    done = compact(shop)

    assert (done.upto, done.held_by) == (planned, "later")
    assert Compactions(shop.log.database).compacted("shop") == planned
    there = set(DeltaTable(str(shop.events)).file_uris())
    for version in range(planned + 1, tables_commit.latest(shop.events)):
        assert {str(file.path) for file in opening.added(shop.events, version)} <= there


def test_what_is_compacted_is_not_held_by_an_open_window_that_began_there(shop: Shop) -> None:  # noqa: F811
    """A new incarnation that would begin there takes the table as it is, so what came since may be compacted too."""
    fill(shop)
    begins_later(shop)
    shop.output("later")
    upto = compact(shop).upto
    fill(shop, 5)
    shop.output("later", opens=(at(5),))
    shop.output("later")

    done = compact(shop)

    assert done.held_by is None
    assert done.upto > upto


@pytest.mark.parametrize(
    "point",
    [
        "compact-after-note",
        "rewrite-before-commit",
        "rewrite-after-commit",
        "compact-after-checkpoint",
        "compact-after-log",
    ],
)
def test_a_kill_at_any_step_leaves_a_whole_table_and_the_next_time_does_the_rest(
    shop: Shop,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    """Also once what the killed one has left is swept away."""
    fill(shop)
    before = rows(shop)

    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        for module in (operate_compact, rewrite):
            armed.setattr(module, "passing", passing)
        with pytest.raises(FailPoint):
            compact(shop)
    assert rows(shop) == before
    compact(shop)
    attempt_files.sweep_attempts("shop", 0, [])
    assert rows(shop) == before
    assert len(DeltaTable(str(shop.events)).file_uris()) == 1


def test_old_files_stay_for_readers_from_the_compaction_on_however_old_they_are(
    shop: Shop,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And as long as the oldest batch that is under way."""
    fill(shop)
    old = [
        on_disk(file.path)
        for version in range(tables_commit.latest(shop.events) + 1)
        for file in opening.added(shop.events, version)
    ]
    for file in old:
        os.utime(file, (0, 0))
    compact(shop)

    assert all(time.time() - file.stat().st_mtime < 3600 for file in old)  # what the sweep goes by
    assert in_use.hours_under_way(shop.log.database, "shop") == 0
    shop.receive(("late", at(3)))
    shop.output("per_shop", upto="begin")
    shop.log.rows(
        "UPDATE onlyonce_private.batches SET begun_at = begun_at - interval '100 hours' WHERE state = 'begun'"
    )
    assert in_use.hours_under_way(shop.log.database, "shop") >= 100


def test_of_two_that_compact_at_once_one_does(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The other finds its files gone, also where it had looked before: a row is in the table once.

    An append between is no matter.
    """
    fill(shop)
    before = rows(shop)
    table = DeltaTable(str(shop.events))
    of = operate_compact.Table(shop.events, operate_compact.EVENTS, table.version())
    [group] = operate_compact._groups(table, of)
    said, others = (
        own_tables.added,
        [lambda: shop.receive(("more", at(7))), lambda: operate_compact._rewrite(of, "shop", group)],
    )

    def after_another(*given: Any, **named: Any) -> Any:
        """Between the look and the commit of the first, the others come."""
        while others:
            others.pop()()
        return said(*given, **named)

    monkeypatch.setattr(own_tables, "added", after_another)
    assert not operate_compact._rewrite(of, "shop", group)

    assert rows(shop) - before == Counter({row: 1 for row in rows(shop) if "'more'" in row})
    assert sum(rows(shop).values()) == sum(before.values()) + 1


def test_a_commit_whose_answer_was_lost_keeps_its_files(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The old files are gone by the commit itself: the new ones are the table's, and must not be cleared away."""
    fill(shop)
    before = rows(shop)
    commit, answers = DeltaTable.create_write_transaction, [CommitFailedError("the answer is lost")]

    def lost(table: DeltaTable, *given: Any, **named: Any) -> None:
        """Commit, and lose the first answer."""
        commit(table, *given, **named)
        if answers:
            raise answers.pop()

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    done = compact(shop)

    assert not answers
    assert done.new_files > 0
    assert all(
        (shop.events / path).exists()
        for path in opening.table(shop.events).get_add_actions().column("path").to_pylist()
    )
    assert rows(shop) == before


def test_a_table_that_fails_is_left_for_the_next_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """An error without a message is named by its kind."""
    fill(shop)

    def failing(*_: Any, **__: Any) -> None:
        """The store does not answer."""
        raise TimeoutError

    monkeypatch.setattr(operate_compact, "_compact", failing)
    warnings: list[str] = []

    assert operate_compact.compact(shop.log.database, "shop", warnings, dry_run=False) == []
    assert warnings == ["shop: its table events is left for the next time: TimeoutError"]


def test_the_log_of_the_table_is_cut_at_a_checkpoint_that_nobody_may_need_to_look_behind(shop: Shop) -> None:  # noqa: F811
    """Old entries go, and each later version can be read."""
    fill(shop)
    compact(shop)
    fill(shop, 5)
    upto = compact(shop).upto
    there = {
        version: DeltaTable(str(shop.events), version=version).to_pyarrow_table().num_rows
        for version in range(upto, tables_commit.latest(shop.events) + 1)
    }

    assert rewrite.shorten_log(shop.events, upto, 1) == 0
    assert rewrite.shorten_log(shop.events, upto, 0)

    assert not (shop.events / "_delta_log" / f"{0:020}.json").exists()
    assert there == {
        version: DeltaTable(str(shop.events), version=version).to_pyarrow_table().num_rows for version in there
    }
    assert DeltaTable(str(shop.events)).transaction_version("shop/receive/1/events") == 9


def test_a_quiet_source_among_several_keeps_its_last_batch(shop: Shop) -> None:  # noqa: F811
    """Though all its other entries are merged, and what no version names is gone; a table whose last entry was merged
    already is read as a whole.
    """
    table = settings.data_location("shop") / "sources" / "web" / "files"
    for number in range(6):
        row = {"batch_no": number, "path": f"/in/{number}", "seen_at": at(number)}
        write_deltalake(str(table), pa.Table.from_pylist([row]), mode="append")
    for _ in range(3):
        operate_compact.compact(shop.log.database, "shop", [], dry_run=False)
        for entry in (on_disk(table) / "_delta_log").glob("*.json"):
            os.utime(entry, (time.time() - 10_000, time.time() - 10_000))
        DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert manifest.last_batch(table) == 5
    assert len(DeltaTable(str(table)).file_uris()) == 2

    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert manifest.last_batch(table) == 5
