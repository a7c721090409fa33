"""The queries as declarations: one output each, and one more where the result is made of closed windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from onlyonce import (
    Delta,
    DeltaSource,
    Files,
    Fixed,
    Join,
    Lookup,
    Output,
    Pipeline,
    Postgres,
    Session,
    Sliding,
    Stateful,
)
from tests.nexmark.events import LONGEST, SCHEMA
from tests.nexmark.processors import SCHEMA as LAST_TEN_SCHEMA

SECOND = timedelta(seconds=1)
WATERMARK_DELAY = 5 * SECOND
LONG = timedelta(days=1)
"""The bound of joins that have none in the benchmark: longer than a test's events, and much longer than an auction is
open."""
SIDE = Lookup(name="side", table=Postgres(table="nexmark.side"), keys="key")


def here(function: str) -> str:
    """A function of the queries."""
    return f"tests.nexmark.queries:{function}"


def output(name: str, size: Any = None, **more: Any) -> Output:
    """An output by the function of its name; with a window it waits for stragglers."""
    windowed = {"window": size, "watermark_delay": WATERMARK_DELAY} if size else {}
    plain: dict[str, Any] = {"transform": here(name), "sink": Delta()} | windowed
    return Output(name=name, **plain | more)


def join(name: str, left: str, right: str, on: Any, within: timedelta) -> Output:
    """An output that joins two sides."""
    sides = Join(left=here(f"{name}_{left}"), right=here(f"{name}_{right}"), on=on, within=within)
    return output(name, Fixed(timedelta(hours=1)), transform="", join=sides)


QUERIES: dict[str, tuple[Output, ...]] = {
    "q1": (output("q1"),),
    "q2": (output("q2"),),
    "q3": (join("q3", "people", "auctions", "seller", LONG),),
    "q4": (output("q4", Session(LONGEST), sink=Postgres(table="nexmark.q4", write="increment", keys="category")),),
    "q5": (output("q5_counts", Sliding(10 * SECOND, 2 * SECOND)), output("q5", from_output="q5_counts")),
    "q7": (output("q7_prices", Fixed(10 * SECOND)), output("q7", from_output="q7_prices")),
    "q8": (join("q8", "people", "sellers", ("person", "ten_seconds"), 10 * SECOND),),
    "q9": (output("q9", Session(LONGEST)),),
    "q11": (output("q11", Session(10 * SECOND)),),
    "q12": (output("q12", panes="early", sink=Delta(write="upsert", keys=("ten_seconds", "bidder"))),),
    "q13": (output("q13", lookups=SIDE),),
    "q16": (output("q16", Fixed(timedelta(days=1))),),
    "q18": (output("q18", Fixed(timedelta(hours=1)), sink=Delta(write="upsert", keys=("bidder", "auction"))),),
    "q20": (join("q20", "bids", "auctions", "auction", LONG),),
}


QUEUED = timedelta(minutes=2)
"""For how long behind its end an auction's session is open: it gets bids for as long as it is among the last forty, at
ten events a second."""
CLOSED = "nexmark_closed"
LAST_TEN = Pipeline(
    name="nexmark_q6",
    source=DeltaSource(path=f"{CLOSED}/q9"),
    schema="auction long, category long, seller long, expires timestamp, id string, bidder long, price long",
    record_id="auction",
    event_time="expires",
    max_ahead=timedelta(days=36500),
    outputs=Output(
        name="q6", watermark_delay=QUEUED, sink=Delta(),
        stateful=Stateful(processor="tests.nexmark.processors:LastTen", keys="seller", schema=LAST_TEN_SCHEMA, timers_within=timedelta(0)),
    ),
)  # fmt: skip
"""Query 6 is made of the rows of query 9, whose table it reads: an auction that has closed is a record."""


def pipeline(name: str, *queries: str, files_a_batch: int = 1) -> Pipeline:
    """A pipeline of some of the queries."""
    return Pipeline(
        name=name,
        source=Files(max_files_a_batch=files_a_batch),
        schema=SCHEMA,
        record_id="id",
        event_time="at",
        max_ahead=timedelta(days=36500),
        outputs=[one for query in queries for one in QUERIES[query]],
    )


FEW = ("q5", "q13", "q18")
"""Of each kind one: windows and what is made from them, a table, an upsert."""
PIPELINES = [pipeline("nexmark", *QUERIES), pipeline("nexmark_few", *FEW), pipeline(CLOSED, "q9"), LAST_TEN]
