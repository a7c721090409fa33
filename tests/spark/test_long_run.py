"""The long-running mode on Spark: what comes while it runs, what it writes when nothing comes, and its stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs import settings
from tests.support import shop_oracle
from tests.support.long_run import QUICK, committed, meanwhile, turns, until
from tests.support.platform import Platform, multiset

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


@pytest.fixture
def quiet(new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object) -> Platform:
    """A platform whose windows close as soon as nothing comes, and whose drivers' hearts beat quickly."""
    platform = new_platform("tests/support/quiet.py")
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    return platform


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
    log = [platform.sql(f"SELECT count(*) FROM onlyonce_private.{t}").iat[0, 0] for t in ("batches", "closes", "units")]
    return log, sorted(str(path) for path in settings.data_dir("shop").rglob("*"))


def windows(platform: Platform) -> int:
    """How many windows the table has."""
    there = DeltaTable.is_deltatable(str(settings.tables_dir() / "shop" / "per_shop"))
    return len(set(platform.table("shop/per_shop")["window_start"])) if there else 0


def test_what_comes_while_it_runs_is_taken_in_and_an_idle_turn_writes_nothing(quiet: Platform) -> None:
    """Three files, one after the other: each one's windows close by silence, without another run; between them some turns
    go by with nothing. One epoch for all of it, and the results are those of a batch computation."""
    idle: list[tuple[Any, Any]] = []

    def feed() -> None:
        for block in range(3):
            quiet.put("shop", f"sales-{block}.jsonl", sales(block))
            until(lambda n=3 * (block + 1): windows(quiet) == n, "the windows of what came")  # type: ignore[misc]
            settled = turns(quiet)
            until(lambda n=settled: turns(quiet) >= n + 2, "the end of the turn")  # type: ignore[misc]
            before, then = written(quiet), turns(quiet)
            until(lambda n=then: turns(quiet) >= n + 2, "idle turns")  # type: ignore[misc]
            idle.append((before, written(quiet)))

    with meanwhile(quiet, feed):
        report = quiet.run("shop", "--forever", "--every", "0.2")

    assert len(idle) == 3
    assert all(before == after for before, after in idle)
    assert report.facts["batches"] == committed(quiet) + committed(quiet, "per_shop")
    assert quiet.sql("SELECT DISTINCT epoch FROM onlyonce.batches")["epoch"].tolist() == [1]
    assert quiet.sql("SELECT state, exit_code FROM onlyonce.long_runs").values.tolist() == [["stopped", 0]]
    check(quiet, 3)


def test_a_stop_holds_between_two_batches_of_one_turn(quiet: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three files that wait, each a batch, one is taken in: it is whole, the next has not begun, and the next run goes
    on with it, to the same results."""
    for block in range(3):
        quiet.put("shop", f"sales-{block}.jsonl", sales(block))
    asked: list[str] = []

    def passing(name: str) -> None:
        if name == "receive-after-end" and not asked:
            asked.append(name)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            until(lambda: signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "the signal")

    monkeypatch.setattr("jobs.spark.receive.passing", passing)
    report = quiet.run("shop", "--forever", "--max-files", "1")
    batches = quiet.sql("SELECT query, batch_id, state FROM onlyonce.batches").values.tolist()
    ended = quiet.sql("SELECT state FROM onlyonce.long_runs")["state"].tolist()

    assert (batches, ended, report.facts["batches"]) == ([["receive", 0, "committed"]], ["stopped"], 1)
    quiet.run("shop", "--max-files", "1")
    assert committed(quiet) == 3
    check(quiet, 3)
