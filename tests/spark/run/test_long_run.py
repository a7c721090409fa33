"""The long-running mode on Spark: what comes while it runs, what it writes when nothing comes, how its queries keep out
of each other's way, and its stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.core.runs import Interrupted
from onlyonce.receive import at_least_once, loop
from onlyonce.run import queries, reset
from tests.support import shop_oracle
from tests.support.ended_runs import ended_at
from tests.support.long_run import QUICK, committed, meanwhile, out_of_order, read_upto, rounds, until
from tests.support.platform import JOB_TIMEOUT, Platform, multiset

pytestmark = pytest.mark.spark

TEN_MINUTES = timedelta(minutes=10)


def sales(block: int) -> list[dict[str, Any]]:
    """Some sales in three windows that no other block has."""
    at = shop_oracle.START + block * TEN_MINUTES
    return [
        {
            "id": f"b{block}-{n}", "shop": f"shop-{n % 3}", "at": (at + timedelta(seconds=7 * n)).isoformat(),
            "cents": 10 * n + block, "weight": 1.0,
        } for n in range(20)
    ]  # fmt: skip


def quick(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """The same, whose drivers' hearts beat quickly."""
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    return platform


@pytest.fixture
def quiet(new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object) -> Platform:
    """A platform whose windows close as soon as nothing comes."""
    return quick(new_platform("tests/support/quiet.py"), monkeypatch)


def check(platform: Platform, blocks: int) -> None:
    """Each record once in `events`, each window its result, in the table and in the log."""
    records = shop_oracle.every([sales(block) for block in range(blocks)])
    kept = platform.events()[lambda rows: rows["oo_kind"] == "kept"]
    columns = ["window_start", "shop", "sales", "cents"]

    assert multiset(records, "id") == multiset(kept, "id")
    assert multiset(shop_oracle.per_shop(records), *columns) == multiset(platform.table("shop/per_shop"), *columns)
    assert platform.sql("SELECT conserved FROM onlyonce.conservation")["conserved"].all()


def written(platform: Platform) -> Any:
    """All that a turn could have written: batches, closes, units, and the files of the checkpoints and tables."""
    log = [
        platform.sql(f"SELECT count(*) FROM onlyonce_private.{t}").iat[0, 0]
        for t in ("batches", "watermark_markers", "units")
    ]
    return log, sorted(str(path) for path in settings.data_dir("shop").rglob("*"))


def windows(platform: Platform) -> int:
    """How many windows the table has."""
    there = DeltaTable.is_deltatable(str(settings.tables_dir() / "shop" / "per_shop"))
    return len(set(platform.table("shop/per_shop")["window_start"])) if there else 0


def at_rest(platform: Platform) -> Any:
    """What is written once two rounds in a row have written nothing: the last batches have ended, in Spark's checkpoints
    too."""
    seen: list[Any] = [None]

    def again() -> bool:
        then = rounds(platform)
        until(lambda: rounds(platform) >= then + 2, "rounds")
        seen.append(written(platform))
        return bool(seen[-1] == seen[-2])

    until(again, "the end of the last batches")
    return seen[-1]


def test_what_comes_while_it_runs_is_taken_in_and_an_idle_run_writes_nothing(quiet: Platform) -> None:
    """Three files, one after the other: each one's windows close by silence, without another run; between them some
    rounds go by with nothing.

    One epoch for all of it, and the results are those of a batch computation."""
    idle: list[tuple[Any, Any]] = []

    def feed() -> None:
        for block in range(3):
            quiet.put("shop", f"sales-{block}.jsonl", sales(block))
            until(lambda n=3 * (block + 1): windows(quiet) == n, "the windows of what came")  # type: ignore[misc]
            before, then = at_rest(quiet), rounds(quiet)
            until(lambda n=then: rounds(quiet) >= n + 5, "idle rounds")  # type: ignore[misc]
            idle.append((before, written(quiet)))

    with meanwhile(quiet, feed):
        report = quiet.run("shop", "--continuous", "--every", "0.2")

    assert len(idle) == 3
    assert all(before == after for before, after in idle)
    assert out_of_order(quiet) == 0
    assert report.facts["batches"] == committed(quiet) + committed(quiet, "per_shop")
    assert quiet.sql("SELECT DISTINCT epoch FROM onlyonce.batches")["epoch"].tolist() == [1]
    assert quiet.sql("SELECT state, exit_code FROM onlyonce.long_runs").values.tolist() == [["stopped", 0]]
    check(quiet, 3)


