"""Each query of Nexmark that can be declared gives what a plain computation over all events gives, with a kill in the
middle of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from onlyonce import Output, Postgres
from tests.nexmark import events as made
from tests.nexmark import oracle
from tests.nexmark.declarations import CLOSED, FEW, LAST_TEN, QUERIES
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, multiset

SEED, COUNT, FILES = 8, 600, 4
MANY = 2400
"""So many that auctions close while others are opened."""
SIDE = {key: f"value {key}" for key in range(8)}
RANKED = ("low", "middle", "high")
COLUMNS = {
    "q1": ("id", "auction", "bidder", "euros"),
    "q2": ("id", "auction", "price"),
    "q3": ("name", "city", "state", "auction"),
    "q4": ("category", "total", "auctions"),
    "q5": ("window_start", "auction", "bids"),
    "q6": ("seller", "auction", "total", "auctions"),
    "q7": ("window_start", "price", "id", "auction", "bidder"),
    "q8": ("person", "name", "auction"),
    "q9": ("auction", "category", "seller", "id", "bidder", "price"),
    "q11": ("bidder", "window_start", "window_end", "bids"),
    "q12": ("ten_seconds", "bidder", "bids"),
    "q13": ("id", "auction", "bidder", "price", "value"),
    "q16": (
        "channel", "window_start", "minute", "bids", "bidders", "auctions",
        *(f"{rank}_{what}" for rank in RANKED for what in ("bids", "bidders", "auctions")),
    ),
    "q18": ("bidder", "auction", "id", "price", "channel"),
    "q20": ("id", "auction", "bidder", "price", "item", "seller"),
}  # fmt: skip


def test_the_events_of_a_seed_are_the_same_and_of_each_kind() -> None:
    """One person and three auctions in fifty; each query of the plain computation finds something, or the test of it
    would say nothing."""
    events = list(made.Generator(SEED).events(COUNT))
    assert events == list(made.Generator(SEED).events(COUNT))
    assert [len(oracle.of(events, kind)) for kind in ("person", "auction", "bid")] == [12, 36, 552]
    assert {
        query: len(rows) > 2 for query, rows in wanted(events, lambda event: oracle.at(event)).items()
    } == dict.fromkeys(QUERIES, True)


def wanted(events: list[made.Event], came: Callable[[made.Event], Any]) -> dict[str, oracle.Rows]:
    """The result of each query by the plain computation."""
    more: dict[str, Any] = {"q12": came, "q13": SIDE}
    return {name: getattr(oracle, name)(events, *([more[name]] if name in more else [])) for name in QUERIES}


def found(platform: Platform, pipeline: str, output: Output) -> Counter[Any]:
    """What an output has written."""
    rows = (
        platform.sql(f"SELECT * FROM {output.sink.table}")
        if isinstance(output.sink, Postgres)
        else platform.table(f"{pipeline}/{output.name}")
    )
    return multiset(rows, *COLUMNS[output.name])


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("pipeline", "queries", "kill_at"),
    [("nexmark_few", FEW, 6), pytest.param("nexmark", tuple(QUERIES), 14, marks=pytest.mark.whole)],
    ids=["few", "all"],
)
def test_each_query_is_equal_to_a_plain_computation(
    new_platform: Callable[..., Platform],
    monkeypatch: pytest.MonkeyPatch,
    spark: object,
    pipeline: str,
    queries: tuple[str, ...],
    kill_at: int,
) -> None:
    """Files with re-deliveries and events out of order, in several batches; the run is killed when some queries have
    written, and one has not noted it."""
    platform = new_platform("tests/nexmark/declarations.py")
    platform.give(monkeypatch, ONLYONCE_OUTPUT_BATCH_COMMITS="1")
    make_side(platform)
    events = list(made.Generator(SEED).events(COUNT))
    cut = made.files(events, FILES)
    for number, file in enumerate(cut[:-1]):
        platform.put(pipeline, f"{number}.jsonl", list(file))
    assert ended_at(platform, monkeypatch, "output-before-end", kill_at, pipeline=pipeline)
    platform.put(pipeline, "last.jsonl", list(cut[-1]))
    platform.run(pipeline, "--close")

    first_seen = {
        row.id: row.oo_ingestion_time.to_pydatetime()
        for row in platform.events(pipeline).itertuples()
        if row.oo_kind == "kept"
    }
    expected = wanted(events, lambda event: first_seen[event["id"]])
    for output in (QUERIES[query][-1] for query in queries):
        assert found(platform, pipeline, output) == expected[output.name], output.name
    batches = platform.sql("SELECT count(*) AS n FROM onlyonce.batches WHERE query <> 'receive' GROUP BY query")["n"]
    assert len(batches) == len(queries)
    assert batches.min() >= FILES
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
    assert platform.sql("SELECT * FROM onlyonce.late").empty


@pytest.mark.spark
@pytest.mark.whole
@pytest.mark.timeout(900)
def test_the_last_ten_auctions_of_each_seller(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Query 6: a pipeline that reads the auctions which another one has closed, with a kill of it; some come long
    behind others that expire later."""
    platform = new_platform("tests/nexmark/declarations.py")
    events = list(made.Generator(SEED).events(MANY))
    for number, file in enumerate(made.files(events, 3)):
        platform.put(CLOSED, f"{number}.jsonl", list(file))
        platform.run(CLOSED, *(["--close"] if number == 2 else []))
        if number == 1:
            assert ended_at(platform, monkeypatch, "output-before-end", 1, pipeline=LAST_TEN.name)
        platform.run(LAST_TEN.name, *(["--close"] if number == 2 else []))

    wanted = oracle.q6(events)
    assert found(platform, LAST_TEN.name, LAST_TEN.outputs[0]) == wanted
    assert max(auctions for *_, auctions in wanted) == 10
    assert platform.sql("SELECT * FROM onlyonce.late").empty


def make_side(platform: Platform) -> None:
    """The table of query 13: two of ten keys are not in it."""
    rows = ", ".join(f"({key}, '{value}')" for key, value in SIDE.items())
    platform.sql(
        "CREATE SCHEMA nexmark; CREATE TABLE nexmark.side (key bigint, value text); INSERT INTO nexmark.side "
        f"VALUES {rows}"
    )
