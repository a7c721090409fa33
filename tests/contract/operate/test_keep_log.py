"""Old batches of outputs go from the log, without Spark: which, what holds them, what a kill leaves, and that every
total and window has the numbers of before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from psycopg2.extras import Json

from docs.generate import specification
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Pipeline
from onlyonce.commitlog import backfills, cuts
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.new_incarnations import NewIncarnations
from onlyonce.core.backfill import Span
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed, Session
from onlyonce.database.connect import ask, run
from onlyonce.database.statements import make_home
from onlyonce.failpoints import FailPoint
from onlyonce.operate import compact as log_cut
from onlyonce.operate import gc, plan
from tests.contract.conftest import Log
from tests.contract.shop import SHOP
from tests.support import long_log
from tests.support.long_log import OLD_STREAM, OUTPUT, STREAM

BATCHES = 1_500
OLD = 500
"""So many batches have lost their units: these may go, but for the last of them."""
LATE = 200
"""A batch that met a late record."""
KEEP = timedelta(days=30)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def old(new_log: Callable[[], Log], monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Log:
    """A log of two incarnations, a batch a minute, each of one window of its own; a collection has been."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_PIPELINES", SHOP)
    monkeypatch.setattr(cuts, "AT_ONCE", 120)
    log = new_log()
    long_log.fill(log.url, BATCHES)
    for table in ("window_counts", "batches"):
        log.rows(
            f"UPDATE onlyonce_private.{table} SET late = 1, in_time = 19 WHERE (incarnation, batch_id) = (%s, %s)",
            OLD_STREAM,
            LATE,
        )
    collected(log)
    return log


def window(log: Log, number: int) -> Any:
    """Where the window starts that a batch of the first incarnation has met, and written."""
    [(start,)] = log.rows(
        "SELECT window_start FROM onlyonce_private.panes WHERE (incarnation, batch_id) = (%s, %s)", OLD_STREAM, number
    )
    return start


def backfill(log: Log, start: Any, stop: Any) -> None:
    """One of an interval that has begun."""
    name = f"shop/{OUTPUT}@{start:%H%M}/1"
    log.rows(
        "INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, kind) "
        "VALUES (%s, 'shop', %s, 1, gen_random_uuid(), 'backfill')", name, name.split("/")[1],
    )  # fmt: skip
    log.rows(
        "INSERT INTO onlyonce_private.backfills (incarnation, batch_id, instance, output, epoch, run_id, asked_by, " "window_from, window_to, events_version, "
        "declaration_hash) VALUES (%s, 0, 'shop', %s, 1, 'run', 'person', %s, %s, %s, 'd1')", name, OUTPUT, start, stop, BATCHES,
    )  # fmt: skip


def collected(log: Log) -> None:
    """What a collection does for the sums."""
    gc.fold_sums(log.database)
    gc.note_final(log.database)


def pipeline(keep: timedelta | None = KEEP, **changed: Any) -> Pipeline:
    """Its declaration: one output of fixed windows, unless it is changed."""
    shop = declarations.load()["shop"]
    output = replace(shop.outputs[0], name=OUTPUT, **({"window": Fixed(MINUTE)} | changed))
    return replace(shop, outputs=(output,), keep_log=keep)


def cut(log: Log, *, dry_run: bool = False, **changed: Any) -> log_cut.LogCut:
    """Once."""
    done = log_cut.cut_log(log.database, pipeline(**changed), dry_run=dry_run)
    assert done is not None
    return done


def left(log: Log) -> list[int]:
    """The old batches of the first incarnation that the log has; their windows are there with them."""
    batches = [
        n
        for (n,) in log.rows(
            "SELECT batch_id FROM onlyonce_private.batches WHERE incarnation = %s AND batch_id < %s ORDER BY 1",
            OLD_STREAM,
            OLD,
        )
    ]
    met = [
        n
        for (n,) in log.rows(
            "SELECT batch_id FROM onlyonce_private.window_counts WHERE incarnation = %s AND batch_id < %s ORDER BY 1",
            OLD_STREAM,
            OLD,
        )
    ]
    assert batches == met
    return batches


