"""Windows whose records are read when they close: their rows are those of a batch over the records in time, whoever
reads them, over kills and a new incarnation."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from onlyonce.core.errors import Refused
from onlyonce.operate import audit
from onlyonce.receive import events
from onlyonce.run import reset
from tests.support import shop_oracle
from tests.support.at_close_shop import SHOP
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

NEVER, ALWAYS = "0", str(1 << 30)
KILLS = (
    "output-consumed",
    "delta-after-write",
    "postgres-unit-after-commit",
    "output-before-end",
    "delta-before-write",
)
ZERO = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
POINTS = ("output-after-begin", "output-consumed", "output-before-end", "output-after-end")
Windows = dict[tuple[datetime, str], list[dict[str, Any]]]


def in_time(files: list[list[dict[str, Any]]], name: str) -> Windows:
    """The records of each window and shop that are not late for it: one file is one batch."""
    output = SHOP.output(name)
    found: Windows = defaultdict(list)
    for one in shop_oracle.distinct(files).to_dict("records"):
        at = (datetime.fromisoformat(one["at"]) - ZERO) // MICROSECOND
        for start, end in output.window.assign(at):  # type: ignore[union-attr]
            if (
                pd.isna(one["max_event_time"])
                or ZERO + end * MICROSECOND > one["max_event_time"] - output.watermark_delay
            ):
                found[ZERO + start * MICROSECOND, one["shop"]].append(one)
    return found


def sums(windows: Windows) -> Counter[Any]:
    """(start, shop, sales, cents)."""
    return Counter(
        (start, shop, len(them), sum(one["cents"] for one in them)) for (start, shop), them in windows.items()
    )


def largest(windows: Windows) -> Counter[Any]:
    """(start, shop, id, cents)."""
    best = {key: min(them, key=lambda one: (-one["cents"], one["id"])) for key, them in windows.items()}
    return Counter((start, shop, one["id"], one["cents"]) for (start, shop), one in best.items())


def rows_are_those_of_a_batch(platform: Platform, files: list[list[dict[str, Any]]]) -> None:
    """Each output's, by the oracle; and the log has none open, lost or doubled."""
    timely = {name: in_time(files, name) for name in ("counted", "sliding", "largest", "by_state")}
    assert sum(map(len, timely["largest"].values())) < len(shop_oracle.distinct(files)), "some are late"
    assert multiset(platform.sql("SELECT window_start, shop, sales, cents FROM results.counted")) == sums(
        timely["counted"]
    )
    assert multiset(platform.table("shop/sliding"), "window_start", "shop", "sales", "cents") == sums(timely["sliding"])
    assert multiset(platform.table("shop/by_state"), "window_start", "shop", "sales", "cents") == sums(
        timely["by_state"]
    )
    assert multiset(platform.table("shop/largest"), "window_start", "shop", "id", "cents") == largest(timely["largest"])
    assert platform.sql("SELECT * FROM onlyonce.panes WHERE NOT final").empty
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert audit.main(["--data"]).warnings == []


@pytest.mark.parametrize(
    ("by", "seed", "home"),
    [
        (ALWAYS, 1, "home"), (NEVER, 2, "home [1]{a}"), pytest.param(ALWAYS, 3, "home [1]{a}", marks=pytest.mark.slow),
        pytest.param(NEVER, 4, "home", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_rows_are_those_of_a_batch_over_the_records_in_time(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object, by: str, seed: int, home: str
) -> None:
    """Over a kill and a new incarnation; late records stay out, and those of many batches come together.

    The name of the home may look like a pattern.
    """
    platform, chance = new_platform("tests/support/at_close_shop.py", home), random.Random(seed)
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=by)
    files = shop_oracle.sales(400, 6, seed=seed)
    for number, records in enumerate(files):
        platform.put("shop", f"{number}.jsonl", records)
        if number == 2:
            # the next run has two batches of receive: a window that the first closes is late for the second, and one
            # batch reads both
            continue
        if number == 1:
            assert ended_at(platform, monkeypatch, chance.choice(POINTS), chance.randrange(1, 4))
        if number == 3:
            reset.new("shop/counted", yes=True)
        platform.run("shop", *(["--close"] if number == len(files) - 1 else []))

    rows_are_those_of_a_batch(platform, files)


@pytest.mark.fault
@pytest.mark.whole
def test_a_driver_killed_while_it_writes_windows_at_their_close_does_not_show(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """At another step of an output's batch in each run. Each run first finishes what the run before it has left."""
    platform = new_platform("tests/support/at_close_shop.py")
    files = shop_oracle.sales(400, len(KILLS) + 1, seed=6)
    for number, records in enumerate(files):
        platform.put("shop", f"{number}.jsonl", records)
        if number < len(KILLS):
            assert ended_at(platform, monkeypatch, KILLS[number])
    platform.run("shop", "--close")

    rows_are_those_of_a_batch(platform, files)


def test_a_batch_reads_the_files_of_the_windows_that_it_closes_and_gives_no_row_where_it_closes_none(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """The files that the log names, by the driver, and not the table; also of a function that gives a row of no
    records.

    In each of five minutes there are records, so of each batch that closes a window there is one row."""
    platform, files = new_platform("tests/support/at_close_shop.py"), shop_oracle.sales(400, 8, duplicates=0)
    read: list[int] = []
    asked = events.kept_files

    def kept_files(path: Any, received: list[Any]) -> Any:
        read.append(len(received))
        return asked(path, received)

    monkeypatch.setattr(events, "kept_files", kept_files)
    for number, records in enumerate(files):
        platform.put("told", f"{number}.jsonl", records)
        if number == 1:
            monkeypatch.setattr(events, "rows_as_of", None)  # the first batch alone asks the table
        platform.run("told")

    assert 1 < max(read) <= 5, "of five minutes, which four or five of eight batches have met"
    batches = platform.sql("SELECT count(*) AS n FROM onlyonce.batches WHERE query = 'newest' AND state = 'committed'")[
        "n"
    ][0]
    found = platform.table("told/newest")
    assert 0 < len(found) < batches
    assert found["window_start"].notna().all()
    assert (found["sales"] > 0).all()


@pytest.mark.parametrize("by", [ALWAYS, NEVER], ids=["by the driver", "by tasks"])
def test_rows_without_a_window_are_refused_before_any_is_written(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object, by: str
) -> None:
    """The log has no window for such a row, so the batch that has written it could never end."""
    platform = new_platform("tests/support/at_close_shop.py")
    platform.give(monkeypatch, ONLYONCE_IN_DRIVER_BYTES=by)
    platform.put("rolled", "0.jsonl", shop_oracle.sales(40, 1)[0])

    with pytest.raises(Refused, match=r"output rolled_up: .*:rolled_up gave 1 row without a window") as refused:
        platform.run("rolled", "--close")

    assert "rollup" in str(refused.value)
    assert platform.sql("SELECT * FROM results.rolled_up").empty
