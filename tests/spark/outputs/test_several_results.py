"""Several results of one function: each has its sink and its books, all of one batch, equal to a batch over the same
rows at any cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce.api import load
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit
from onlyonce.outputs import function
from onlyonce.outputs import query as outputs_query
from onlyonce.run import reset
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def platform(new_platform: Callable[..., Platform], spark: object) -> Platform:
    """A platform with the pipeline of several results."""
    return new_platform("tests/support/sorted_shop.py")


def sales(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Records in order of time, some of them paid back."""
    times = sorted(START + timedelta(seconds=chance.randrange(600)) for _ in range(count))
    return [
        {
            "id": f"s{n}",
            "shop": chance.choice("ab"),
            "at": at.isoformat(),
            "cents": chance.randrange(-50, 100),
            "weight": 1.0,
        }
        for n, at in enumerate(times)
    ]


def cut(chance: random.Random, records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The records in files, some of which have records of earlier files again."""
    places = sorted(chance.sample(range(1, len(records)), 3))
    parts = [records[a:b] for a, b in zip([0, *places], [*places, len(records)], strict=True)]
    return [part + chance.sample(records[: places[0]], 2) for part in parts]


def found(platform: Platform) -> dict[str, Counter[Any]]:
    """What a reader of each sink sees."""
    return {
        "sales": multiset(platform.table("shop/sales"), "window_start", "shop", "cents"),
        "refunds": multiset(platform.sql("SELECT window_start, refunds, back FROM results.refunds")),
        "total": multiset(platform.sql("SELECT window_start, cents FROM results.total")),
        "paid": multiset(platform.sql("SELECT id, cents FROM results.paid")),
        "paid_back": multiset(platform.table("shop/paid_back"), "id", "shop"),
    }


def wanted(records: list[dict[str, Any]]) -> dict[str, Counter[Any]]:
    """The same by a plain batch computation over the distinct records."""
    sums: dict[str, Counter[Any]] = {name: Counter() for name in ("sales", "refunds", "back", "total")}
    for one in records:
        at = datetime.fromisoformat(one["at"])
        window = START + (at - START) // MINUTE * MINUTE
        if one["cents"] < 0:
            sums["refunds"][window] += 1
            sums["back"][window] += one["cents"]
        else:
            sums["sales"][window, one["shop"]] += one["cents"]
            sums["total"][window] += one["cents"]
    return {
        "sales": Counter((*key, cents) for key, cents in sums["sales"].items()),
        "refunds": Counter((window, count, sums["back"][window]) for window, count in sums["refunds"].items()),
        "total": Counter(sums["total"].items()),
        "paid": Counter((one["id"], one["cents"]) for one in records if one["cents"] >= 0),
        "paid_back": Counter((one["id"], one["shop"]) for one in records if one["cents"] < 0),
    }


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_each_result_is_that_of_a_batch_however_the_input_is_cut_and_where_a_run_ends(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A run that ends after one sink of a batch and before the next is finished by the next run, and new incarnations write
    nothing twice."""
    chance = random.Random(seed)
    records = sales(chance, 60)
    ends = chance.randrange(2, 6)
    passed = Counter[str]()

    def ended(name: str) -> None:
        passed[name] += 1
        if name == "output-consumed" and passed[name] == ends:  # one is passed before each sink
            raise FailPoint(name)

    parts = cut(chance, records)
    for number, part in enumerate(parts[:2]):
        platform.put("shop", f"{number}.jsonl", part)
    with monkeypatch.context() as armed:
        armed.setattr(outputs_query, "passing", ended)
        armed.setattr(outputs_query, "passing", ended)
        with pytest.raises(FailPoint):
            platform.run("shop")
    platform.put("shop", "2.jsonl", parts[2])
    platform.run("shop")
    for query in ("sales", "paid"):
        reset.new(f"shop/{query}", yes=True)
    platform.put("shop", "3.jsonl", parts[3])
    platform.run("shop", "--close")

    assert found(platform) == wanted(records)
    assert audit.main(["--data"]).warnings == []
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    units = platform.sql("SELECT DISTINCT query, sink FROM onlyonce.commits WHERE query NOT IN ('receive')")
    assert {tuple(row) for row in units.itertuples(index=False)} == {
        ("sales", "sales"), ("sales", "refunds"), ("sales", "total"), ("paid", "paid"), ("paid", "paid_back"),
    }  # fmt: skip


def test_a_backfill_makes_all_results_of_a_window_anew(platform: Platform) -> None:
    """With the late records, each in its sink."""
    records = sales(random.Random(4), 40)
    late = [one | {"id": f"late {one['id']}"} for one in records[:3]]
    platform.put("shop", "0.jsonl", records)
    platform.put("shop", "1.jsonl", late)
    platform.run("shop", "--close")

    platform.backfill("shop", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:10:00Z", "--output", "refunds")

    assert found(platform) == wanted(records + late)
    assert audit.main(["--data"]).warnings == []


ROWS: dict[str, Callable[[Any], Any]] = {
    "good": lambda rows: rows.select("oo_window", "id"),
    "summed": lambda rows: rows.groupBy("oo_window").count(),
    "chosen": lambda rows: rows.where("rand() < 0.5").select("oo_window", "id"),
    "without": lambda rows: rows.select("id"),
}
WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no dict": (ROWS["good"], "gave DataFrame, and not a dict of the results odd, sales"),
    "an unknown result": (
        lambda rows: {"sales": ROWS["good"](rows), "od": ROWS["good"](rows)}, "gives a result 'od', and no output takes it"),
    "a missing result": (lambda rows: {"sales": ROWS["good"](rows)}, "output odd: .* gives no result of this name"),
    "no frame": (lambda rows: {"sales": ROWS["good"](rows), "odd": 1}, "gave int, not a DataFrame"),
    "no window": (
        lambda rows: {"sales": ROWS["good"](rows), "odd": ROWS["without"](rows)}, "has no column oo_window; it has: id"),
    "a sum beside records": (
        lambda rows: {"sales": ROWS["summed"](rows), "odd": ROWS["good"](rows)}, "gives 'odd' record by record and 'sales' by aggregation"),
    "by chance": (
        lambda rows: {"sales": ROWS["good"](rows), "odd": ROWS["chosen"](rows)}, "the results of m:f are not deterministic"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_results_that_cannot_be_written_are_refused_before_anything_is_read(
    spark: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """By the check, with the output and what it gives."""
    from onlyonce import check

    given, told = WRONG[kind]
    pipeline = Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=[
            Output(name="sales", transform="m:f", window=Fixed(MINUTE), sink=Delta(), stable_input=True),
            Output(name="odd", from_output="sales", sink=Delta()),
        ],
    )  # fmt: skip
    monkeypatch.setattr(load, "transform", lambda _: given)

    with pytest.raises(Refused, match=told):
        check.function_shapes(spark, pipeline, pipeline.output("sales"))


def test_a_result_that_no_output_takes_is_refused(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only one output is declared."""
    from onlyonce import check

    pipeline = Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at",
        outputs=Output(name="sales", transform="m:f", sink=Delta()),
    )  # fmt: skip
    monkeypatch.setattr(
        load, "transform", lambda _: lambda rows: {"sales": rows.select("id"), "odd": rows.select("id")}
    )

    with pytest.raises(Refused, match="gives a result 'odd', and no output takes it") as refused:
        check.function_shapes(spark, pipeline, pipeline.output("sales"))
    assert "Output(name='odd', from_output='sales', sink=…)" in refused.value.hint


def _sessions(records: list[dict[str, Any]]) -> Counter[Any]:
    """(start, end, shop, records) of the sessions of some records."""
    found: Counter[Any] = Counter()
    for shop in {one["shop"] for one in records}:
        burst: list[datetime] = []
        for at in sorted(datetime.fromisoformat(one["at"]) for one in records if one["shop"] == shop):
            if burst and at > burst[-1] + GAP:
                found[burst[0], burst[-1] + GAP, shop, len(burst)] += 1
                burst = []
            burst.append(at)
        found[burst[0], burst[-1] + GAP, shop, len(burst)] += 1
    return found


GAP = timedelta(seconds=20)


@pytest.mark.slow
@pytest.mark.parametrize("bounded", [False, True], ids=["stream", "bounded"])
def test_results_of_sessions_of_records_that_are_staged_and_in_files_are_those_of_a_batch(
    new_platform: Callable[..., Platform], spark: object, bounded: bool
) -> None:
    """On the stream over a new incarnation of each, and in a bounded run."""
    platform = new_platform("tests/support/sorted_kinds.py")
    records = sales(random.Random(5), 60)
    parts = cut(random.Random(5), records)
    for number, part in enumerate(parts):
        platform.put("shop", f"{number}.jsonl", part)
        if not bounded and number == 1:
            platform.run("shop")
            for query in ("visits", "staged", "files"):
                reset.new(f"shop/{query}", yes=True)
    platform.run("shop", "--bounded" if bounded else "--close")

    at = "@1" if bounded else ""
    good, odd = ([one for one in records if (one["cents"] < 0) is wrong] for wrong in (False, True))
    session = ("window_start", "window_end", "shop", "records")
    assert multiset(platform.table(f"shop/visits{at}"), *session) == _sessions(good)
    assert multiset(platform.table(f"shop/odd_visits{at}"), *session) == _sessions(odd)
    assert multiset(platform.table(f"shop/staged{at}"), "id", "cents") == Counter(
        (one["id"], one["cents"]) for one in good
    )
    assert multiset(platform.table(f"shop/odd_staged{at}"), "id", "shop") == Counter(
        (one["id"], one["shop"]) for one in odd
    )
    rows = platform.sql(
        f"SELECT output, sum(rows)::int AS rows FROM onlyonce.output_files WHERE instance = 'shop{at}' GROUP BY 1"
    )
    assert multiset(rows) == Counter([("files", len(good)), ("odd_files", len(odd))])
    if not bounded:
        assert audit.main(["--data"]).warnings == []


def test_the_order_in_a_declaration_or_a_dict_does_not_move_a_state(spark: Any) -> None:
    """Spark finds a state by its place in the plan."""
    rows = spark.createDataFrame([], "oo_window struct<start: timestamp, end: timestamp>, id string")
    root = Output(name="sales", transform="m:f", window=Fixed(MINUTE), sink=Delta())
    given = {name: ROWS["summed"](rows) for name in ("sales", "odd", "late")}

    one, other = (
        function.united_results(root, {name: given[name] for name in order}, "", lambda _: False).columns
        for order in (("sales", "odd", "late"), ("late", "odd", "sales"))
    )
    assert one == other == ["oo_window", "oo_result", "late:count", "odd:count", "sales:count"]
