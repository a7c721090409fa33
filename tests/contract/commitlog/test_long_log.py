"""What each batch, each start and each collection asks costs the same beside a log of any length: real plans on a real
log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg2
import pytest

from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.health import Views
from onlyonce.database.connect import run
from onlyonce.database.migrate import migrate
from onlyonce.database.statements import queries
from onlyonce.operate import gc
from tests.contract.conftest import Log
from tests.support import long_log, plans
from tests.support.long_log import OLD_STREAM, OUTPUT, RECEIVE, STREAM

BATCHES = 20_000
ROWS = 8_000
"""What a query may visit: a day's batches several times (the dedup horizon is a day), and never what grows with the
log."""
END = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=BATCHES)
LAST = BATCHES - 2 * BATCHES // 3 - 1
FLOOR = int(END.timestamp()) // 600 - 144

OF_RECEIVE: dict[str, Any] = {
    "instance": "shop", "pipeline": "shop", "query": "receive", "incarnation": RECEIVE, "batch_id": LAST, "sink": "events",
    "unique_id": f"{RECEIVE}/{LAST}/events/0", "after": BATCHES - 3, "upto": BATCHES - 1, "floor": FLOOR, "keep_days": 1,
    "half": 500_000, "waste": 1.5, "worth_it": 0, "at_once": 100, "numbers": [BATCHES - 3, BATCHES - 2], "source": "",
}  # fmt: skip
OF_OUTPUT = OF_RECEIVE | {
    "query": OUTPUT, "incarnation": STREAM, "output": OUTPUT, "outputs": [OUTPUT], "sink": OUTPUT, "version": BATCHES - 2,
    "closed_until": END - timedelta(minutes=2), "after": END - timedelta(minutes=5), "partition": 0, "instances": ["shop"],
    "window_from": END - timedelta(minutes=10), "window_to": END, "window_start": END - timedelta(minutes=3),
    "window_end": END - timedelta(minutes=2), "everything": False, "panes": 10, "away": [],
    "windows": json.dumps([{"window_start": f"{END - timedelta(minutes=n + 1)}", "window_end": f"{END - timedelta(minutes=n)}"} for n in range(9)]),
    "place": "/data/files", "names": [f"file-{STREAM}{LAST}"], "first_start": END - timedelta(minutes=5),
    "last_start": END - timedelta(minutes=3), "declaration_hash": "d1", "lookups": None,
}  # fmt: skip
OF_CUT = OF_OUTPUT | {
    "incarnation": OLD_STREAM, "after": 5000, "upto": BATCHES, "limit": END, "read_upto": BATCHES, "sessions": [], "first": None, "at_once": 500, "dry_run": False,
}  # fmt: skip

ASKED = [
    *((OF_RECEIVE, "batches", name) for name in (
        "frontier", "find", "received", "ended_versions", "last_taken_in", "open_marker", "last_marker", "last_arrival", "oldest_begun",
    )),
    *((OF_RECEIVE, "units", name) for name in ("of_batch", "find", "noted", "check_epoch")),
    *((OF_RECEIVE, "incarnations", name) for name in ("live", "last_ordinal", "last_batches")),
    *((OF_RECEIVE, "gc", name) for name in (
        "known", "settled", "near_horizon", "crowded", "bucket_before", "wasteful", "remove_units", "committed_cuts",
    )),
    (OF_RECEIVE, "catalog", "without_ids"), (OF_RECEIVE, "plan", "ran_under"), (OF_RECEIVE, "pubsub", "newest_bucket"),
    *((OF_OUTPUT, "backfills", name) for name in ("read_by", "frontier_at", "open_rows", "late_not_included", "next")),
    (OF_OUTPUT, "batches", "close_panes"), (OF_OUTPUT, "batches", "last_closed"), (OF_OUTPUT, "batches", "close_without_rows"),
    (OF_OUTPUT, "plan", "last_final"),
    (OF_OUTPUT, "new_incarnations", "begun"), (OF_OUTPUT, "new_incarnations", "final_windows"), (OF_OUTPUT, "new_incarnations", "read_again"),
    (OF_CUT, "gc", "unsettled"), (OF_CUT, "gc", "note_final"), (OF_CUT, "gc", "close_replaced"), (OF_CUT, "keep_log", "incarnations"), (OF_CUT, "keep_log", "cut"),
    *((OF_OUTPUT, "files", name) for name in ("of_unit", "give_panes", "next_panes", "unnamed", "named", "windows_in", "waiting")),
    (OF_OUTPUT, "triggers", "open_panes"), (OF_OUTPUT, "triggers", "last_panes"),
]  # fmt: skip
GROW = {*plans.GROW} - {"outbox", "driver_runs"}


@pytest.fixture(scope="module")
def years(server: Any) -> Iterator[Log]:
    """A log of many batches."""
    log = Log(server, server.new_database())
    migrate(log.url)
    long_log.fill(log.url, BATCHES)
    # As if batches of before had been cut.
    log.rows(
        "INSERT INTO onlyonce_private.window_sums (incarnation, output, window_start, window_end, in_time) "
        "SELECT incarnation, output, window_start - interval '1 year', window_end - interval '1 year', 20 FROM "
        "onlyonce_private.window_counts"
    )
    log.rows("ANALYZE onlyonce_private.window_sums")
    yield log
    server.drop(log.name)


@pytest.mark.parametrize(("values", "file", "name"), ASKED, ids=[f"{file}-{name}" for _, file, name in ASKED])
def test_what_is_asked_all_the_time_visits_no_more_rows_in_a_long_log(
    years: Log, values: dict[str, Any], file: str, name: str
) -> None:
    """No table that grows is read from its beginning, by whatever index."""
    scans = list(plans.visited(plans.carried_out(years.database, queries(file)[name], values)))

    assert [scan for scan in scans if scan[0] == "Seq Scan" and scan[1] in GROW] == []
    assert sum(rows for *_, rows in scans) <= ROWS, scans


AN_INDEX_OF_VALUES = (
    "the range is open for a plan of any value; with the value it is short: the test above carries it out"
)
WITH_DATA = "audit --data, which reads each row of `events` and of the tables"
OWN_LOG = "of a crash test or the demo, on a log of its own that is as long as its run"
FORGETS = "a drop, which removes all rows of a pipeline"
A_NEW_INCARNATION = "asked once for a new incarnation, which a person starts"
CUT = "the table is cut by this very statement: it holds what a retention leaves"
ERASES = "a person's erasure, which reads `events` and the input beside it: whatever has the records must be found"
WHOLE = {
    "gc known": AN_INDEX_OF_VALUES, "gc near_horizon": AN_INDEX_OF_VALUES,
    "gc remove_delivered": CUT, "driver_runs remove": CUT, "authorities remove_units": CUT, "doctor orphan_units": CUT, "files standings": CUT,
    "plan made_under": "a person's plan of a changed declaration: which windows were made under which one",
    "lookups asked_for": "asked only where a copy of a PostgreSQL table is days old and not the last: each window that may be " "made again with it must be found",
    "reprocess committed": "a person's reprocessing, which reads `events` beside it",
    "erasures outbox": ERASES, "erasures windows_at": ERASES, "erasures errors": ERASES, "erasures forget_driver_runs": ERASES,
    "crashtest fates": OWN_LOG, "crashtest late": OWN_LOG, "crashtest_outputs files": OWN_LOG, "crashtest_outputs requests": OWN_LOG,
    "views files_by_state": OWN_LOG, "views largest_files": OWN_LOG,
    "views written_in_all": WITH_DATA, "views sample": WITH_DATA, "views received": WITH_DATA, "views written": WITH_DATA,
    "arrivals correct_batches": "a person's correction of a wrong clock, once", "arrivals correct_markers": "the same",
    "new_incarnations last_offset": A_NEW_INCARNATION, "new_incarnations oldest_open": A_NEW_INCARNATION, "new_incarnations final_windows": A_NEW_INCARNATION,
    "views last_ends": "asked by a person and for alerts; a gc run removes old runs of DAGs, so that the table holds some days of them",
    "views run_outputs": "asked once a run, of `driver_runs` only: a gc run removes old runs of DAGs",
    "drop nothing_kept": "asked before a person's drop, and once a run is refused, of a pipeline that has most likely kept nothing",
    **{f"drop {name}": FORGETS for name in (
        "rows", "forget_outbox", "forget_files", "forget_units", "forget_window_counts", "forget_panes", "forget_markers", "forget_batches",
    )},
}  # fmt: skip
"""The queries that may read a table that grows from end to end, and why."""


def test_no_query_reads_a_table_that_grows_as_a_whole(years: Log) -> None:
    """Every named query there is, by the plan that serves any value; each exception has its reason."""
    with closing(psycopg2.connect(years.url.replace("+psycopg2", ""))) as session, session.cursor() as cursor:
        whole = {f"{file} {name}": plans.read_whole(cursor, file, name) for file, name in plans.named()}

    assert {query: tables for query, tables in whole.items() if tables and query not in WHOLE} == {}
    assert WHOLE.keys() <= whole.keys()


PLAIN = """
SELECT b.incarnation, count(*), sum(b.read)::bigint, sum(b.kept)::bigint, sum(b.duplicate)::bigint, sum(b.in_time)::bigint, sum(b.late)::bigint,
       count(DISTINCT b.declaration_hash), max(b.batch_id), max(b.max_event_time_after), true