class Held:
    """A fail-point of the driver at which the test holds a thread, the first time that a condition is true, until it
    lets go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: str, name: str, when: Callable[[], bool]) -> None:
        self.reached, self.let_go = threading.Event(), threading.Event()

        def passing(passed: str) -> None:
            if passed == name and not self.reached.is_set() and when():
                self.reached.set()
                assert self.let_go.wait(JOB_TIMEOUT), f"nobody let go of {name}"

        monkeypatch.setattr(f"onlyonce.{module}.passing", passing)

    def __enter__(self) -> Held:
        assert self.reached.wait(JOB_TIMEOUT), "the point was not reached"
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()


def test_ctrl_c_ends_a_run_after_the_batch_at_work(quiet: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is committed, the report says so, and the next run goes on from there to the same results."""
    receiving = Held(monkeypatch, "receive.loop", "receive-after-begin", lambda: True)
    before = signal.getsignal(signal.SIGINT)

    def press() -> None:
        with receiving:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            until(lambda: signal.getsignal(signal.SIGINT) == before, "the signal")

    for block in range(2):
        quiet.put("shop", f"sales-{block}.jsonl", sales(block))
    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(Interrupted) as ended:
        quiet.run("shop", "--max-files", "1")
    pressing.join()

    assert (ended.value.report.facts["batches"], committed(quiet), begun(quiet, "per_shop")) == (1, 1, 0)
    assert signal.getsignal(signal.SIGINT) == before
    quiet.run("shop", "--close")
    check(quiet, 2)


def begun(platform: Platform, query: str) -> int:
    """How many batches of a query have begun."""
    return int(platform.sql(f"SELECT count(*) AS n FROM onlyonce.batches WHERE query = '{query}'")["n"][0])


def counted(monkeypatch: pytest.MonkeyPatch, target: str, function: Callable[..., Any]) -> list[Any]:
    """The results of a function of the driver, call by call, as they come."""
    results: list[Any] = []

    def counting(*given: Any, **named: Any) -> Any:
        results.append(function(*given, **named))
        return results[-1]

    monkeypatch.setattr(target, counting)
    return results


def somebody_elses_commit(platform: Platform) -> None:
    """Two versions of `events` that are no batch of receive's: one of maintenance, and one of `onlyonce reset`."""
    table = DeltaTable(str(settings.data_dir("shop") / "events"))
    write_deltalake(table, pa.schema(table.schema().to_arrow()).empty_table(), mode="append")
    reset.take_back(settings.data_location("shop") / "events", "shop/receive/0/events", 10_000)


