"""What each batch, each start and each collection asks costs the same beside a log of any length: real plans on a real log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from onlyonce.commitlog import batches
from onlyonce.commitlog.outputs import backfills
from onlyonce.database.connect import run
from onlyonce.database.migrate import migrate
from onlyonce.database.statements import queries
from tests.contract.conftest import Log
from tests.support import long_log
from tests.support.long_log import OUTPUT, RECEIVE, STREAM

BATCHES = 20_000
ROWS = 8_000
"""What a query may visit: a day's batches several times (the dedup horizon is a day), and never what grows with the log."""
END = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=BATCHES)
LAST = BATCHES - 2 * BATCHES // 3 - 1
FLOOR = int(END.timestamp()) // 600 - 144

OF_RECEIVE: dict[str, Any] = {
    "instance": "shop", "pipeline": "shop", "query": "receive", "lineage": RECEIVE, "batch_id": LAST, "sink": "events",
    "unique_id": f"{RECEIVE}/{LAST}/events/0", "after": BATCHES - 3, "upto": BATCHES - 1, "floor": FLOOR, "keep_days": 1,
    "half": 500_000, "waste": 1.5, "worth_it": 0, "at_once": 100,
}  # fmt: skip
OF_OUTPUT = OF_RECEIVE | {
    "query": OUTPUT, "lineage": STREAM, "output": OUTPUT, "outputs": [OUTPUT], "sink": OUTPUT, "version": BATCHES - 2,
    "closed_until": END - timedelta(minutes=2), "after": END - timedelta(minutes=5), "partition": 0, "instances": ["shop"],
    "window_from": END - timedelta(minutes=10), "window_to": END, "window_start": END - timedelta(minutes=3),
    "window_end": END - timedelta(minutes=2), "everything": False, "panes": 10,
}  # fmt: skip

ASKED = [
    *((OF_RECEIVE, "batches", name) for name in (
        "frontier", "find", "received", "ended_versions", "last_taken_in", "open_close", "last_close", "last_arrival", "oldest_begun",
    )),
    *((OF_RECEIVE, "units", name) for name in ("of_batch", "find", "noted", "check_epoch")),
    *((OF_RECEIVE, "lineages", name) for name in ("live", "last_life", "last_batches")),
    *((OF_RECEIVE, "collect", name) for name in (
        "known", "settled", "near_horizon", "crowded", "bucket_before", "wasteful", "remove_units",
    )),
    (OF_RECEIVE, "catalog", "without_ids"), (OF_RECEIVE, "plan", "ran_under"), (OF_RECEIVE, "pubsub", "newest_bucket"),
    *((OF_OUTPUT, "backfills", name) for name in ("read_by", "frontier_at", "open_rows", "late_not_folded", "next")),
    (OF_OUTPUT, "batches", "close_panes"), (OF_OUTPUT, "plan", "last_final"),
    (OF_OUTPUT, "relive", "begun"), (OF_OUTPUT, "relive", "final_windows"),
    *((OF_OUTPUT, "files", name) for name in ("of_unit", "give_panes", "windows_in", "waiting")),
]  # fmt: skip
GROW = {"batches", "units", "closes", "panes", "window_counts", "files"}


@pytest.fixture(scope="module")
def years(server: Any) -> Iterator[Log]:
    """A log of many batches."""
    log = Log(server, server.new_database())
    migrate(log.url)
    long_log.fill(log.url, BATCHES)
    yield log
    server.drop(log.name)


def visited(plan: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """(how, of which table or index, how many rows) of each scan of a plan that was carried out."""
    name = plan.get("Relation Name") or plan.get("Index Name")
    if name:
        seen = sum(
            plan.get(key, 0) for key in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
        )
        yield plan["Node Type"], name, seen * plan["Actual Loops"]
    for below in plan.get("Plans", []):
        yield from visited(below)


def carried_out(log: Log, statement: str, values: dict[str, Any]) -> dict[str, Any]:
    """The plan of a statement with what it took; what it changed is undone."""
    wanted = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
    chosen = {name: values[name] for name in wanted.compile().params}
    found: list[dict[str, Any]] = []

    def work(connection: Connection) -> None:
        [[plan]] = connection.execute(wanted, chosen).all()
        found.append(plan[0]["Plan"])
        raise KeyError("undo")

    with pytest.raises(KeyError, match="undo"):
        run(log.database, work)
    return found[0]


@pytest.mark.parametrize(("values", "file", "name"), ASKED, ids=[f"{file}-{name}" for _, file, name in ASKED])
def test_what_is_asked_all_the_time_visits_no_more_rows_in_a_long_log(
    years: Log, values: dict[str, Any], file: str, name: str
) -> None:
    """No table that grows is read from its beginning, by whatever index."""
    scans = list(visited(carried_out(years, queries(file)[name], values)))

    assert [scan for scan in scans if scan[0] == "Seq Scan" and scan[1] in GROW] == []
    assert sum(rows for *_, rows in scans) <= ROWS, scans


def test_a_query_that_reads_the_log_from_its_beginning_is_noticed(years: Log) -> None:
    """A test that can't fail is none."""
    whole = carried_out(years, "SELECT max(committed_at) FROM onlyonce_private.batches", {})

    assert sum(rows for *_, rows in visited(whole)) > ROWS


ASIDE: list[Callable[[Any], Any]] = [
    lambda conn: batches.frontier(conn, "shop"),
    lambda conn: backfills.frontier_at(conn, "shop", BATCHES),
]


@pytest.mark.parametrize("ask", ASIDE, ids=["of now", "at the last version"])
def test_the_frontier_is_the_largest_of_all_that_was_told(years: Log, ask: Callable[[Any], Any]) -> None:
    """Over both lives, by a plain look at every row."""
    told = run(years.database, ask)
    [whole] = years.rows(
        "SELECT (SELECT max(tide_after) FROM onlyonce_private.batches), (SELECT max(ended) FROM onlyonce_private.closes), "
        "(SELECT max(silent_tide) FROM onlyonce_private.closes), (SELECT max(silent_clock) FROM onlyonce_private.closes)"
    )

    assert (told.tide, told.ended, told.silent_tide, told.silent_clock) == tuple(
        None if time is None else int(time.timestamp() * 1_000_000) for time in whole
    )
