"""Records that an output's function rejects: no row of them, one fate each, and where to find them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import functions as F

import onlyonce
from onlyonce.api import load
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit, forget
from onlyonce.outputs import query as outputs_query
from onlyonce.run import reset
from tests.support.platform import Platform, multiset
from tests.support.rejecting_transforms import unsound

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GAP = timedelta(seconds=10)
SPAN = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T01:00:00Z")


@pytest.fixture
def platform(new_platform: Callable[..., Platform], spark: object) -> Platform:
    """A platform with the pipeline that rejects."""
    return new_platform("tests/support/rejecting_shop.py")


def sales(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Records in order of time, some of them unsound."""
    times = sorted(START + timedelta(seconds=chance.randrange(300)) for _ in range(count))
    return [
        {
            "id": f"s{n}",
            "shop": chance.choice(["a", "b", None]),
            "at": at.isoformat(),
            "cents": chance.randrange(-20, 60),
        }
        for n, at in enumerate(times)
    ]


def reason(one: dict[str, Any]) -> str | None:
    """What the function says of a record."""
    return f"paid back: {-one['cents']}" if one["cents"] < 0 else "no shop" if one["shop"] is None else None


def window(one: dict[str, Any]) -> datetime:
    """The minute of a record."""
    at = datetime.fromisoformat(one["at"])
    return START + (at - START) // MINUTE * MINUTE


def wanted(records: list[dict[str, Any]]) -> dict[str, Counter[Any]]:
    """The rows of each output by a plain batch computation over the distinct records."""
    sound = [one for one in records if reason(one) is None]
    cents: Counter[Any] = Counter()
    for one in sound:
        cents[window(one), one["shop"]] += one["cents"]
    visits: Counter[Any] = Counter()
    for shop in {one["shop"] for one in sound}:
        burst: list[datetime] = []
        for at in [*sorted(datetime.fromisoformat(one["at"]) for one in sound if one["shop"] == shop), None]:
            if burst and (at is None or at > burst[-1] + GAP):
                visits[burst[0], burst[-1] + GAP, shop, len(burst)] += 1
                burst = []
            if at is not None:
                burst.append(at)
    return {
        "per_shop": Counter((*key, total) for key, total in cents.items()),
        "visits": visits,
        "each": Counter((one["id"], one["cents"]) for one in sound if one["cents"] >= 10),
        "small": Counter((one["id"],) for one in sound if one["cents"] < 10),
    }


def found(platform: Platform) -> dict[str, Counter[Any]]:
    """The same as readers see it."""
    return {
        "per_shop": multiset(platform.table("shop/per_shop"), "window_start", "shop", "cents"),
        "visits": multiset(platform.table("shop/visits"), "window_start", "window_end", "shop", "records"),
        "each": multiset(platform.sql("SELECT id, cents FROM results.each")),
        "small": multiset(platform.table("shop/small"), "id"),
    }


def rejected(records: list[dict[str, Any]]) -> dict[str, Counter[Any]]:
    """(id, reason, start of the window) of what each output must reject of these."""
    unsound = [one for one in records if reason(one) is not None]
    return {
        "per_shop": Counter((one["id"], reason(one), window(one)) for one in unsound),
        "visits": Counter((one["id"], reason(one), datetime.fromisoformat(one["at"])) for one in unsound),
        "each": Counter((one["id"], reason(one), None) for one in unsound),
    }


