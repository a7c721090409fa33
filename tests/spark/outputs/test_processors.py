"""Outputs with state of their own: equal to a plain computation over the records in time at any cut, wherever a run
ends, each row once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce.core.errors import Refused
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit
from onlyonce.outputs import query
from onlyonce.run import reset
from tests.spark.outputs.test_joins import POINTS, plain
from tests.support.cut_records import Record, at, cut, in_time
from tests.support.joined_shop import WATERMARK_DELAY
from tests.support.platform import Platform
from tests.support.stateful_shop import COLUMNS, GAP

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)


def records(chance: random.Random, count: int) -> list[Record]:
    """Records of a few shops, most of them in order of time; some have no shop."""
    times = sorted(chance.randrange(600_000) for _ in range(count))
    return [
        {
            "id": f"{n}",
            "shop": chance.choice(("a", "b", None)),
            "at": (START + timedelta(milliseconds=max(0, time - chance.choice((0, 0, 5_000, 60_000))))).isoformat(),
        }
        for n, time in enumerate(times)
    ]


def silences(them: list[Record]) -> Counter[Any]:
    """(shop, what, at, id, records): each record, and each time after which a shop was silent, by its plain
    definition."""
    found: Counter[Any] = Counter()
    for shop in {one["shop"] for one in them}:
        times = [at(one) for one in them if one["shop"] == shop]
        found.update((shop, "came", at(one), one["id"], None) for one in them if one["shop"] == shop)
        for time in set(times):
            if not any(time < other <= time + GAP for other in times):
                found[shop, "silent", time, None, sum(other <= time for other in times)] += 1
    return found


def found(platform: Platform, pipeline: str, of: str = "") -> Counter[Any]:
    """What a reader of the table sees: that of `shop` is a Delta table, that of `till` is in PostgreSQL.

    `of`: of a bounded run.
    """
    if pipeline == "shop":
        return plain(platform.table(f"shop/silences{of}")[list(COLUMNS)])
    return plain(platform.sql(f'SELECT {", ".join(COLUMNS)} FROM results."silences{of}"'))


def test_timers_fire_by_the_frontier_and_the_end_of_the_input_fires_those_that_are_left(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """No sooner than no record in time can come before them; state goes on from run to run."""
    platform = new_platform("tests/support/stateful_shop.py")

    def told() -> list[Any]:
        return sorted(
            (shop, time.second, records)
            for shop, what, time, _, records in found(platform, "shop").elements()
            if what == "silent"
        )

    def give(name: str, *times: int) -> None:
        one = [
            {"id": f"{name}-{n}", "shop": name[0], "at": (START + timedelta(seconds=second)).isoformat()}
            for n, second in enumerate(times)
        ]
        platform.put("shop", f"{name}.jsonl", one)

    give("a1", 0, 5)
    give("b1", 34)  # a was silent from 5 to 25, but a record at 24 may come until the max event time is 35
    platform.run("shop")
    assert told() == []
    give("b2", 35)
    platform.run("shop")
    assert told() == [("a", 5, 2)]
    platform.run("shop", "--close")
    assert told() == [("a", 5, 2), ("b", 35, 2)]


@pytest.mark.parametrize(
    "seed, pipeline",
    [(2, "shop"), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((1, "till"), (3, "till"), (7, "shop")))],
)
def test_an_output_with_state_is_that_of_its_records_in_time_however_they_are_cut_and_where_runs_end(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch, seed: int, pipeline: str
) -> None:
    """Late records are counted and stay out."""
    platform = new_platform("tests/support/stateful_shop.py")
    chance = random.Random(seed)
    them = records(chance, 60)
    files = cut(chance, them, 4)
    for number, file in enumerate(files):
        platform.put(pipeline, f"{number}.jsonl", file)
        if number in (1, 2):
            ends_at, passed = chance.randrange(1, 11), Counter[str]()

            def ended(name: str, ends_at: int = ends_at, passed: Counter[str] = passed) -> None:
                passed["all"] += name in POINTS
                if passed["all"] == ends_at:
                    raise FailPoint(name)

            with monkeypatch.context() as armed:
                armed.setattr(query, "passing", ended)
                with pytest.raises(FailPoint):
                    platform.run(pipeline)
    platform.run(pipeline, "--close")
    timely = in_time(files, WATERMARK_DELAY)
    assert 0 < len(timely) < len(them)

    assert found(platform, pipeline) == silences(timely)
    assert audit.main(["--data"]).warnings == []
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert platform.sql("SELECT sum(late) AS late FROM onlyonce.windows")["late"][0] == len(them) - len(timely)


@pytest.mark.parametrize(
    "pipeline, ends_at",
    [("till", "from-start-after-clear"), pytest.param("shop", "output-before-end", marks=pytest.mark.slow)],
)
def test_a_new_incarnation_computes_an_output_with_state_from_the_start_in_the_place_of_what_was_there(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch, pipeline: str, ends_at: str
) -> None:
    """Also where the old one has left a batch half written, and where the first start of the new one ends; once
    only."""
    platform = new_platform("tests/support/stateful_shop.py")
    chance = random.Random(4)
    them = records(chance, 30)
    files = cut(chance, them, 3)

    def ends(at: str) -> None:
        def ended(name: str) -> None:
            if name == at:
                raise FailPoint(name)

        with monkeypatch.context() as armed:
            armed.setattr(query, "passing", ended)
            with pytest.raises(FailPoint):
                platform.run(pipeline)

    platform.put(pipeline, "0.jsonl", files[0])
    platform.run(pipeline)
    platform.put(pipeline, "1.jsonl", files[1])
    ends("output-before-end")
    reset.new(f"{pipeline}/silences", yes=True)
    ends(ends_at)
    platform.run(pipeline)
    assert found(platform, pipeline)
    platform.put(pipeline, "2.jsonl", files[2])
    platform.run(pipeline, "--close")  # its own rows stay

    assert found(platform, pipeline) == silences(in_time(files, WATERMARK_DELAY))
    assert audit.main(["--data"]).warnings == []
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty


@pytest.mark.parametrize("pipeline", ["last", pytest.param("last_in_delta", marks=pytest.mark.slow)])
def test_an_upsert_has_the_newest_row_of_each_key(
    new_platform: Callable[..., Platform], spark: object, pipeline: str
) -> None:
    """Of several in one batch, and over those of batches before; a new incarnation from the start has the same."""
    platform = new_platform("tests/support/stateful_shop.py")
    chance = random.Random(6)
    files = cut(chance, records(chance, 40), 2)
    for number, file in enumerate(files):
        platform.put(pipeline, f"{number}.jsonl", file)
        platform.run(pipeline)

    def check() -> None:
        rows = (
            platform.table(f"{pipeline}/silences")
            if pipeline == "last_in_delta"
            else platform.sql("SELECT * FROM results.last")
        )
        meant = {
            shop: (at, records)
            for shop, what, at, _, records in sorted(silences(in_time(files, WATERMARK_DELAY)), key=lambda row: row[2])
            if what == "silent"
        }
        assert plain(rows[["shop", "at", "records"]]) == Counter((shop, *rest) for shop, rest in meant.items())

    platform.run(pipeline, "--close")
    check()
    reset.new(f"{pipeline}/silences", yes=True)
    platform.run(pipeline)
    check()


def test_a_bounded_run_gives_what_the_processor_gives_of_all_records_and_fires_all_its_timers(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """Nothing is late."""
    platform = new_platform("tests/support/stateful_shop.py")
    chance = random.Random(5)
    them = records(chance, 40)
    for number, file in enumerate(cut(chance, them, 2)):
        platform.put("shop", f"{number}.jsonl", file)
    platform.run("shop", "--bounded")

    assert found(platform, "shop", "@1") == silences(them)


def test_the_state_store_in_memory_is_refused_by_name(
    new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is read."""
    platform = new_platform("tests/support/stateful_shop.py")
    platform.give(monkeypatch, ONLYONCE_STATE="memory")
    platform.put("shop", "0.jsonl", records(random.Random(1), 3))
    with pytest.raises(Refused, match="in RocksDB only"):
        platform.run("shop")
