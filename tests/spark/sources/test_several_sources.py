"""Several sources in one pipeline: the stream equals the batch over what is in time, and what is in time follows the least source that is not idle."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Any, ClassVar

import pytest

from onlyonce.failpoints import FailPoint
from tests.support.platform import Platform, multiset
from tests.support.two_sources import IDLE, START, Model, Sale

pytestmark = pytest.mark.spark


class Clock(datetime):
    """The clock that the driver looks at."""

    shows: ClassVar[datetime]

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        """What is set."""
        return cls.shows


@pytest.fixture
def shop(new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform whose clock can be set."""
    from onlyonce.receive import idling, receive

    monkeypatch.setattr(receive, "datetime", Clock)
    monkeypatch.setattr(idling, "datetime", Clock)
    Clock.shows = START + timedelta(days=1)
    return new_platform("tests/support/two_sources.py")


def put(platform: Platform, step: int, files: dict[str, list[list[Sale]]]) -> None:
    """Each file into the inbox of its source."""
    for source, some in files.items():
        for number, sales in enumerate(some):
            platform.put(f"shop/{source}", f"{step}-{number}.txt", [sale.line for sale in sales])


def check(platform: Platform, model: Model) -> None:
    """What the outputs have once all windows are closed is the batch over what the model says is in time; the rest is late, and all of it is kept."""
    kept = model.in_time + model.late
    assert multiset(platform.sql("SELECT id, place, cents FROM results.each")) == Counter(sale.row for sale in kept)
    written = multiset(platform.table("shop/per_minute"), "window_start", "place", "cents", "sales")
    assert written == model.windows(model.in_time)
    late = platform.sql("SELECT coalesce(sum(late), 0)::bigint AS late FROM onlyonce.batches WHERE query = 'per_minute'")
    assert late["late"][0] == len(model.late)
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty


def test_a_source_that_is_ahead_makes_nothing_of_the_other_late(shop: Platform) -> None:
    """The web is an hour ahead of the till; what the till sends then is in time all the same, and the windows close when it has come as far."""
    model, ids = Model(["web", "till"]), itertools.count()
    steps = [
        {"web": [[Sale("web", f"w{next(ids)}", second, 1) for second in (0, 3600)]], "till": [[Sale("till", "t0", 10, 2)]]},
        {"till": [[Sale("till", f"t{next(ids)}", second, 3) for second in (20, 70)]]},
        {"till": [[Sale("till", "t1", 15, 4), Sale("till", "t2", 130, 5)]]},
    ]
    for number, files in enumerate(steps):
        put(shop, number, files)
        shop.run("shop")
        model.run(files, Clock.shows)
    assert len(model.late) == 1
    shop.run("shop", "--close")
    check(shop, model)


POINTS = [
    "receive-before-turns", "receive-registered", "receive-after-begin", "table-before-commit", "receive-after-delta", "receive-after-end",
    "close-after-begin", "close-after-delta", "output-after-begin", "output-after-end",
]  # fmt: skip


def killed(platform: Platform, monkeypatch: pytest.MonkeyPatch, point: str, nth: int) -> None:
    """Run until that pass of a fail-point, or to the end."""
    from onlyonce.outputs import outputs
    from onlyonce.receive import receive
    from onlyonce.sources import several
    from onlyonce.storage import own_tables

    passed: list[str] = []

    def passing(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(name) == nth:
            raise FailPoint(name)

    with monkeypatch.context() as armed, suppress(FailPoint):
        for module in (receive, several, own_tables, outputs):
            armed.setattr(module, "passing", passing)
        platform.run("shop")


@pytest.mark.parametrize(
    ("seed", "runs"), [(1, 4), *(pytest.param(seed, 5, marks=pytest.mark.slow) for seed in range(2, 8))]
)
def test_the_stream_is_the_batch_over_what_is_in_time_at_any_pace_and_kill(
    shop: Platform, monkeypatch: pytest.MonkeyPatch, seed: int, runs: int
) -> None:
    """Each source has a pace of its own, sends again what it has sent, uses ids that the other uses too, and pauses for longer than its idle time; runs are
    killed. What is in time, by the rule said once more, is in the windows, once; the rest is late."""
    random = Random(seed)
    shared = seed % 2 == 0
    monkeypatch.setenv("TEST_ID_SPACE", "shared" if shared else "by_source")
    model = Model(["web", "till"], shared)
    pace = {"web": random.randint(20, 200), "till": random.randint(20, 200)}
    sent: list[Sale] = []
    for step in range(runs):
        files: dict[str, list[list[Sale]]] = {}
        for source in random.choice([["web"], ["till"], ["web", "till"], ["web", "till"]]):
            middle = step * pace[source]
            new = [
                Sale(source, f"{random.randint(0, 30)}", max(0, middle + random.randint(-60, 60)), random.randint(1, 9))
                for _ in range(random.randint(2, 12))
            ]
            # One id has one content: which of two in a file is kept would be another matter.
            by_id = {(sale.source if not shared else "", sale.id): sale for sale in [*new, *sent]}
            mine = [by_id[(source if not shared else "", sale.id)] for sale in new]
            some = [sale for sale in dict.fromkeys(mine) if sale.source == source]
            sent += [sale for sale in some if sale not in sent]
            files[source] = [part for part in (some[::2], some[1::2]) if part]
        put(shop, step, files)
        if random.random() < 0.7:
            killed(shop, monkeypatch, random.choice(POINTS), random.randint(1, 2))
        shop.run("shop")
        model.run(files, Clock.shows)
        Clock.shows += random.choice([timedelta(minutes=1), IDLE / 2, 2 * IDLE])
    shop.run("shop", "--close")
    check(shop, model)