def numbers(log: Log) -> dict[str, Any]:
    """All that people ask of it that is no list of batches: by the named queries of the reports and the page, of a new
    incarnation and of a backfill."""
    begin, end = window(log, LATE) - 300 * MINUTE, window(log, LATE) + 10_000 * MINUTE
    values: dict[str, Any] = {
        "instance": "shop", "output": OUTPUT, "outputs": [OUTPUT], "instances": ["shop"], "n": 5_000, "start": end, "end": end, "generation": 9,
        "window_from": begin, "window_to": end, "events_version": BATCHES, "time": window(log, LATE), "query": OUTPUT, "version": LATE,
        "incarnation": OLD_STREAM,
    }  # fmt: skip
    asked = [
        *(("views", name) for name in ("status", "fates", "not_conserved", "outputs_and_receive", "progress", "comparable", "lag", "incarnations")),
        *(("page", name) for name in ("pipelines", "windows", "late_windows", "recent", "broken", "incarnations")),
        ("backfills", "windows_in"), ("backfills", "met"), ("backfills", "late_not_included"), ("trace", "windows_at"), ("trace", "read_by"),
        ("new_incarnations", "last_offset"), ("plan", "made_under"), ("metrics", "records"), ("metrics", "stages"), ("doctor", "uneven_buckets"),
    ]  # fmt: skip
    found: dict[str, Any] = {}
    for file, name in asked:
        rows = run(log.database, lambda conn, f=file, n=name: ask(conn, f, n, **values))  # type: ignore[misc]
        moving = {
            "system_lag",
            "freshness",
            "system_lag_seconds",
            "freshness_seconds",
            "quiet_seconds",
            "ago",
            "oldest_unread_at",
            "watermark_lag_seconds",
        }
        # Which incarnation has read a record is told, by a later batch of it.
        moving |= (
            {"batch_id", "run_id", "committed_at"}
            if name == "read_by"
            else {"log_kept_from"}
            if name == "incarnations"
            else set()
        )
        found[f"{file} {name}"] = [{k: v for k, v in row._mapping.items() if k not in moving} for row in rows]
    found["the sums"] = log.rows("SELECT * FROM onlyonce.totals ORDER BY incarnation")
    found["a new incarnation"] = NewIncarnations(log.database).begins_at("shop", OUTPUT, STREAM, None)
    span = Span.of(begin, end)
    request = backfills.Request("shop", OUTPUT, span, "person", "d1")
    found["a backfill"] = Backfills(log.database).met(request.instance, request.output, span, BATCHES)
    return found


def test_old_batches_go_and_every_total_and_window_has_its_numbers(old: Log) -> None:
    """But one that met a late record, and the last old one.

    The log says from when it is whole, and what is younger is all there.
    """
    before = numbers(old)
    assert before["page late_windows"]
    looked = cut(old, dry_run=True)
    assert (looked.incarnations, looked.batches, looked.whole_from, len(left(old))) == (2, OLD - 2, None, OLD), (
        "a dry run counts what would go"
    )

    done = cut(old)

    assert left(old) == [LATE, OLD - 1]
    assert (done.batches, done.held_by) == (OLD - 2, None)
    assert numbers(old) == before
    [(since,)] = old.rows("SELECT DISTINCT log_kept_from FROM onlyonce.incarnations WHERE log_kept_from IS NOT NULL")
    assert since == done.whole_from
    assert cut(old).batches == 0
    assert old.rows("SELECT count(*) FROM onlyonce.batches WHERE query = 'receive'") == [(BATCHES,)]


def open_window(log: Log) -> None:
    """One that a new incarnation begins at."""
    log.rows("UPDATE onlyonce_private.panes SET final = false WHERE (incarnation, batch_id) = (%s, 50)", OLD_STREAM)
    log.rows("UPDATE onlyonce_private.sums SET final_upto = -1")
    collected(log)


def unfinished_file(log: Log) -> None:
    """One that waits for its final name."""
    log.rows(
        "UPDATE onlyonce_private.files SET finalized_at = NULL WHERE (incarnation, batch_id) = (%s, 70)", OLD_STREAM
    )