FROM onlyonce_private.batches b WHERE b.state = 'committed' GROUP BY 1 ORDER BY 1
"""
BY_SUMS = """
SELECT incarnation, batches, records_in, kept, duplicate, in_time, late, declarations, last_batch, max_event_time, conserved
FROM onlyonce.totals ORDER BY 1
"""


def test_the_sums_are_those_of_every_row_and_a_batch_that_does_not_add_up_is_told_for_ever(years: Log) -> None:
    """Before they are folded, after it, and with a batch in the middle that somebody has changed: nothing behind it is
    folded."""
    plain = years.rows(PLAIN)
    assert years.rows(BY_SUMS) == plain
    years.rows(
        "UPDATE onlyonce_private.window_counts SET in_time = in_time + 1 WHERE incarnation = %s AND batch_id = 1000 " "RETURNING 1", OLD_STREAM
    )  # fmt: skip

    folded = gc.fold_sums(years.database)

    upto = dict(years.rows("SELECT incarnation, folded_upto FROM onlyonce.totals"))
    last = {incarnation: number for incarnation, *_, number, _, _ in plain}
    assert upto == last | {OLD_STREAM: 999}
    assert folded == sum(upto.values()) + len(upto)
    assert years.rows(BY_SUMS) == [(*row[:-1], row[0] != OLD_STREAM) for row in plain]
    told = Views(years.database).rows("not_conserved")
    assert [(row["incarnation"], row["batch"]) for row in told] == [(OLD_STREAM, 1000)]
    assert gc.fold_sums(years.database) == 0


def test_a_query_that_reads_the_log_from_its_beginning_is_noticed(years: Log) -> None:
    """A test that can't fail is none."""
    whole = plans.carried_out(years.database, "SELECT max(committed_at) FROM onlyonce_private.batches", {})

    assert sum(rows for *_, rows in plans.visited(whole)) > ROWS


ASIDE: list[Callable[[Any], Any]] = [
    lambda conn: Batches(conn).frontier("shop"),
    lambda conn: Backfills(conn).frontier_at("shop", BATCHES),
]


@pytest.mark.parametrize("ask", ASIDE, ids=["of now", "at the last version"])
def test_the_frontier_is_the_largest_of_all_that_was_told(years: Log, ask: Callable[[Any], Any]) -> None:
    """Over both incarnations, by a plain look at every row."""
    told = run(years.database, ask)
    [whole] = years.rows(
        "SELECT (SELECT max(max_event_time_after) FROM onlyonce_private.batches), (SELECT max(ended) FROM "
        "onlyonce_private.watermark_markers), "
        "(SELECT max(silent_max_event_time) FROM onlyonce_private.watermark_markers), (SELECT max(silent_clock) FROM "
        "onlyonce_private.watermark_markers)"
    )

    assert (told.max_event_time, told.ended, told.silent_max_event_time, told.silent_clock) == tuple(
        None if time is None else int(time.timestamp() * 1_000_000) for time in whole
    )