def test_an_output_begins_on_no_row_before_the_log_has_ended_its_receive_batch(
    quiet: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are in `events` and receive is held before the end of their batch: the output's query has met them, and has
    not begun.

    Let go, it goes on; also past versions of `events` that are no batches, for whose end it would wait for ever."""
    looks = counted(monkeypatch, "onlyonce.run.queries._vouched", queries._vouched)
    held: list[tuple[int, list[int]]] = []

    def feed() -> None:
        with Held(monkeypatch, "receive.loop", "receive-before-end", lambda: True):
            rows = DeltaTable(str(settings.data_dir("shop") / "events")).version()
            until(lambda: False in looks or rows in read_upto(quiet), "the output")
            held.append((rows, read_upto(quiet)))
        until(lambda: windows(quiet) == 3, "the windows of what came")
        somebody_elses_commit(quiet)
        quiet.put("shop", "sales-1.jsonl", sales(1))
        until(lambda: windows(quiet) == 6, "the windows of the next")

    quiet.put("shop", "sales-0.jsonl", sales(0))
    with meanwhile(quiet, feed):
        quiet.run("shop", "--continuous", "--every", "0.2")

    # A batch on the empty table, from before the rows, may well have begun.
    assert [version for rows, read in held for version in read if version >= rows] == []
    assert len(held) == 1
    assert out_of_order(quiet) == 0
    check(quiet, 2)


@pytest.mark.whole
def test_a_close_comes_neither_within_a_receive_batch_nor_while_another_waits(
    quiet: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two files the first is in, and by the clock its source has fallen silent; the second is held in the middle of
    its batch.

    Some looks go by without a close, and the one that comes then closes the windows of both."""
    looks = counted(monkeypatch, "onlyonce.receive.loop.close", loop.close)
    closes: list[int] = []

    def feed() -> None:
        with Held(monkeypatch, "receive.loop", "receive-after-delta", lambda: committed(quiet) == 1):
            done = len(looks)
            until(lambda: len(looks) > done + 3, "looks at the clock")
            closes.extend(quiet.sql("SELECT count(*) AS n FROM onlyonce_private.watermark_markers")["n"])
        until(lambda: windows(quiet) == 6, "the windows of both")

    for block in range(2):
        quiet.put("shop", f"sales-{block}.jsonl", sales(block))
    with meanwhile(quiet, feed):
        quiet.run("shop", "--continuous", "--every", "0.2", "--max-files", "1")

    assert closes == [0]
    assert out_of_order(quiet) == 0
    check(quiet, 2)


@pytest.mark.whole
def test_what_comes_while_a_receive_batch_is_at_work_is_one_batch(
    quiet: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three files, with looks between them: a source that is quicker than a batch makes larger batches and not a
    queue."""
    looks = counted(monkeypatch, "onlyonce.receive.loop.close", loop.close)

    def feed() -> None:
        with Held(monkeypatch, "receive.loop", "receive-after-begin", lambda: True):
            for block in range(1, 4):
                quiet.put("shop", f"sales-{block}.jsonl", sales(block))
                done = len(looks)
                until(lambda n=done: len(looks) > n + 1, "looks")  # type: ignore[misc]
        until(lambda: windows(quiet) == 12, "the windows of all")

    quiet.put("shop", "sales-0.jsonl", sales(0))
    with meanwhile(quiet, feed):
        quiet.run("shop", "--continuous", "--every", "0.2")

    assert committed(quiet) == 2
    check(quiet, 4)


def test_a_stop_while_receive_and_an_output_are_at_work_tears_no_batch(
    quiet: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are held in the middle of a batch, and the driver is told to stop: both batches are ended, nothing else has
    begun, and the next run goes on from there to the same results."""
    output = Held(monkeypatch, "outputs.query", "output-after-begin", lambda: committed(quiet) == 1)
    receiving = Held(monkeypatch, "receive.loop", "receive-after-begin", lambda: committed(quiet) == 1)
    left: list[Any] = []

    def feed() -> None:
        with output:
            quiet.put("shop", "sales-1.jsonl", sales(1))
            with receiving:
                quiet.put("shop", "sales-2.jsonl", sales(2))
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                until(lambda: signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "the signal")
                left.append(quiet.sql("SELECT count(*) AS n FROM onlyonce.batches WHERE state = 'begun'")["n"][0])

    quiet.put("shop", "sales-0.jsonl", sales(0))
    with meanwhile(quiet, feed):
        quiet.run("shop", "--continuous", "--every", "0.2", "--max-files", "1")
    states = quiet.sql("SELECT DISTINCT state FROM onlyonce.batches")["state"].tolist()

    assert (left, states, committed(quiet)) == ([2], ["committed"], 2)
    assert quiet.sql("SELECT state, exit_code FROM onlyonce.long_runs").values.tolist() == [["stopped", 0]]
    quiet.run("shop")
    assert out_of_order(quiet) == 0
    check(quiet, 3)


def test_what_one_query_fails_of_ends_the_others_between_batches_and_is_the_runs_error(
    quiet: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output fails while receive is in the middle of a batch: that batch is ended, the run ends with the output's
    error, and the next run goes on to the same results."""
    receiving = Held(monkeypatch, "receive.loop", "receive-after-begin", lambda: committed(quiet) == 1)

    def broken(name: str) -> None:
        if name == "output-before-end" and committed(quiet) == 1:
            quiet.put("shop", "sales-1.jsonl", sales(1))
            with receiving:
                raise Refused("this output is broken")

    quiet.put("shop", "sales-0.jsonl", sales(0))
    with monkeypatch.context() as patch:
        patch.setattr("onlyonce.outputs.query.passing", broken)
        with pytest.raises(Refused, match="this output is broken"):
            quiet.run("shop", "--continuous", "--every", "0.2", "--max-files", "1")
    ended = quiet.sql("SELECT state, exit_code, error FROM onlyonce.long_runs").values.tolist()

    assert (committed(quiet), begun(quiet, "receive")) == (2, 2)
    assert ended == [["failed", 64, "this output is broken"]]
    quiet.run("shop")
    check(quiet, 2)


@pytest.mark.whole
def test_late_rows_are_folded_in_while_the_queries_stay_up(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """The windows of a file have closed; half of it comes later: they are recomputed beside the queries, which take in
    the next file after that, under their first epochs."""
    platform = quick(new_platform("tests/support/quiet_late.py"), monkeypatch)
    early, late = sales(0)[::2], sales(0)[1::2]

    def folded() -> bool:
        found = platform.sql("SELECT included FROM onlyonce.late WHERE late > 0")["included"]
        return len(found) > 0 and bool(found.all())

    def feed() -> None:
        platform.put("shop", "early.jsonl", early)
        until(lambda: windows(platform) == 3, "the windows of what came")
        platform.put("shop", "late.jsonl", late)
        until(folded, "the late rows")
        platform.put("shop", "next.jsonl", sales(1))
        until(lambda: windows(platform) == 6, "the windows of the next")

    with meanwhile(platform, feed):
        platform.run("shop", "--continuous", "--every", "0.2")

    assert platform.sql("SELECT sum(late) AS n FROM onlyonce.late")["n"].tolist() == [len(late)]
    assert platform.sql("SELECT DISTINCT epoch FROM onlyonce.batches")["epoch"].tolist() == [1]
    assert out_of_order(platform) == 0
    check(platform, 2)


def test_late_rows_wait_for_a_backfill_that_has_their_windows(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """A person's backfill holds them, with its session open and then without. The output stays up without the late
    rows, until a person finishes the backfill."""
    platform = quick(new_platform("tests/support/quiet_late.py"), monkeypatch)
    early, late = sales(0)[::2], sales(0)[1::2]
    asked = ("--from", shop_oracle.START.isoformat(), "--to", (shop_oracle.START + timedelta(minutes=3)).isoformat())
    platform.put("shop", "early.jsonl", early)
    platform.run("shop")
    assert ended_at(platform, monkeypatch, "backfill-before-end", 1, *asked, command="backfill")

    def included() -> list[bool]:
        return list(platform.sql("SELECT included FROM onlyonce.late WHERE late > 0")["included"])

    def feed() -> None:
        platform.put("shop", "late.jsonl", late)
        until(lambda: len(included()) > 0, "the late rows")
        platform.put("shop", "next.jsonl", sales(1))
        until(lambda: windows(platform) == 6, "the windows of the next")

    with meanwhile(platform, feed):
        platform.run("shop", "--continuous", "--every", "0.2")
    platform.sql("""SELECT pg_terminate_backend(pid, 10000) FROM onlyonce_private.incarnations
                    JOIN pg_stat_activity ON application_name LIKE 'onlyonce/' || incarnation_no || '/%'
                    WHERE kind = 'backfill'""")
    platform.put("shop", "later.jsonl", sales(2))
    platform.run("shop")

    assert not any(included())
    platform.backfill("shop", *asked)
    check(platform, 3)


@pytest.mark.whole
def test_an_output_that_meets_rows_before_their_control_row_makes_the_same_of_them(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """At least once receive is held between its two commits until the output's query has met the first of them, for
    each file: the output's batch then ends between the two, and its windows close with the next."""
    platform = quick(new_platform("tests/support/quiet_loose.py"), monkeypatch)
    add_control, looks = (
        at_least_once._add_control,
        counted(monkeypatch, "onlyonce.run.queries._vouched", queries._vouched),
    )

    def held(*given: Any) -> None:
        before = looks.count(False)
        until(lambda: looks.count(False) > before, "the output")
        add_control(*given)

    def feed() -> None:
        for block in range(2):
            platform.put("shop", f"sales-{block}.jsonl", sales(block))
            until(lambda n=3 * (block + 1): windows(platform) == n, "the windows of what came")  # type: ignore[misc]

    monkeypatch.setattr("onlyonce.receive.at_least_once._add_control", held)
    with meanwhile(platform, feed):
        platform.run("shop", "--continuous", "--every", "0.2")

    assert out_of_order(platform) == 0
    check(platform, 2)


def test_a_run_that_is_broken_off_leaves_no_query_in_its_process(
    quiet: Platform, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    """As by Ctrl-C twice in a notebook: the block ends at once, and each query before its next batch."""

    def look(_: object) -> bool:
        if spark.streams.active:
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr("onlyonce.run.queries._Looks.look", look)
    with pytest.raises(KeyboardInterrupt):
        quiet.run("shop", "--continuous", "--every", "0.2")

    until(lambda: queries.THREAD not in [thread.name for thread in threading.enumerate()], "the end of the queries")
    assert spark.streams.active == []
    assert quiet.sql("SELECT state FROM onlyonce.long_runs")["state"].tolist() == ["failed"]


@pytest.mark.whole
def test_a_stop_holds_between_two_batches_that_wait(quiet: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three files that wait, each a batch, one is taken in: it is whole, the next has not begun, and the next run
    goes on with it, to the same results."""
    for block in range(3):
        quiet.put("shop", f"sales-{block}.jsonl", sales(block))
    asked: list[str] = []

    def passing(name: str) -> None:
        if name == "receive-after-end" and not asked:
            asked.append(name)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            until(lambda: signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "the signal")

    monkeypatch.setattr("onlyonce.receive.loop.passing", passing)
    quiet.run("shop", "--continuous", "--max-files", "1")
    batches = quiet.sql("SELECT query, state FROM onlyonce.batches").values.tolist()
    ended = quiet.sql("SELECT state FROM onlyonce.long_runs")["state"].tolist()

    assert ([state for query, state in batches if query == "receive"], ended) == (["committed"], ["stopped"])
    assert {state for _, state in batches} == {"committed"}
    quiet.run("shop", "--max-files", "1")
    assert committed(quiet) == 3
    check(quiet, 3)
