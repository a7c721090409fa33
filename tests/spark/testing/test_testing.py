"""`onlyonce.testing`: a pipeline's rows in and its results out, as the product would have them; and what a function may
not do."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce import AfterRecords, Delta, FileSink, Output, Pipeline, Postgres, Refused
from onlyonce.testing import NotTheSame, backfill, ended, holds, rows_at, run, silent, then
from tests.spark.outputs.test_transcripts import at, bounds, expected_of, micros_of
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY
from tests.transcripts import pipelines, story
from tests.transcripts.differences import differences
from tests.transcripts.story import FOLDER, Outcome, Step, Story

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
FUNCTIONS = "tests.support.order_dependent"
QUICK = ("sessions_merge", "silence", "early_panes")
"""Of `make test`; the others are told by `make test-faults`."""
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def sale(number: int, seconds: float, shop: str = "north", cents: int = 100) -> dict[str, Any]:
    """A row as a user gives it, with a time for a time."""
    at = NOON + timedelta(seconds=seconds)
    return {"id": str(number), "shop": shop, "at": at, "cents": cents, "weight": 0.1 * number}


SALES = [sale(n, 17 * n, ("north", "south")[n % 2], cents=n * n % 11) for n in range(10)]


def of(function: str, **options: Any) -> Pipeline:
    """The shop with one output."""
    plain: dict[str, Any] = {"name": "out", "transform": f"{FUNCTIONS}:{function}", "window": MINUTE, "sink": Delta()}
    return replace(SHOP, outputs=(Output(**plain | options),))


def test_each_row_is_where_the_table_would_have_it() -> None:
    """Windows by their close, an output made from another, an increment; a re-delivery and a bad line count as what
    they are."""
    first: list[Any] = [sale(1, 10), sale(1, 10), sale(2, 50, "south"), '{"id": 3']
    result = run(SHOP, first, then([sale(4, 300, cents=7)]), close=True)

    window = {"window_start": NOON, "window_end": NOON + timedelta(minutes=1)}
    assert [row for row in result.output("per_shop") if row["window_start"] == NOON] == [
        {**window, "shop": "north", "sales": 1, "cents": 100, "weight": pytest.approx(0.1)},
        {**window, "shop": "south", "sales": 1, "cents": 100, "weight": pytest.approx(0.2)},
    ]
    assert result.output("total")[0] == {**window, "sales": 2, "cents": 200}
    assert {row["shop"]: row["cents"] for row in result.output("balance")} == {"north": 107, "south": 100}
    assert (result.kept, result.duplicates, len(result.invalid)) == (3, 1, 1)
    assert [pane.batch for pane in result.panes("per_shop")] == [1, 2]
    with pytest.raises(Refused, match="no output 'per_shp'"):
        result.output("per_shp")


def test_nothing_is_written_of_a_window_that_is_open() -> None:
    """Without a close the last window waits, as in a stream."""
    result = run(SHOP, [sale(1, 10)])

    assert result.output("per_shop") == []
    assert result.kept == 1


def test_a_late_row_waits_for_a_backfill_which_makes_the_next_generation() -> None:
    """The table has the row from then on; what is added up is corrected where that is declared."""
    pipeline = replace(SHOP, outputs=(
        SHOP.output("per_shop"),
        replace(SHOP.output("balance"), sink=Postgres(table="results.b", write="increment", keys=("shop",)), on_backfill="correct"),
        replace(SHOP.output("per_shop"), name="folded", sink=Delta(path="folded"), late="backfill"),
        replace(SHOP.output("per_shop"), name="rare", sink=Delta(path="rare"), late=AfterRecords(2)),
    ))  # fmt: skip
    late = run(pipeline, [sale(1, 10)], [sale(2, 300)], [sale(3, 20)])
    folded = run(pipeline, [sale(1, 10)], [sale(2, 300)], [sale(3, 20)], backfill("per_shop"), backfill("balance"))

    assert [row["id"] for row in late.late("per_shop")] == ["3"]
    assert [row["sales"] for row in late.output("per_shop")] == [1]
    assert [row["cents"] for row in late.output("balance")] == [100]
    assert [row["sales"] for row in late.output("folded")] == [2]
    assert [row["sales"] for row in late.output("rare")] == [1]
    assert [
        row["sales"] for row in run(pipeline, [sale(1, 10)], [sale(2, 300)], [sale(3, 20), sale(4, 21)]).output("rare")
    ] == [3]
    assert [pane.generation for pane in late.panes("folded")] == [0, 1]
    assert [row["sales"] for row in folded.output("per_shop")] == [2]
    assert [row["cents"] for row in folded.output("balance")] == [200]
    assert [pane.generation for pane in folded.panes("per_shop")] == [0, 1]


def test_the_clock_says_what_is_too_far_ahead() -> None:
    """A batch has the ingestion time that it is given."""
    told = run(SHOP, rows_at(NOON, [sale(1, 0), sale(2, 2 * 86_400)]), close=True)

    assert (told.kept, len(told.invalid)) == (1, 1)
    assert "ahead of the ingestion time" in told.invalid[0]["reason"]


def test_an_early_pane_takes_the_place_of_the_one_before() -> None:
    """An upsert has the state of each window at every batch; files of records wait for the close."""
    early = of("opening", panes="early", sink=Delta(write="upsert", keys=("window_start", "shop")))
    result = run(early, [sale(1, 30, cents=5)], [sale(2, 10, cents=3)])
    files = of("by_batch", sink=FileSink())

    assert [row["opening"] for row in result.output("out")] == [3]
    assert [(pane.batch, pane.final) for pane in result.panes("out")] == [(0, False), (1, False)]
    assert len(run(files, [sale(1, 30)], [sale(2, 40)]).output("out")) == 0
    assert len(run(files, [sale(1, 30)], [sale(2, 40)], close=True).output("out")) == 2


@pytest.mark.parametrize(
    "function, said",
    [
        ("misspelled", "cent"),
        ("ranked", "can't run tests.support.order_dependent:ranked as a stream"),
        ("gone", "does not exist"),
    ],
)
def test_what_a_run_would_refuse_is_refused(function: str, said: str) -> None:
    """A column that is missing, what no stream can do, a function that is not there: by the first row, not in
    production."""
    with pytest.raises(Refused, match=said):
        run(of(function), [sale(1, 0)])


@pytest.mark.parametrize("told", [
    pytest.param(told, id=told.name, marks=[] if told.name in QUICK else pytest.mark.slow)
    for told in story.all_in(FOLDER) if not told.bounded
])  # fmt: skip
def test_the_transcripts_are_told_the_same(told: Story) -> None:
    """All that each output has written at the end, and all that was late: the semantics are the product's."""
    result = run(pipelines.pipeline(told), *map(step_of, told.steps, range(len(told.steps))))

    for declared in told.outputs:
        expected = expected_of(declared, list(told.steps))
        rows = Counter((row["key"], bounds(row), row["records"]) for row in result.output(declared.name))
        late = Counter((row["key"], micros_of(row["at"]), bounds(row)) for row in result.late(declared.name))
        # of a result `late` tells what was late for its function; a transcript tells it once, of the function's output
        if declared.result_of:
            assert result.late(declared.name) == result.late(declared.result_of)
            late = Counter()
        rejected = Counter((row["key"], micros_of(row["at"]), bounds(row)) for row in result.rejected(declared.name))
        assert differences(declared.name, expected, Outcome(rows, late, expected.closed, rejected)) == []
    assert len(result.invalid) == sum(step.invalid.total() for step in told.steps)


