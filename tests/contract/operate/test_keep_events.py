"""Old days of `events` go, without Spark: which rows, what holds them, what a kill at any step leaves, and what is
refused afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from onlyonce import Delta, Session
from onlyonce.api.pipeline import Pipeline
from onlyonce.commitlog import backfills, batches
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.commitlog.removals import Removals
from onlyonce.commitlog.reprocessings import Reprocessings
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, to_micros
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.frontier import Frontier
from onlyonce.core.reprocess import RowSet
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit, compact, erase_search, forget, plan
from onlyonce.records import trace
from onlyonce.run import reset
from onlyonce.sources import record_id
from onlyonce.tables import attempt_files, commit, opening, rewrite
from tests.contract.conftest import plan_of
from tests.contract.shop import BUCKET, Shop, at, shop  # noqa: F401 - a fixture

DAY = 24 * 60
DAYS = 5
BUCKETS_A_DAY = 144
KEEP = timedelta(days=2)


@pytest.fixture
def old(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:  # noqa: F811
    """A batch of each of five days, read and closed by both outputs; the ids of the last one are not collected yet."""
    monkeypatch.setattr(audit, "SECOND_LOOK_SECONDS", 0.0)
    for day in range(DAYS):
        receive(shop, day)
    read(shop)
    floor(shop, DAYS - 1)
    return shop


def receive(shop: Shop, day: int) -> None:  # noqa: F811
    """Two records of a day, one of the day before it, and a line that is invalid."""
    sales = [(f"{name}{day}", at(DAY * (day - early) + 5)) for name, early in (("a", 0), ("b", 0), ("late", 1))]
    shop.receive(*sales, (f"{{broken {day}", "no JSON"), bucket=BUCKET + BUCKETS_A_DAY * day)


def read(shop: Shop) -> None:  # noqa: F811
    """Both outputs read what there is, and close it with the batch after."""
    for query in ("per_shop", "balance"):
        shop.output(query)
        shop.output(query)


def floor(shop: Shop, day: int) -> None:  # noqa: F811
    """The ids of the days before are collected."""
    shop.log.rows("UPDATE onlyonce_private.pipelines SET gc_floor = %s", BUCKET + BUCKETS_A_DAY * day)


def pipeline(shop: Shop, keep: timedelta | None = KEEP) -> Pipeline:  # noqa: F811
    """The declaration, which keeps so much."""
    return replace(shop.pipeline, keep_events=keep)


def retain(shop: Shop, keep: timedelta | None = KEEP, *, dry_run: bool = False) -> compact.Retained:  # noqa: F811
    """Once."""
    return of(shop, pipeline(shop, keep), dry_run=dry_run)


def of(shop: Shop, declared: Pipeline, *, dry_run: bool) -> compact.Retained:  # noqa: F811
    """Once, under a declaration."""
    done = compact.retain(shop.log.database, declared, dry_run=dry_run)
    assert done is not None
    return done


def rows(shop: Shop) -> list[dict[str, Any]]:  # noqa: F811
    """All rows of `events`."""
    found: list[dict[str, Any]] = DeltaTable(str(shop.events)).to_pyarrow_table().to_pylist()
    return found


def multiset(rows: list[dict[str, Any]]) -> Counter[str]:
    """Of rows, whatever their order."""
    return Counter(repr(sorted(row.items())) for row in rows)


def kept(rows: list[dict[str, Any]], before: datetime, last_batch: int) -> list[dict[str, Any]]:
    """The oracle: what is left without the rows of these batches from before a moment."""
    return [
        row
        for row in rows
        if (row["oo_event_time"] or row["oo_ingestion_time"]) >= before or row["oo_batch"] > last_batch
    ]


def test_whole_days_that_nobody_asks_for_go_and_the_log_has_their_numbers(old: Shop) -> None:
    """To the row: of batches before the dedup horizon, by event time, an invalid line by its ingestion time.

    A stream passes it by.
    """
    before = rows(old)
    looked = retain(old, dry_run=True)
    assert multiset(rows(old)) == multiset(before)

    done = retain(old)

    assert done == looked
    # The newest event time of collected batches is of the fourth day.
    assert (done.kept_from, done.held_by) == (at(DAY), "the dedup horizon")
    assert multiset(rows(old)) == multiset(kept(before, at(DAY), DAYS - 2))
    gone = multiset(before) - multiset(rows(old))
    assert (gone.total(), done.removed) == (done.counts["kept"] + done.counts["invalid"], gone.total())
    assert opening.added(old.events, commit.latest(old.events)) == []
    disagreements, left_out = audit.examine_data(old.log.database, {"shop": pipeline(old)}, lambda _: None)
    assert [one for one in disagreements if "events" in one] == []
    assert any(f"{gone.total()} rows of `events`" in why for why in left_out)
    assert retain(old).removed == 0
    later = rows(old)
    receive(old, DAYS)
    read(old)
    floor(old, DAYS)
    assert retain(old).kept_from == at(2 * DAY)
    assert multiset(kept(later, at(2 * DAY), DAYS - 1)) < multiset(rows(old))


def begun_backfill(shop: Shop) -> None:  # noqa: F811
    """Of a day that would go."""
    shop.log.rows(
        "INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, kind) "
        "VALUES ('shop/per_shop@x/1', 'shop', 'per_shop@x', 1, gen_random_uuid(), 'backfill')"
    )
    shop.log.rows(
        "INSERT INTO onlyonce_private.backfills (incarnation, batch_id, instance, output, epoch, run_id, asked_by, " "window_from, "
        "window_to, events_version, declaration_hash) VALUES ('shop/per_shop@x/1', 0, 'shop', 'per_shop', 1, " "'run', 'person', "
        "%s, %s, 1, 'hash')", at(0), at(DAY),
    )  # fmt: skip


def begun_reprocessing(shop: Shop) -> None:  # noqa: F811
    """It will look for its rows."""
    shop.log.rows(
        "INSERT INTO onlyonce_private.reprocessings (instance, kind, run_id, events_version) VALUES ('shop', "
        "'invalid', 'run', 1)"
    )


def one_batch_only(shop: Shop) -> None:  # noqa: F811
    """An output whose first batch may be begun again over the whole table."""
    shop.log.rows("DELETE FROM onlyonce_private.batches WHERE incarnation = 'shop/balance/1' AND batch_id = 1")


def has_not_read(shop: Shop) -> None:  # noqa: F811
    """An output that has read nothing of the commits that may go."""
    shop.log.rows(
        'UPDATE onlyonce_private.batches SET source_from = \'{"reservoirVersion": 0, "index": -1}\' WHERE '
        "incarnation = 'shop/balance/1' AND batch_id = 1"
    )


def undeclared(shop: Shop) -> None:  # noqa: F811
    """An output that may be declared again, and goes on then."""
    shop.log.start("shop", "gone")


HOLDS: dict[str, tuple[Callable[[Shop], None], str]] = {
    "ids that are not collected": (lambda old: floor(old, 0), "the dedup horizon"),
    "a backfill under way": (begun_backfill, "the backfill shop/per_shop@x/1"),
    "a reprocessing under way": (begun_reprocessing, "reprocessing 1"),
    "a first batch": (one_batch_only, "balance"),
    "an output that stands still": (has_not_read, "balance"),
    "an output that is not declared": (undeclared, "gone, which is not declared"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOLDS)
def test_what_may_ask_for_a_record_holds_it_and_is_named(old: Shop, name: str) -> None:
    """Nothing goes, and nothing is refused by it."""
    hold, by = HOLDS[name]
    hold(old)
    before = multiset(rows(old))

    done = retain(old)

    assert (done.held_by, done.removed, multiset(rows(old))) == (by, 0, before)
    assert Removals(old.log.database).kept_from("shop") is None


def test_windows_that_are_open_and_late_records_to_fold_in_keep_their_day(old: Shop) -> None:
    """An output that waits for two days longer; and one that will compute a window again by itself."""
    slow = replace(old.pipeline.outputs[2], watermark_delay=timedelta(days=4))
    waiting = replace(pipeline(old), outputs=(*old.pipeline.outputs[:2], slow))
    assert of(old, waiting, dry_run=True).held_by == "balance"
    old.log.rows(
        "INSERT INTO onlyonce_private.window_counts (incarnation, batch_id, output, window_start, window_end, " "in_time, late) "
        "VALUES ('shop/per_shop/1', 0, 'per_shop', %s, %s, 0, 1)", at(5), at(6),
    )  # fmt: skip
    folding = replace(
        pipeline(old), outputs=(replace(old.pipeline.outputs[0], late="backfill"), *old.pipeline.outputs[1:])
    )
    assert of(old, folding, dry_run=True).held_by == "per_shop"


POINTS = [
    "retention-after-begin",
    "retention-after-count",
    "remove-before-commit",
    "remove-after-commit",
    "retention-before-end",
]


SAMPLE = ("retention-after-count", "remove-after-commit")
"""The others are in make test-all."""


@pytest.mark.parametrize(
    "point", [pytest.param(one, marks=() if one in SAMPLE else pytest.mark.whole) for one in POINTS]
)
def test_a_kill_at_any_step_is_finished_by_the_next_time(
    old: Shop, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The same rows go, and are counted once; the audit agrees at each moment, also where keep_events was taken out
    meanwhile."""
    before = rows(old)

    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        for module in (compact, rewrite):
            armed.setattr(module, "passing", passing)
        with pytest.raises(FailPoint):
            retain(old)
    assert list(audit._events(old.log.database, "shop", old.events)) == []
    with pytest.raises(Refused):
        backfill(old, at(0))
    compact.compact(old.log.database, "shop", [], dry_run=False)  # other files, the same rows
    retain(old, None)

    assert multiset(rows(old)) == multiset(kept(before, at(DAY), DAYS - 2))
    assert list(audit._events(old.log.database, "shop", old.events)) == []
    assert old.log.rows("SELECT state, files > 0 FROM onlyonce_private.removals") == [("done", True)]
    attempt_files.sweep_attempts("shop", 0, [])
    assert multiset(rows(old)) == multiset(kept(before, at(DAY), DAYS - 2))


