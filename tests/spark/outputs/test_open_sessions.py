"""Early panes of sessions: each pane replaces the rows of all open sessions, so a table is always a batch's result."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F

from onlyonce import Delta, Output, Refused, Session, settings
from onlyonce.core.batch import to_micros
from onlyonce.lookups.seen import NOTHING
from onlyonce.operate import audit
from onlyonce.outputs import open_sessions as outputs_open
from onlyonce.outputs import windows
from onlyonce.receive import events
from onlyonce.run import reset
from onlyonce.sinks.files import finalize
from onlyonce.testing import run
from tests.support import open_sessions
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, multiset
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GAP, DELAY = 5 * MINUTE, 10 * MINUTE
COLUMNS = ("window_start", "window_end", "shop", "sales", "cents")
Record = dict[str, Any]


def sales(chance: random.Random, count: int) -> list[Record]:
    """Records of two shops in bursts, out of order by up to ten minutes: some are late, some join two sessions."""
    minute, found = 0.0, []
    for number in range(count):
        minute += chance.choice([0.2, 0.5, 1, 3, 4, 7])
        at = START + timedelta(seconds=int(60 * (minute - chance.choice([0, 0, 4, 8, 9, 25]))))
        found.append(
            {
                "id": f"s{number}",
                "shop": chance.choice("ab"),
                "at": at.isoformat(),
                "cents": chance.randrange(100),
                "weight": 1.0,
            }
        )
    return found


class Oracle:
    """The sessions of all records in time, by a plain computation over the batches so far."""

    def __init__(self) -> None:
        self.kept: list[Record] = []
        self.late = 0
        self.newest: datetime | None = None

    def batch(self, records: Iterable[Record]) -> None:
        """Take a batch: a record is late by what the batches before have."""
        closed = None if self.newest is None else self.newest - DELAY
        new = list(records)
        self.kept += [one for one in new if closed is None or _at(one) > closed]
        self.late += sum(closed is not None and _at(one) <= closed for one in new)
        self.newest = max([_at(one) for one in new] + ([self.newest] if self.newest else []))

    def sessions(self) -> Counter[Any]:
        """Return (start, end, shop, records, cents) of each session."""
        by_shop = defaultdict[str, list[list[Record]]](list)
        for one in sorted(self.kept, key=_at):
            bursts = by_shop[one["shop"]]
            if bursts and _at(one) - _at(bursts[-1][-1]) <= GAP:
                bursts[-1].append(one)
            else:
                bursts.append([one])
        return Counter(
            (_at(burst[0]), _at(burst[-1]) + GAP, shop, len(burst), sum(one["cents"] for one in burst))
            for shop, bursts in by_shop.items()
            for burst in bursts
        )


def _at(one: Record) -> datetime:
    return datetime.fromisoformat(one["at"])


def in_sinks(platform: Platform) -> dict[str, Counter[Any]]:
    """Return the rows of each output's table, and of the files that a reader takes."""
    return {output.name: in_sink(platform, output) for output in open_sessions.SHOP.outputs}


def in_sink(platform: Platform, output: Output) -> Counter[Any]:
    """Return the rows of an output's table, or of the files that a reader takes."""
    if output.sink.writes_files:
        return in_files(platform)
    in_lake = isinstance(output.sink, Delta)
    table = platform.table(f"shop/{output.name}") if in_lake else platform.sql(f"SELECT * FROM results.{output.name}")
    return multiset(table, *COLUMNS) if len(table) else Counter()


def in_files(platform: Platform) -> Counter[Any]:
    """Return the rows of the newest pane of each window."""
    finalize.main([])
    files = platform.sql("""
        SELECT place, name FROM onlyonce.output_files WHERE output = 'in_files' AND state = 'final' AND rows > 0""")
    lines = [
        json.loads(line)
        for place, name in files.itertuples(index=False)
        for line in (settings.files_dir() / place / name).read_text().splitlines()
    ]
    return Counter(
        (*(datetime.fromisoformat(row[name]) for name in COLUMNS[:2]), *(row[name] for name in COLUMNS[2:]))
        for row in lines
    )


POINTS = (
    "output-after-begin", "output-consumed", "delta-after-replace", "files-after-units", "postgres-after-units",
    "output-before-end", "output-after-end",
)  # fmt: skip
EARLY = ("in_postgres", "in_delta", "in_files")


