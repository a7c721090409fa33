"""A run with nothing to do starts no Spark and reports what it would report with Spark; each reason starts it."""

from __future__ import annotations

import gzip
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onlyonce.core.errors import Retryable
from onlyonce.core.idle import Reason
from onlyonce.core.runs import Report
from onlyonce.engine import session
from onlyonce.run import idle, stream
from onlyonce.sources import discovery
from tests.support import shop_oracle
from tests.support.check_shop import check, check_outputs
from tests.support.ended_runs import ended_at
from tests.support.other_process import script_apart
from tests.support.platform import Platform
from tests.support.two_sources import IDLE, START, Sale

pytestmark = pytest.mark.spark

OLD = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Starts:
    """The reasons for which runs were asked to start Spark, and how often they started it."""

    spark: int = 0
    why: list[Reason | None] = field(default_factory=list)

    def last(self) -> tuple[Reason | None, bool]:
        """Return the reason of the last run, and whether a run has started Spark since the last call."""
        found = self.why[-1] if self.why else None, self.spark > 0
        self.why, self.spark = [], 0
        return found


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, spark: object) -> Starts:
    """Note each start of Spark, and why."""
    found, start, why = Starts(), session.start, idle.why_spark

    def counted(*arguments: Any) -> Any:
        found.spark += 1
        return start(*arguments)

    def noted(*arguments: Any, **more: Any) -> Reason | None:
        found.why.append(why(*arguments, **more))
        return found.why[-1]

    monkeypatch.setattr(session, "start", counted)
    monkeypatch.setattr(idle, "why_spark", noted)
    return found


def sale(name: str, at: datetime) -> dict[str, Any]:
    """A record."""
    return {"id": name, "shop": "a", "at": at.isoformat(), "cents": 1, "weight": 1.0}


def told(report: Report) -> tuple[Any, ...]:
    """Return what a report says, without the name of its run."""
    return report.title, report.facts, report.tables, report.warnings


