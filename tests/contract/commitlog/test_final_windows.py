"""Where a new incarnation begins is told by the windows that are open, and none of those that are final for years is looked at
for it: on a real log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg2
import pytest

from onlyonce.commitlog import removals
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.new_incarnations import NewIncarnations
from onlyonce.database.migrate import migrate
from onlyonce.database.statements import queries
from onlyonce.operate import gc
from tests.contract.conftest import Log
from tests.support import long_log, plans
from tests.support.long_log import OLD_STREAM, OUTPUT, STREAM

BATCHES = 3_000
START, MINUTE = datetime(2025, 1, 1, tzinfo=UTC), timedelta(minutes=1)
OLD = 2 * BATCHES // 3
"""The batches of the first incarnation; each has met one window of its own."""
AT_EVERY_WINDOW = """
SELECT l.ordinal, w.batch_id FROM onlyonce_private.window_counts w JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE w.in_time > 0 AND NOT EXISTS (
    SELECT 1 FROM onlyonce_private.panes p
    WHERE p.final AND (p.output, p.window_start, p.window_end) = (w.output, w.window_start, w.window_end))
ORDER BY 1, 2 LIMIT 1
"""
WITHOUT_A_PANE = """
INSERT INTO onlyonce_private.panes
    (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash)
SELECT 'shop', w.output, w.window_start, w.window_end, 0, true, 5, w.incarnation, w.batch_id, 'd1'
FROM onlyonce_private.window_counts w ON CONFLICT DO NOTHING
"""


@pytest.fixture(scope="module")
def filled(server: Any) -> Iterator[Log]:
    """A log of many batches, in its sums."""
    log = Log(server, server.new_database())
    migrate(log.url)
    long_log.fill(log.url, BATCHES)
    gc.fold_sums(log.database)
    yield log
    server.drop(log.name)


@pytest.fixture
def years(filled: Log) -> Iterator[Log]:
    """The same at the beginning of each test: nothing is noted of its windows, and all but the last are final."""
    yield filled
    filled.rows("DELETE FROM onlyonce_private.declarations")
    filled.rows("DELETE FROM onlyonce_private.panes WHERE rows = 0")
    filled.rows(WITHOUT_A_PANE)
    filled.rows("UPDATE onlyonce_private.sums SET final_upto = -1")
    filled.rows(
        "UPDATE onlyonce_private.panes SET final = window_start < (SELECT max(window_start) FROM "
        "onlyonce_private.panes)"
    )


def opened(log: Log, number: int) -> None:
    """The window that a batch of the first incarnation has met is not final."""
    log.rows(
        "UPDATE onlyonce_private.panes SET final = false WHERE (incarnation, batch_id) = (%s, %s) RETURNING 1", OLD_STREAM, number
    )  # fmt: skip


def noted(log: Log) -> dict[str, int]:
    """By incarnation of the output up to which batch all windows are noted as final."""
    return dict(
        log.rows(
            "SELECT incarnation, final_upto FROM onlyonce_private.sums WHERE incarnation LIKE 'shop/per_minute/%%'"
        )
    )


def begins(log: Log) -> dict[str, Any]:
    """Where a new incarnation would begin now."""
    return NewIncarnations(log.database).begins_at("shop", OUTPUT, STREAM, None) or {}


@pytest.mark.parametrize("opens", [(), (0,), (777,), (1200, 1900)])
def test_a_new_incarnation_begins_at_the_first_window_that_is_open(
    years: Log, monkeypatch: pytest.MonkeyPatch, opens: tuple[int, ...]
) -> None:
    """As by a look at every window there is; before a collection has noted what is final, after it, and when it has
    closed."""
    monkeypatch.setattr(removals, "NOTED_AT_ONCE", 500)
    for number in opens:
        opened(years, number)
    [(ordinal, number)] = years.rows(AT_EVERY_WINDOW)
    first = number if ordinal == 1 else OLD + number
    assert begins(years)["version"] == first

    gc.note_final(years.database)

    assert begins(years)["version"] == first
    assert noted(years)[OLD_STREAM] == (opens[0] if opens else OLD) - 1
    years.rows("UPDATE onlyonce_private.panes SET final = true")
    gc.note_final(years.database)
    assert noted(years) == {OLD_STREAM: OLD - 1, STREAM: BATCHES - OLD - 1}
    assert begins(years)["version"] == BATCHES


@pytest.mark.parametrize(
    ("before", "now", "closed"), [("fixed", "sliding", True), ("session", "fixed", False), ("fixed", "session", False)]
)
def test_a_window_that_others_have_replaced_holds_nothing_once_a_later_one_is_closed(
    years: Log, before: str, now: str, closed: bool
) -> None:
    """After a change of the output's windows no batch writes those that were open. Sessions close in no order."""
    years.rows(
        "DELETE FROM onlyonce_private.panes WHERE (incarnation, batch_id) = (%s, %s) RETURNING 1", OLD_STREAM, OLD - 1
    )
    for number, (incarnation, kind) in enumerate(((OLD_STREAM, before), (STREAM, now))):
        parts = json.dumps({"outputs": {OUTPUT: {"window": {"kind": kind}}}})
        hash_ = f"of_{kind}_{number}"
        years.rows(
            "INSERT INTO onlyonce_private.declarations (instance, query, hash, parts) VALUES ('shop', %s, %s, %s) RETURNING 1",
            OUTPUT, hash_, parts,
        )  # fmt: skip
        for table in ("batches", "panes"):
            years.rows(
                f"UPDATE onlyonce_private.{table} SET declaration_hash = %s WHERE incarnation = %s RETURNING 1",
                hash_, incarnation,
            )  # fmt: skip

    gc.note_final(years.database)

    [made] = years.rows(
        "SELECT count(*) FROM onlyonce_private.panes WHERE rows = 0 AND final AND incarnation = %s", STREAM
    )
    assert made == (int(closed),)
    assert noted(years)[OLD_STREAM] == OLD - 1 - (not closed)


