"""Outputs made from another's closed windows: equal to a batch over a batch over the distinct records, at any cut,
wherever a run ends, each row once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from onlyonce.core.backfill import OpenWindows
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit
from onlyonce.outputs import backfill_windows, query
from onlyonce.run import queries
from tests.support.chained_oracle import Sums, best, in_delta, in_postgres, per_shop, rows
from tests.support.chained_shop import WATERMARK_DELAY
from tests.support.cut_records import MINUTE, START, Record, at, came, cut, floor
from tests.support.long_run import READ_UPTO, meanwhile, until
from tests.support.platform import JOB_TIMEOUT, Platform

pytestmark = pytest.mark.spark

POINTS = (
    "output-before-begin", "output-after-begin", "output-consumed", "output-before-end", "output-after-end", "backfill-after-begin",
    "backfill-before-end", "backfill-after-end",
)  # fmt: skip


def records(chance: random.Random, count: int) -> list[Record]:
    """Sales of a few shops in twenty minutes, most of them in order of time."""
    times = sorted(chance.randrange(1_200_000) for _ in range(count))
    return [
        {
            "id": f"{n}",
            "shop": chance.choice("ab"),
            "at": (START + timedelta(milliseconds=max(0, time - chance.choice((0, 0, 15_000, 200_000))))).isoformat(),
            "cents": chance.randrange(100),
        }
        for n, time in enumerate(times)
    ]


def run_to(platform: Platform, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A run that ends at the so-manieth point that it passes, or at its end."""
    passed: Counter[str] = Counter()

    def ended(name: str) -> None:
        passed["all"] += name in POINTS
        if passed["all"] == number:
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        armed.setattr(query, "passing", ended)
        armed.setattr(query, "passing", ended)
        armed.setattr(backfill_windows, "passing", ended)
        with pytest.raises(FailPoint):
            platform.run("shop")