def test_of_two_that_remove_at_once_one_does(old: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other finds it done."""
    before, others = rows(old), [lambda: retain(old)]
    taken = rewrite.remove_rows

    def after_another(*given: Any) -> bool:
        while others:
            others.pop()()
        return taken(*given)

    monkeypatch.setattr(rewrite, "remove_rows", after_another)
    retain(old)

    assert multiset(rows(old)) == multiset(kept(before, at(DAY), DAYS - 2))
    assert old.log.rows("SELECT removal_no, state FROM onlyonce_private.removals") == [(1, "done")]
    assert list(audit._events(old.log.database, "shop", old.events)) == []


def backfill(shop: Shop, start: datetime) -> None:  # noqa: F811
    """Begin one, of a day."""
    span = Span.of(start, start + timedelta(days=1))
    request = backfills.Request("shop", "per_shop", span, "person", "hash")
    driver = Backfills(shop.log.database).open_incarnation(request, "run")
    Backfills(shop.log.database).begin(driver, request, 1)


def test_what_is_gone_is_refused_with_the_first_moment_that_there_is(old: Shop) -> None:
    """A backfill, a new output, a new incarnation from the beginning; each has a way to go on with what is kept."""
    retain(old)
    first = "2026-01-02T00:00:00Z"

    with pytest.raises(Refused) as early:
        backfill(old, at(DAY - 1))
    with pytest.raises(Refused) as new:
        Removals(old.log.database).register("shop", "another")
    with pytest.raises(Refused) as again:
        reset.new("shop/per_shop", yes=True)

    assert all(first in error.value.what + error.value.hint and error.value.data for error in (early, new, again))
    assert "--from-kept" in new.value.hint
    backfill(old, at(DAY))
    assert reset.new("shop/per_shop", yes=True, from_kept=True).facts["new"] == "shop/per_shop/2"
    live = Incarnations(old.log.database).live("shop", "per_shop")
    assert live is not None
    assert (live.start_from or {})["first_window"] == to_micros(at(DAY))
    old.log.rows("UPDATE onlyonce_private.incarnations SET state = 'closed' WHERE query = 'balance'")
    with pytest.raises(Refused):
        Removals(old.log.database).register("shop", "balance")
    assert reset.new("shop/balance", yes=True, from_kept=True).facts["starts from"] == first
    Removals(old.log.database).register("shop", "balance")


def test_an_erasure_that_needs_a_new_incarnation_is_refused_with_the_first_moment(
    old: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state has the person, and `events` no longer reaches back to its start: nothing is changed."""
    retain(old)
    old.die()
    outputs = [old.pipeline.output("per_shop")]
    monkeypatch.setattr(erase_search, "_renewed", lambda *_: iter(outputs))
    before = rows(old)

    with pytest.raises(Refused) as refused:
        forget.main(["shop", "--where", "id = 'a4'", "--yes"])

    assert "2026-01-02T00:00:00Z" in refused.value.what + refused.value.hint
    assert rows(old) == before
    assert old.log.rows("SELECT count(*) FROM onlyonce_private.erasures") == [(0,)]


def test_a_reprocessing_whose_rows_went_meanwhile_is_not_begun(old: Shop) -> None:
    """It looks once more."""
    version = commit.latest(old.events)
    sets = [RowSet("shop/receive/1", 0, "no JSON", "", 1)]
    retain(old)

    with pytest.raises(Retryable):
        Reprocessings(old.log.database).begin("shop", "invalid", "run", version, sets)
    now = commit.latest(old.events)
    Reprocessings(old.log.database).begin("shop", "invalid", "run", now, sets)


def test_a_batch_of_which_records_went_has_so_many_fewer_to_be_met(old: Shop) -> None:
    """So a new output's first batch adds up; and who traces such a record is told."""
    from onlyonce.commitlog.batches import Batches

    retain(old)

    met = Batches(old.log.database).received("shop", -1, commit.latest(old.events))
    there = Counter(row["oo_batch"] for row in rows(old) if row["oo_kind"] == "kept")
    assert {one.batch_id: one.kept for one in met} == {batch: there[batch] for batch in range(DAYS)}
    report, _ = trace.trace(old.log.database, old.pipeline, "shop", record_id.asked(old.pipeline, ["a0"]))
    assert any("2026-01-02" in told and "removed" in told for told in report.warnings)


def test_a_plan_says_what_a_shorter_retention_gives_up(old: Shop) -> None:
    """Before it is done; nothing is said where nothing changes."""
    assert plan.made(old.log.database, old.pipeline).found == []
    [change] = plan.made(old.log.database, pipeline(old)).found
    assert (change.part, change.before, change.after) == ("keep_events", "for ever", "2 days")
    assert "2026-01-02T00:00:00Z" in change.why
    retain(old)
    assert plan.made(old.log.database, pipeline(old)).found == []
    [longer] = plan.made(old.log.database, old.pipeline).found
    assert "does not come back" in longer.why


def test_records_of_open_sessions_stay(old: Shop) -> None:
    """An early pane reads them again, however long ago a session began."""
    sessions = replace(
        old.pipeline.output("per_shop"),
        window=Session(timedelta(minutes=5)),
        panes="early",
        sink=Delta(write="upsert", keys=("window_start", "shop")),
    )
    declared = replace(pipeline(old), outputs=(sessions, old.pipeline.output("balance")))
    closed = of(old, declared, dry_run=True)
    pane = pa.Table.from_pylist([{"window_start": at(65), "window_end": at(70), "rows": 1}], batches.WRITTEN)
    driver = old.log.start("shop", "per_shop")
    batch = Batch(plan_of(driver), Frontier(), 0, "committed", replayed=False)
    Batches(old.log.database).add_panes(batch, "shop", "per_shop", pane, final=False)
    opened = of(old, declared, dry_run=True)

    assert (closed.kept_from, closed.held_by) == (at(DAY), "the dedup horizon")
    assert (opened.kept_from, opened.held_by) == (at(0), "per_shop")


def test_keep_events_is_a_day_at_least(old: Shop) -> None:
    """Whole days go."""
    with pytest.raises(Refused, match="less than a day"):
        replace(old.pipeline, keep_events=timedelta(hours=5))