def units_there(log: Log) -> None:
    """A batch whose units have not gone."""
    log.rows(
        "UPDATE onlyonce_private.batches SET units_removed = NULL WHERE (incarnation, batch_id) = (%s, 60)", OLD_STREAM
    )


def does_not_add_up(log: Log) -> None:
    """A batch that is in no sum, for it does not add up."""
    log.rows("UPDATE onlyonce_private.sums SET upto = 79 WHERE incarnation = %s", OLD_STREAM)


def read_little(log: Log) -> None:
    """A new incarnation that has read less than the one before."""
    log.rows(
        "UPDATE onlyonce_private.batches SET source_to = %s WHERE incarnation = %s AND batch_id = (SELECT " "max(batch_id) FROM onlyonce_private.batches WHERE incarnation = %s)",
        Json({"reservoirVersion": 31, "index": -1}), STREAM, STREAM,
    )  # fmt: skip


def read_nothing(log: Log) -> None:
    """A new incarnation that has read nothing yet."""
    log.rows("UPDATE onlyonce_private.incarnations SET state = 'closed' WHERE incarnation = %s", STREAM)


def young(log: Log) -> None:
    """Batches that were committed a week ago."""
    log.rows(
        "UPDATE onlyonce_private.batches SET committed_at = now() - interval '7 days' WHERE incarnation = %s AND "
        "batch_id >= 90",
        OLD_STREAM,
    )


def begun_backfill(log: Log) -> None:
    """It may ask for any."""
    backfill(log, window(log, 5), window(log, 6))


HOLDS: dict[str, tuple[Callable[[Log], None], set[int]]] = {
    "an open window": (open_window, set(range(49, OLD))),
    "a file without its name": (unfinished_file, {70}),
    "units that are there": (units_there, {59, 60}),
    "a batch in no sum": (does_not_add_up, set(range(79, OLD))),
    "an incarnation that has read little": (read_little, set(range(31, OLD))),
    "an incarnation that has read nothing": (read_nothing, set(range(OLD))),
    "a batch that is young": (young, set(range(89, OLD))),
    "a backfill under way": (begun_backfill, set(range(OLD))),
}  # fmt: skip


@pytest.mark.parametrize("name", HOLDS)
def test_what_may_be_asked_for_stays(old: Log, name: str) -> None:
    """And what is before it goes, where it may."""
    hold, held = HOLDS[name]
    hold(old)

    done = cut(old)

    assert set(left(old)) == held | {LATE, OLD - 1}
    assert (done.held_by is not None) == (name == "a backfill under way")


def test_of_sessions_the_batch_stays_at_which_a_new_incarnation_begins(old: Log) -> None:
    """No window of theirs is final by name: a new incarnation makes all of them again, from the first."""
    old.rows("UPDATE onlyonce_private.panes SET final = false")
    old.rows("UPDATE onlyonce_private.sums SET final_upto = -1")
    collected(old)
    before = numbers(old)

    cut(old, window=Session(MINUTE))

    assert left(old) == [0, LATE, OLD - 1]
    assert numbers(old) == before


@pytest.mark.parametrize("point", specification.points("keep-log-"))
def test_a_kill_at_any_step_is_finished_by_the_next_time(old: Log, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """The numbers are the same at each moment."""
    before = numbers(old)

    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        armed.setattr(log_cut, "passing", passing)
        with pytest.raises(FailPoint):
            cut(old)
    assert numbers(old) == before
    cut(old)

    assert (left(old), numbers(old)) == ([LATE, OLD - 1], before)


def test_a_plan_says_what_a_shorter_log_gives_up(old: Log) -> None:
    """Before it is done; nothing is said where nothing changes."""

    def said(keep: timedelta | None) -> list[str]:
        return [change.why for change in plan.made(old.database, pipeline(keep)).found if change.part == "keep_log"]

    assert said(None) == []
    assert ["cuts the batches" in why for why in said(KEEP)] == [True]
    assert said(timedelta(days=300_000)) == ["no batch of an output is so old yet"]
    cut(old)
    assert said(KEEP) == []
    assert ["does not come back" in why for why in [*said(None), *said(2 * KEEP)]] == [True, True]
    with pytest.raises(Refused, match="less than a day"):
        pipeline(timedelta(hours=5))