def test_run_with_nothing_to_do_starts_no_spark(
    platform: Platform, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report, what it notes of its start, and every table are as with Spark; the next file is read."""
    files = shop_oracle.sales(200, 2)
    platform.put("shop", "sales-0.jsonl", files[0])
    platform.run("shop")
    assert starts.last() == (None, True)  # only Spark can check functions that no run has checked
    begun = platform.sql("SELECT count(*) AS n, max(epoch) AS epoch FROM onlyonce.incarnations")
    since = platform.sql("SELECT min(started_at) AS at FROM onlyonce.incarnations")["at"][0]

    without = platform.run("shop", "--dag-id", "shop_stream", "--run-id", "idle")

    assert starts.last() == (None, False)
    assert platform.sql("SELECT count(*) AS n, max(epoch) AS epoch FROM onlyonce.incarnations").equals(begun)
    assert platform.sql("SELECT min(started_at) AS at FROM onlyonce.incarnations")["at"][0] > since
    assert platform.sql("SELECT exit_code FROM onlyonce.driver_runs WHERE run_id = 'idle'")["exit_code"].tolist() == [0]
    with monkeypatch.context() as forced:
        forced.setattr(idle, "why_spark", lambda *_, **__: Reason.UNKNOWN)
        with_spark = platform.run("shop")
    assert starts.spark == 1
    assert told(without) == told(with_spark)
    assert without.tables["open_windows"]
    starts.last()

    platform.put("shop", "sales-1.jsonl", files[1])
    platform.run("shop")
    assert starts.last() == (Reason.SOURCE, True)
    platform.run("shop", "--close")
    assert starts.last() == (Reason.CLOSE, True)
    platform.run("shop", "--close")
    assert starts.last() == (None, False)
    check(platform, files)


POINTS = {
    "receive-after-begin": Reason.BEGUN,
    "receive-after-end": Reason.PLANNED,
    "output-after-begin": Reason.BEGUN,
    "output-after-end": Reason.PLANNED,
    "receive-registered": Reason.REGISTERED,
    "marker-after-begin": Reason.MARKER,
}


@pytest.mark.parametrize("point", POINTS)
def test_run_after_a_lost_driver_starts_spark(
    platform: Platform, starts: Starts, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The second driver is lost with its batch; the third ends it, and the fourth has nothing to do."""
    files = shop_oracle.sales(200, 2)
    platform.put("shop", "sales-0.jsonl", files[0])
    platform.run("shop")
    platform.put("shop", "sales-1.jsonl", files[1])
    assert ended_at(platform, monkeypatch, point, 1, "--close")
    starts.last()

    platform.run("shop")

    assert starts.last() == (POINTS[point], True)
    platform.run("shop", "--close")
    starts.last()
    platform.run("shop", "--close")
    assert starts.last() == (None, False)
    check(platform, files)


def test_unread_events_start_spark(platform: Platform, starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receive has committed a batch, and no output has planned one of it."""
    files = shop_oracle.sales(200, 2)
    platform.put("shop", "sales-0.jsonl", files[0])
    platform.run("shop")
    platform.put("shop", "sales-1.jsonl", files[1])
    with monkeypatch.context() as broken:
        broken.setattr("onlyonce.outputs.query.run_once", _away)
        with pytest.raises(Retryable):
            platform.run("shop")
    starts.last()

    platform.run("shop", "--close")

    assert starts.last() == (Reason.UNREAD, True)
    check(platform, files)


def _away(*_: object) -> None:
    raise Retryable("the output can't begin", hint="run the same command again")


def test_window_that_the_clock_closes_starts_spark(
    new_platform: Callable[..., Platform], starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By silence the window of a time ahead closes once the clock has passed its end."""
    platform = new_platform("tests/support/quiet.py")
    ahead = datetime.now(UTC) + timedelta(hours=2)
    platform.put("shop", "a.jsonl", [sale("old", OLD), sale("running", ahead)])
    platform.run("shop")
    starts.last()
    platform.run("shop")
    assert starts.last() == (None, False)

    for module in ("onlyonce.receive.loop", "onlyonce.run.idle"):
        monkeypatch.setattr(f"{module}.datetime", _DaysLater)
    platform.run("shop")

    assert starts.last() == (Reason.CLOSE, True)
    assert sorted(platform.table("shop/per_shop")["sales"]) == [1, 1]
    platform.run("shop")
    assert starts.last() == (None, False)


class _DaysLater(datetime):
    """The clock of a run, two days later."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(days=2)


def test_due_late_records_start_spark(
    new_platform: Callable[..., Platform], starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is lost before it includes late records leaves them to the next one."""
    platform = new_platform("tests/support/quiet_late.py")
    platform.put("shop", "a.jsonl", [sale("first", OLD)])
    platform.run("shop")
    platform.put("shop", "b.jsonl", [sale("late", OLD)])
    with monkeypatch.context() as broken:
        broken.setattr("onlyonce.outputs.backfill_windows.include_late", _away)
        with pytest.raises(Retryable):
            platform.run("shop")
    starts.last()

    platform.run("shop")

    assert starts.last() == (Reason.LATE, True)
    assert platform.table("shop/per_shop")["sales"].tolist() == [2]
    platform.run("shop")
    assert starts.last() == (None, False)


def test_pane_that_is_due_by_its_time_waits_for_a_batch(
    new_platform: Callable[..., Platform], starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Spark a run without input begins no batch, and writes no pane either. The next batch writes it."""
    platform = new_platform("tests/support/paned_shop.py")
    platform.put("shop", "a.jsonl", [sale("first", OLD)])
    platform.run("shop")
    starts.last()
    for module in ("onlyonce.run.idle", "onlyonce.outputs.query"):
        monkeypatch.setattr(f"{module}.datetime", _DaysLater)

    without = platform.run("shop")

    assert starts.last() == (None, False)
    with monkeypatch.context() as forced:
        forced.setattr(idle, "why_spark", lambda *_, **__: Reason.UNKNOWN)
        with_spark = platform.run("shop")
    assert starts.last() == (None, True)
    assert told(without) == told(with_spark)
    panes = "SELECT rows, coalesce(held, 0) AS held FROM onlyonce.panes WHERE output = 'timed'"
    assert platform.sql(panes).values.tolist() == [[0, 1]] * 2  # a record is in two sliding windows

    platform.put("shop", "b.jsonl", [sale("second", OLD + timedelta(seconds=1))])
    platform.run("shop")
    assert starts.last() == (Reason.SOURCE, True)
    assert platform.sql(panes).values.tolist() == [[1, 0]] * 2


REPROCESS = """
from onlyonce.outputs import reprocess
reprocess.main(["shop", "--invalid", "--yes", "--master", "local[2]"])
"""


@pytest.mark.parametrize("point", [None, "reprocess-before-put", "reprocess-after-put"])
def test_reprocessed_rows_start_spark_once_they_are_in_the_inbox(
    new_platform: Callable[..., Platform],
    starts: Starts,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    point: str | None,
) -> None:
    """A run does not finish a reprocessing whose driver was killed: the next reprocessing does. Each row is kept once."""
    platform, declared = new_platform("tests/support/quiet.py"), tmp_path / "declared.py"
    platform.give(monkeypatch, ONLYONCE_PIPELINES=str(declared))
    declared.write_text(CHANGED.format(change="idle_after=None"))
    platform.put("shop", "a.jsonl", [sale("first", OLD), sale("ahead", datetime.now(UTC) + timedelta(days=3))])
    platform.run("shop")
    declared.write_text(CHANGED.format(change="idle_after=None, max_ahead=timedelta(days=9)"))
    platform.run("shop")
    starts.last()
    platform.run("shop")
    assert starts.last() == (None, False)

    put = (Reason.SOURCE, True)
    if point is not None:
        armed = {"ONLYONCE_FAILPOINTS": f"{point}:1:kill-process", "ONLYONCE_FAILPOINT_DIR": str(tmp_path)}
        assert script_apart(REPROCESS, **platform.environment, **armed) == -signal.SIGKILL
        platform.run("shop")
        assert starts.last() == (put if point == "reprocess-after-put" else (None, False))
    assert script_apart(REPROCESS, **platform.environment) == 0
    platform.run("shop")
    assert starts.last() == ((None, False) if point == "reprocess-after-put" else put)
    platform.run("shop")
    assert starts.last() == (None, False)
    events = platform.events()
    assert Counter(events[events["oo_kind"] == "kept"]["id"]) == Counter(["first", "ahead"])


def test_source_that_cannot_be_asked_starts_spark(
    platform: Platform, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.put("shop", "sales-0.jsonl", shop_oracle.sales(100, 1)[0])
    platform.run("shop")
    monkeypatch.setattr(discovery, "any_new", _away)

    platform.run("shop")

    assert starts.last() == (Reason.UNKNOWN, True)


DAMAGED: dict[str, bytes] = {
    "a broken line": b"{no json\n",
    "a cut archive": gzip.compress(b"{}\n" * 999)[:-9],
    "an empty file": b"",
}


def test_damaged_input_starts_spark_once(platform: Platform, starts: Starts) -> None:
    """It waits like other input: one run notes it as invalid, and it does not start Spark again."""
    files = shop_oracle.sales(100, 2)
    platform.put("shop", "sales-0.jsonl", files[0])
    platform.run("shop")
    starts.last()
    for number, content in enumerate(DAMAGED.values()):
        name = f"damaged-{number}.jsonl" + (".gz" if content[:2] == b"\x1f\x8b" else "")
        platform.put("shop", "part", []).write_bytes(content)
        (platform.home / "inbox" / "shop" / "part").rename(platform.home / "inbox" / "shop" / name)
        platform.run("shop")
        assert starts.last() == (Reason.SOURCE, True), name
        platform.run("shop")
        assert starts.last() == (None, False), name
    invalid = platform.sql("SELECT sum(invalid)::int AS invalid FROM onlyonce.totals WHERE query = 'receive'")
    assert invalid["invalid"][0] == 2
    platform.put("shop", "sales-1.jsonl", files[1])
    platform.run("shop", "--close")
    check_outputs(platform, shop_oracle.distinct(files).query("~late"))


def test_idle_second_source_starts_spark_once(
    new_platform: Callable[..., Platform], starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds back the watermark until its `idle_after` is over; then one run moves the watermark without it."""
    platform = new_platform("tests/support/two_sources.py")
    for module in ("onlyonce.receive.loop", "onlyonce.run.idle"):
        monkeypatch.setattr(f"{module}.datetime", _Shown)
    put = {"web": [Sale("web", "w0", 0, 1), Sale("web", "w1", 600, 1)], "till": [Sale("till", "t0", 10, 2)]}
    for source, sales in put.items():
        platform.put(f"shop/{source}", "0.txt", [sale.line for sale in sales])
    platform.run("shop")
    starts.last()
    platform.run("shop")
    assert starts.last() == (None, False)

    # The web is not idle: it sends meanwhile.
    _Shown.at += IDLE / 2
    platform.put("shop/web", "1.txt", [Sale("web", "w2", 601, 1).line])
    platform.run("shop")
    assert starts.last() == (Reason.SOURCE, True)
    _Shown.at += IDLE / 2 + timedelta(seconds=1)
    platform.run("shop")
    assert starts.last() == (Reason.IDLE_SOURCE, True)
    assert sorted(platform.table("shop/per_minute")["place"]) == ["till", "web"]
    platform.run("shop")
    assert starts.last() == (None, False)


class _Shown(datetime):
    """A clock that a test sets."""

    at = START + timedelta(days=1)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls.at


CHANGED = """
from dataclasses import replace
from datetime import timedelta
from tests.support.quiet import PIPELINES as BEFORE
PIPELINES = [replace(BEFORE[0], {change})]
"""


def test_changed_declaration_starts_spark_if_a_result_depends_on_it(
    new_platform: Callable[..., Platform], starts: Starts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A new column changes results, and the time after which a source is idle does not.

    Here the functions count as checked: Spark checks them once after each change, whatever it is.
    """
    platform = new_platform("tests/support/quiet.py")
    platform.put("shop", "a.jsonl", [sale("first", OLD)])
    platform.run("shop")
    starts.last()
    monkeypatch.setattr(stream, "_before_spark", lambda *_: {})

    def declare(change: str) -> None:
        declared = tmp_path / "declared.py"
        declared.write_text(CHANGED.format(change=change))
        platform.give(monkeypatch, ONLYONCE_PIPELINES=str(declared))

    declare("idle_after=timedelta(days=9)")
    platform.run("shop")
    assert starts.last() == (None, False)

    declare("schema=BEFORE[0].schema + ', note string'")
    platform.run("shop")
    assert starts.last() == (Reason.CHANGED, True)
    platform.put("shop", "b.jsonl", [sale("second", OLD + timedelta(days=1))])
    platform.run("shop")
    starts.last()
    platform.run("shop")
    assert starts.last() == (None, False)


def test_changed_declaration_without_input_starts_spark_once(
    new_platform: Callable[..., Platform], starts: Starts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run that fails under the new declaration does not count, and the next input is read under it."""
    platform = new_platform("tests/support/quiet.py")
    platform.put("shop", "a.jsonl", [sale("first", OLD)])
    platform.run("shop")
    starts.last()
    declared = tmp_path / "declared.py"
    declared.write_text(CHANGED.format(change="schema=BEFORE[0].schema + ', note string'"))
    platform.give(monkeypatch, ONLYONCE_PIPELINES=str(declared))
    with monkeypatch.context() as broken:
        broken.setattr("onlyonce.outputs.query.run_once", _away)
        with pytest.raises(Retryable):
            platform.run("shop")
    assert starts.last() == (None, True)  # only Spark can check functions under a new declaration

    platform.run("shop")
    assert starts.last() == (Reason.CHANGED, True)
    for _ in range(2):
        platform.run("shop")
        assert starts.last() == (None, False)

    platform.put("shop", "b.jsonl", [{**sale("second", OLD + timedelta(days=1)), "note": "new"}])
    platform.run("shop", "--close")
    assert starts.last() == (Reason.SOURCE, True)
    events = platform.events().dropna(subset="id")
    assert dict(zip(events["id"], events["note"], strict=True)) == {"first": None, "second": "new"}
    assert platform.table("shop/per_shop")["sales"].tolist() == [1, 1]
    declared.write_text(CHANGED.format(change="schema=BEFORE[0].schema + ', note string, other string'"))
    platform.run("shop")
    assert starts.last() == (None, True)
    platform.run("shop")
    assert starts.last() == (None, False)


LOADED = """
import sys
from pyspark import SparkContext
from onlyonce.run import stream
stream.main(["shop", "--master", "local[2]"])
sys.exit(10 + ("onlyonce.run.queries" in sys.modules) + 2 * (SparkContext._gateway is not None))
"""


def test_run_with_nothing_to_do_loads_no_query(platform: Platform, spark: object) -> None:
    """Its process starts no JVM, and does not import the module that runs Spark's queries."""
    platform.put("shop", "sales-0.jsonl", shop_oracle.sales(100, 1)[0])
    assert script_apart(LOADED, **platform.environment) == 13  # it has input
    assert script_apart(LOADED, **platform.environment) == 10