@pytest.mark.parametrize("seed", [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 8, 11))])
def test_each_pane_replaces_all_open_sessions(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """After each batch the sinks have the sessions of the records so far, over lost drivers and a new incarnation.

    With a trigger they have the sessions of the records up to an earlier batch. No row of a changed session stays.
    """
    platform, chance, oracle = new_platform("tests/support/open_sessions.py"), random.Random(seed), Oracle()
    records = sales(chance, 50)
    places = [0, *sorted(chance.sample(range(3, len(records) - 3), 4)), len(records)]
    parts = [records[first:last] for first, last in pairwise(places)]
    history, point = [Counter[Any]()], POINTS[seed % len(POINTS)]
    for number, part in enumerate(parts):
        platform.put("shop", f"{number}.jsonl", part)
        oracle.batch(part)
        history.append(oracle.sessions())
        if number == 1:
            continue  # two batches in one run, one of which loses its driver
        if number == 2:
            assert ended_at(platform, monkeypatch, point, chance.randrange(1, 3))
        if number == 3:
            for name in (*EARLY, "counted", "timed"):
                reset.new(f"shop/{name}", yes=True)
        platform.run("shop")
        there = in_sinks(platform)
        assert {name: there[name] for name in EARLY} == dict.fromkeys(EARLY, history[-1]), number
        assert all(there[name] in history for name in ("counted", "timed")), number
    assert audit.main(["--data"]).warnings == []
    platform.run("shop", "--close")
    keys = [{(start, shop) for start, _, shop, *_ in sessions} for sessions in history]
    assert oracle.late
    assert any(before - after for before, after in pairwise(keys))
    assert in_sinks(platform) == dict.fromkeys((*EARLY, "counted", "timed"), history[-1])
    log = platform.sql("SELECT output, window_start, window_end, rows, final, held FROM onlyonce.panes")
    assert log["final"].all()
    assert log["held"].isna().all()
    sessions = Counter((start, end) for start, end, *_ in history[-1])
    assert multiset(log[log["output"] == "in_delta"], "window_start", "window_end") == Counter(set(sessions))

    platform.backfill("shop", "--from", "2025-12-31T00:00Z", "--to", "2026-01-02T00:00Z")
    oracle.kept = records
    assert in_sinks(platform) == dict.fromkeys((*EARLY, "counted", "timed"), oracle.sessions())
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert audit.main(["--data"]).warnings == []


def test_rows_of_a_withdrawn_pane_go(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log knows no open session: the last pane is closed, and a new incarnation has withdrawn the one after it."""
    platform = new_platform("tests/support/open_sessions.py")
    parts = [
        [
            {"id": f"{minute}", "shop": "a", "at": (START + minute * MINUTE).isoformat(), "cents": 1, "weight": 1.0}
            for minute in part
        ]
        for part in ([0.0, 100.0], [110.0], [109.5])
    ]
    platform.put("alone", "0.jsonl", parts[0])
    platform.run("alone", "--close")
    platform.put("alone", "1.jsonl", parts[1])
    assert ended_at(platform, monkeypatch, "output-before-end", pipeline="alone")
    reset.new("alone/alone", yes=True)
    platform.put("alone", "2.jsonl", parts[2])
    platform.run("alone")

    rows = platform.sql("SELECT window_start, sales FROM results.alone")
    found = Counter(((row.window_start - START) / MINUTE, row.sales) for row in rows.itertuples())
    assert found == Counter({(0, 1): 1, (100, 1): 1, (109.5, 2): 1})
    assert audit.main(["--data"]).warnings == []


def _declare(platform: Platform, monkeypatch: pytest.MonkeyPatch, panes: str) -> None:
    """Declare sessions in Delta and PostgreSQL with these panes."""
    file = platform.home / f"{panes}.py"
    file.write_text(
        "from dataclasses import replace\nfrom tests.support.open_sessions import SHOP\n"
        f"two = [replace(SHOP.output(name), panes={panes!r}) for name in ('in_delta', 'in_postgres')]\n"
        "PIPELINES = [replace(SHOP, outputs=tuple(two))]\n"
    )
    platform.give(monkeypatch, ONLYONCE_PIPELINES=str(file))


def test_new_incarnation_with_other_panes_is_refused(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows would stand next to the rows of open sessions that no session has any more."""
    oracle, names = Oracle(), ("in_delta", "in_postgres")
    minutes = [[0.0, 40.0], [37.0, 60.0]]  # the second record at 40 gets another start of its session
    parts = [
        [{"id": f"{n}", "shop": "a", "at": (START + n * MINUTE).isoformat(), "cents": 1, "weight": 1.0} for n in part]
        for part in minutes
    ]
    _declare(platform, monkeypatch, "early")
    platform.put("shop", "0.jsonl", parts[0])
    oracle.batch(parts[0])
    platform.run("shop")
    platform.put("shop", "1.jsonl", parts[1])
    oracle.batch(parts[1])
    _declare(platform, monkeypatch, "on_time")
    for name in names:
        for yes in (False, True):
            with pytest.raises(Refused, match=f"panes of output {name} of shop has changed"):
                reset.new(f"shop/{name}", yes=yes)

    _declare(platform, monkeypatch, "early")
    platform.run("shop")
    assert {name: in_sink(platform, open_sessions.SHOP.output(name)) for name in names} == dict.fromkeys(
        names, oracle.sessions()
    )


def test_session_that_ends_at_the_watermark_keeps_its_row(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has closed, and the table's file has it beside open sessions that the next pane replaces."""
    oracle, names = Oracle(), ("in_delta", "in_postgres")
    _declare(platform, monkeypatch, "early")
    for number, part in enumerate(("a0 a4 b1", "a8 a12 a16", "a17")):
        records = [
            {"id": one, "shop": one[0], "at": (START + int(one[1:]) * MINUTE).isoformat(), "cents": 1, "weight": 1.0}
            for one in part.split()
        ]
        platform.put("shop", f"{number}.jsonl", records)
        oracle.batch(records)
        platform.run("shop")
        found = {name: in_sink(platform, open_sessions.SHOP.output(name)) for name in names}
        assert found == dict.fromkeys(names, oracle.sessions()), number


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_played_pipeline_replaces_all_open_sessions(spark: object, seed: int) -> None:
    """`onlyonce.testing` shows the sessions of the records so far, as the run above."""
    chance, oracle = random.Random(seed), Oracle()
    records = sales(chance, 30)
    parts = [records[first : first + 6] for first in range(0, 30, 6)]
    history = []
    for part in parts:
        oracle.batch(part)
        history.append(oracle.sessions())
    for close in (False, True):
        result = run(open_sessions.SHOP, *parts, close=close)
        for name in (*EARLY, "counted", "timed"):
            there = Counter(tuple(row[column] for column in COLUMNS) for row in result.output(name))
            assert there == history[-1] if close or name in EARLY else there in history, name


@pytest.mark.parametrize("first", [None, -600])
def test_open_session_is_read_from_its_start(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, first: int | None
) -> None:
    """Also if the log does not know where it starts; and little more is read than the open sessions."""
    at = [NOON + timedelta(seconds=second) for second in (-9000, *range(-600, 1, 4))]
    kept = spark.createDataFrame([(f"{n}", "a", time, 1, 1.0) for n, time in enumerate(at)], SHOP.schema).withColumns({
        "oo_event_time": F.col("at"), "oo_ingestion_time": F.lit(NOON), "oo_kind": F.lit("kept"),
        "oo_frontier": F.lit(None).cast(events.FRONTIER),
    })  # fmt: skip
    monkeypatch.setattr(events, "rows_as_of", lambda *_: kept)
    output = replace(open_sessions.SHOP.output("in_delta"), window=Session(timedelta(seconds=5)))
    context: Any = SimpleNamespace(pipeline=replace(SHOP, outputs=(output,)), instance="shop", seen=NOTHING)
    noon = to_micros(NOON) or 0
    with ExitStack() as stack:
        start = None if first is None else noon + first * 1_000_000
        rows = outputs_open.open_rows(context, output, noon, start, 0, stack).collect()

    [row] = rows
    assert (row.oo_window.start.replace(tzinfo=UTC), row.oo_window.end.replace(tzinfo=UTC), row.sales) == (
        NOON - timedelta(seconds=600),
        NOON + timedelta(seconds=5),
        151,
    )


FUNCTIONS: dict[str, tuple[Callable[[DataFrame], DataFrame], bool]] = {
    "an aggregation": (lambda rows: rows.groupBy("oo_window", "shop").agg(F.sum("cents").alias("cents")), True),
    "of some records": (lambda rows: rows.filter("cents > 5").groupBy("shop", "oo_window").count(), True),
    "with more columns": (lambda rows: rows.groupBy("oo_window").count().withColumn("twice", F.col("count") * 2), True),
    "of few sessions": (lambda rows: rows.groupBy("oo_window").count().filter("count > 3"), False),
    "aggregated again": (
        lambda rows: rows.groupBy("oo_window", "shop").count().groupBy("oo_window").agg(F.max("count").alias("most")), False),
    "of ranked records": (
        lambda rows: rows.withColumn("n", F.row_number().over(SparkWindow.partitionBy("shop").orderBy("at"))).filter("n > 1").groupBy("oo_window").count(), False),
    "each record": (lambda rows: rows.select("oo_window", "id", "shop"), False),
    "several lists": (lambda rows: rows.groupBy("oo_window").count().unionByName(rows.groupBy("oo_window").count()), False),
    "without its session": (lambda rows: rows.groupBy("shop").agg(F.max("oo_window").alias("oo_window")), False),
}  # fmt: skip


@pytest.mark.parametrize("case", FUNCTIONS)
def test_function_must_have_a_row_for_each_session(spark: SparkSession, case: str) -> None:
    """A session without a row could begin where nobody looks."""
    function, fits = FUNCTIONS[case]
    output = open_sessions.SHOP.output("in_delta")
    kept = spark.createDataFrame([], events.schema(SHOP))
    result = function(windows.in_batch(kept, output))
    if fits:
        outputs_open.check_function(output, result)
        return
    with pytest.raises(Refused, match="need a row of each session") as refused:
        outputs_open.check_function(output, result)
    assert "group once by oo_window" in refused.value.hint