def step_of(step: Step, number: int) -> Any:
    """A step of a transcript as a test would give it."""
    if step.kind != "batch":
        return ended() if step.kind == "ended" else silent(at(step.clock))
    records = enumerate(step.records)
    return then([{"number": number * 100 + n, "key": r.key, "at": at(r.time)} for n, r in records], at(step.clock))


@pytest.mark.parametrize("function", ["listed", "drawn", "firsts", "by_batch"])
def test_a_function_that_does_not_hold_is_found_out(function: str) -> None:
    """The order of a list, a draw, the first that comes, numbers of a batch: told with the window, the rows and the
    cut."""
    with pytest.raises(NotTheSame) as told:
        holds(of(function, watermark_delay=WATERMARK_DELAY), SALES, examples=3)

    said = str(told.value)
    assert "output out, window 2026-03-01 12:0" in said
    assert "in one batch:" in said
    assert "cut otherwise:" in said
    assert "1 batch(es) of the rows" in said or function != "listed"
    assert ("not deterministic" if function == "drawn" else "depends on the order") in said


@pytest.mark.parametrize("function", ["sorted_list", "opening"])
def test_a_function_that_holds_passes(function: str) -> None:
    """Lists in an order of their own, the earliest by its time, and means, whose last digits may differ."""
    holds(of(function, watermark_delay=WATERMARK_DELAY), SALES, examples=3)


def test_holds_without_hypothesis_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In three lines."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(Refused, match="Hypothesis, which is not installed") as told:
        holds(SHOP, SALES)
    assert "onlyonce-pipelines[testing]" in told.value.hint