@pytest.mark.parametrize("seed", [1, pytest.param(6, marks=pytest.mark.slow), pytest.param(10, marks=pytest.mark.slow)])
def test_a_chain_is_a_batch_over_a_batch_however_the_input_is_cut_and_where_runs_end(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Outputs that fold late records in have all of them; the last one those that came before its windows closed, and
    after a backfill of the first all."""
    platform = new_platform("tests/support/chained_shop.py")
    chance = random.Random(seed)
    them = records(chance, 80)
    files = cut(chance, them, 4)
    for number, file in enumerate(files):
        platform.put("shop", f"{number}.jsonl", file)
        if number == 1:
            run_to(platform, monkeypatch, chance.randrange(4, 15))
    platform.run("shop", "--close")
    ten = 10 * MINUTE
    timely = [
        one
        for one, max_event_time in came(files)
        if max_event_time is None or floor(at(one), 10 * MINUTE) + ten > max_event_time - 4 * WATERMARK_DELAY
    ]
    assert 0 < len(timely) < len(them)
    assert set(platform.sql("SELECT output FROM onlyonce.late")["output"]) == {"minutes", "fives", "tens"}
    minutes = per_shop((one, floor(at(one))) for one in them)
    in_time = per_shop((one, floor(at(one))) for one in timely)

    assert in_delta(platform, "shop/minutes") == rows(minutes)
    assert in_postgres(platform, "fives") == rows(best(minutes, 1, 5))
    assert in_delta(platform, "shop/tens") == rows(best(best(in_time, 1, 5), 5, 10))

    platform.backfill("shop", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:20:00Z")

    assert in_delta(platform, "shop/tens") == rows(best(best(minutes, 1, 5), 5, 10))
    assert audit.main(["--data"]).warnings == []
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert platform.sql("SELECT * FROM onlyonce.windows WHERE late_not_included > 0").empty


def test_a_backfill_of_what_leaves_late_records_out_goes_down_the_chain_once_its_windows_have_closed(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """Before that it is told to wait, and nothing is changed.

    What is left out before is late at each level, and in none until then; a backfill of the last one alone puts nothing
    in."""
    platform = new_platform("tests/support/chained_shop.py")
    chance = random.Random(5)
    them = records(chance, 60)
    files = cut(chance, them, 3)
    for number, file in enumerate(files):
        platform.put("loose", f"{number}.jsonl", file)
    platform.run("loose")
    all_of_it = ("--from", "2025-12-31T23:00:00Z", "--to", "2026-01-01T00:10:00Z")
    with pytest.raises(OpenWindows, match="of_of_near"):
        platform.backfill("loose", *all_of_it)
    platform.run("loose", "--close")

    def near(put_in: datetime) -> Sums:
        """What windows of two minutes have of records in time, and before a moment of all."""
        pairs = [
            (one, floor(at(one)) - back, max_event_time)
            for one, max_event_time in came(files)
            for back in (timedelta(0), MINUTE)
        ]
        late = timedelta(minutes=2) + WATERMARK_DELAY
        return per_shop(
            (one, start)
            for one, start, max_event_time in pairs
            if max_event_time is None or start + late > max_event_time or start < put_in
        )

    timely = near(START - timedelta(days=1))
    assert in_delta(platform, "loose/near") == rows(timely)
    assert in_delta(platform, "loose/of_near") == rows(best(timely, 2, 5))
    assert in_delta(platform, "loose/of_of_near") == rows(best(best(timely, 2, 5), 5, 10))

    platform.backfill("loose", *all_of_it, "--output", "of_of_near")
    assert in_delta(platform, "loose/of_of_near") == rows(best(best(timely, 2, 5), 5, 10))
    platform.backfill("loose", *all_of_it)

    mended = near(START + 10 * MINUTE)
    assert mended != timely
    assert in_delta(platform, "loose/near") == rows(mended)
    assert in_delta(platform, "loose/of_near") == rows(best(mended, 2, 5))
    assert in_delta(platform, "loose/of_of_near") == rows(best(best(mended, 2, 5), 5, 10))


def reads(platform: Platform, query: str) -> int:
    """The last version of `events` that a batch of an output has begun to read; -1: none has begun."""
    found = platform.sql(f"""SELECT max({READ_UPTO}) AS version FROM onlyonce_private.batches o
                             JOIN onlyonce_private.incarnations l ON l.incarnation = o.incarnation AND l.query = '{query}'""")[
        "version"
    ]
    return -1 if found.isna().all() else int(found[0])


def received(platform: Platform) -> int:
    """The version of `events` of the last batch that receive has ended; as if far ahead before the first."""
    found = platform.sql(
        "SELECT max(delta_version) AS version FROM onlyonce_private.batches WHERE state = 'committed'"
    )["version"]
    return 1_000_000 if found.isna().all() else int(found[0])


def test_in_a_long_run_an_output_begins_on_no_row_before_the_one_before_it_has_written_what_closes_with_it(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first output is held in its batch: the next one has met the rows, and has not begun. Let go, both go on."""
    platform = new_platform("tests/support/chained_shop.py")
    monkeypatch.setenv("ONLYONCE_HEARTBEAT", "0.5")
    looks: list[bool] = []
    has_written = queries._has_written

    def looked(*given: Any) -> bool:
        looks.append(has_written(*given))
        return looks[-1]

    monkeypatch.setattr(queries, "_has_written", looked)
    reached, let_go = threading.Event(), threading.Event()

    def held(name: str) -> None:
        if name == "output-before-end" and not reached.is_set() and reads(platform, "minutes") >= received(platform):
            looks.clear()
            reached.set()
            assert let_go.wait(JOB_TIMEOUT)

    monkeypatch.setattr(query, "passing", held)
    them = [
        {"id": f"{n}", "shop": "ab"[n % 2], "at": (START + n * timedelta(seconds=29)).isoformat(), "cents": n}
        for n in range(40)
    ]
    begun: list[int] = []

    def feed() -> None:
        try:
            assert reached.wait(JOB_TIMEOUT)
            until(lambda: False in looks or reads(platform, "fives") >= received(platform), "the next output")
            begun.append(reads(platform, "fives") - received(platform))
        finally:
            let_go.set()
        until(lambda: len(platform.table("shop/tens")) == 4, "the windows of ten minutes")

    platform.put(
        "shop", "0.jsonl", [*them, {"id": "last", "shop": "a", "at": (START + 30 * MINUTE).isoformat(), "cents": 0}]
    )
    with meanwhile(platform, feed):
        platform.run("shop", "--continuous", "--every", "0.2")

    assert len(begun) == 1
    assert begun[0] < 0
    minutes = per_shop((one, floor(at(one))) for one in them)
    assert in_postgres(platform, "fives") == rows(best(minutes, 1, 5))
    assert in_delta(platform, "shop/tens") == rows(best(best(minutes, 1, 5), 5, 10))