def told() -> dict[str, Counter[Any]]:
    """The same by a notebook."""
    shop = onlyonce.open("shop")
    return {
        name: Counter(
            (row.id, row.reason, None if row.window_start is pd.NaT else row.window_start)
            for row in shop.rejected(name).itertuples()
        )
        for name in ("per_shop", "visits", "each")
    }


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_each_record_is_rejected_or_used_once_however_the_input_is_cut_and_where_a_run_ends(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Over kills and new incarnations the rows are those of a batch over the sound records, and the others are told once each,
    with the reason."""
    chance = random.Random(seed)
    records = sales(chance, 60)
    places = sorted(chance.sample(range(1, len(records)), 3))
    parts = [records[a:b] for a, b in zip([0, *places], [*places, len(records)], strict=True)]
    point, nth = chance.choice(["output-consumed", "output-before-end", "output-after-end"]), chance.randrange(1, 4)
    passed = Counter[str]()

    def ended(name: str) -> None:
        passed[name] += 1
        if name == point and passed[name] == nth:
            raise FailPoint(name)

    for number, part in enumerate(parts[:2]):
        platform.put("shop", f"{number}.jsonl", [*part, *records[:2]])
    with monkeypatch.context() as armed:
        armed.setattr(outputs_query, "passing", ended)
        armed.setattr(outputs_query, "passing", ended)
        with pytest.raises(FailPoint):
            platform.run("shop")
    platform.put("shop", "2.jsonl", parts[2])
    platform.run("shop")
    for query in ("per_shop", "visits", "each"):
        reset.new(f"shop/{query}", yes=True)
    platform.put("shop", "3.jsonl", parts[3])
    platform.run("shop", "--close")

    assert found(platform) == wanted(records)
    assert told() == rejected(records)
    counts = platform.sql(
        "SELECT query, sum(in_time)::int, sum(late)::int, sum(rejected)::int FROM onlyonce.conservation WHERE "
        "query <> 'receive' GROUP BY 1"
    )
    unsound = sum(reason(one) is not None for one in records)
    assert multiset(counts) == Counter(
        (query, len(records) - unsound, 0, unsound) for query in ("per_shop", "visits", "each")
    )
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert audit.main(["--data"]).warnings == []


def test_a_backfill_rejects_anew_with_late_records_and_an_erasure_forgets(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late record is late until a backfill takes it in, which asks the function as it is now."""
    records = sales(random.Random(4), 40)
    late = [one | {"id": f"late {one['id']}"} for one in records if reason(one)][:2]
    platform.put("shop", "0.jsonl", records)
    platform.run("shop", "--close")
    platform.put("shop", "1.jsonl", late)
    platform.run("shop", "--close")
    assert told()["per_shop"] == rejected(records)["per_shop"]
    traced = onlyonce.open("shop").windows(late[0]["id"])
    assert set(traced[traced["output"] == "per_shop"]["fate"]) == {"late"}

    for output in ("per_shop", "visits"):
        platform.backfill("shop", *SPAN, "--output", output)
    assert found(platform) == wanted([*records, *late])
    assert told() == rejected([*records, *late])
    traced = onlyonce.open("shop").windows(late[0]["id"])
    assert {(row.fate, row.state) for row in traced.itertuples()} == {("rejected", f"rejected: {reason(late[0])}")}
    assert audit.main(["--data"]).warnings == []

    gone = late[0]["id"]
    for number in (2, 3):  # a stream that has read on reads no record of before again
        more = {"id": f"m{number}", "shop": "a", "at": (START + number * 10 * MINUTE).isoformat(), "cents": 1}
        platform.put("shop", f"{number}.jsonl", [more])
        platform.run("shop", "--close")
    platform.end_sessions()
    forget.main(["shop", "--where", f"id = '{gone}'", "--yes"])
    left = rejected([one for one in [*records, *late] if one["id"] != gone])
    assert told() == left

    monkeypatch.setattr(load, "reject", lambda _: lambda sales: F.upper(unsound(sales)))
    platform.backfill("shop", *SPAN, "--output", "per_shop")
    assert told() == left | {
        "per_shop": Counter({(id, why.upper(), start): n for (id, why, start), n in left["per_shop"].items()})
    }


NOW: dict[str, tuple[Callable[..., Any], str]] = {
    "no column": (lambda rows: rows, "gave DataFrame, not a Column"),
    "no text": (lambda rows: rows["at"], "gave a column of the type timestamp, and a reason is a text"),
    "an unknown column": (lambda rows: rows["name"], "asks for the column 'name'"),
    "its window": (lambda rows: rows["oo_window"].cast("string"), "asks for the column 'oo_window'"),
    "by chance": (lambda rows: _when(rows, "rand() < 0.5"), "m:unsound is not deterministic"),
    "by the clock": (lambda rows: _when(rows, "at < current_timestamp()"), "m:unsound is not deterministic"),
    "more than the rows": (lambda rows, prices: rows["id"], "m:unsound takes 'prices', which nothing is given to"),
}


def _when(rows: Any, condition: str) -> Any:
    return F.when(F.expr(condition), "no")


@pytest.mark.parametrize("kind", NOW)
def test_a_function_that_cannot_reject_is_refused_before_anything_is_read(
    spark: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """By the check, at its line."""
    from onlyonce import check

    given, said = NOW[kind]
    pipeline = Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="sales", transform="m:f", reject="m:unsound", window=Fixed(MINUTE), sink=Delta(), stable_input=True),
    )  # fmt: skip
    monkeypatch.setattr(load, "transform", lambda _: lambda rows: rows.select("oo_window", "id"))
    monkeypatch.setattr(load, "reject", lambda _: given)

    with pytest.raises(Refused, match=said):
        check.check_pipeline(pipeline, lambda: spark)