def test_windows_that_are_final_are_not_looked_at_again(years: Log) -> None:
    """A bounded number of rows, by no index from its beginning."""
    gc.note_final(years.database)
    values = {"instance": "shop", "output": OUTPUT}

    scans = list(plans.visited(plans.carried_out(years.database, queries("new_incarnations")["oldest_open"], values)))

    assert sum(rows for *_, rows in scans) <= 100, scans
    assert [scan for scan in scans if scan[0] == "Seq Scan" and scan[1] in plans.GROW] == []


def test_a_start_asks_for_windows_that_closed_since_its_last_batches(years: Log) -> None:
    """Not for all since its incarnation began; and for these before its second batch has ended. Spark may repeat the last."""
    assert Batches(years.database).read_before(STREAM) == BATCHES - 3
    with closing(psycopg2.connect(years.url.replace("+psycopg2", ""))) as session, session.cursor() as cursor:
        cursor.execute("UPDATE onlyonce_private.batches SET source_from = NULL WHERE incarnation = %s", (STREAM,))
        cursor.execute("SELECT source_from FROM onlyonce_private.batches WHERE incarnation = %s LIMIT 1", (STREAM,))
        assert cursor.fetchone() == (None,)
        session.rollback()
    assert Batches(years.database).read_before("shop/per_minute/3") == -1


@pytest.mark.parametrize(
    ("ends", "first", "told"),
    [
        ((OLD + 10, OLD + 12), OLD + 10, True),
        ((OLD - 1, OLD + 5), OLD - 1, False),
        ((BATCHES + 5, BATCHES + 9), None, None),
    ],
)
def test_the_first_batch_with_records_of_closing_windows_is_told_and_whether_the_log_has_all(
    years: Log, ends: tuple[int, int], first: int | None, told: bool | None
) -> None:
    """Windows that end in (a, b]: a batch of an earlier incarnation is told as such.

    Few rows are looked at, however long the log is.
    """
    after, upto = (int((START + number * MINUTE).timestamp() * 1_000_000) for number in ends)
    found = Batches(years.database).met_first(
        "shop", STREAM, OUTPUT, (after, upto), MINUTE // timedelta(microseconds=1)
    )
    values = {
        "instance": "shop",
        "incarnation": STREAM,
        "output": OUTPUT,
        "first": START + (ends[0] - 1) * MINUTE,
        "after": START + ends[0] * MINUTE,
        "upto": START + ends[1] * MINUTE,
    }
    scans = list(plans.visited(plans.carried_out(years.database, queries("batches")["met_first"], values)))

    assert (found is None) == (first is None)
    assert found is None or found.told == told
    assert found is None or not told or (found.source_from or {})["reservoirVersion"] == first - 1  # type: ignore[operator]
    assert sum(rows for *_, rows in scans) <= 100, scans
