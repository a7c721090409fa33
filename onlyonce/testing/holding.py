"""`holds`: tests that a pipeline's stream gives the same result as its batch, for the same rows in any order and any
cut.

If it does not, the function is not deterministic, or it depends on the order of rows. Then the result in production
depends on when files arrived, and a backfill gives another one. Needs Hypothesis: onlyonce-pipelines[testing].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import OO_EVENT_TIME
from onlyonce.testing import tables
from onlyonce.testing.difference import difference, told
from onlyonce.testing.given import Given, then
from onlyonce.testing.playing import Play, shapes
from onlyonce.testing.running import ours, spark_session
from onlyonce.testing.tables import Table
from onlyonce.testing.taking_in import Receive, Taken

Rows = list[dict[str, Any]]
NOT_DETERMINISTIC = (
    "the function is not deterministic: the same rows in the same order gave two results. rand(), uuid(), "
    "current_timestamp() and the "
    f"like do that. Make it of the rows alone ({OO_EVENT_TIME} is a time), or declare stable_input=True to keep what "
    "the first attempt gave"
)
BY_ORDER = (
    "the function depends on the order of the rows, or on which batch they come in. first(), last(), "
    "collect_list() and monotonic ids do "
    f"that: take min_by(value, {OO_EVENT_TIME}), array_sort(collect_list(…)), or a key of the record"
)


class NotTheSame(AssertionError):
    """The stream is not its batch: which window of which output, and for which cut of the rows."""


@dataclass(frozen=True)
class Cut:
    """The rows by their numbers, batch by batch.

    `in_time`: no batch has a row that is older than one of an earlier batch, so windows close as they do in a stream;
    else in any order, and windows wait for the end."""

    batches: tuple[tuple[int, ...], ...]
    in_time: bool

    def __str__(self) -> str:
        shown = " | ".join(", ".join(map(str, batch)) for batch in self.batches)
        return f"{len(self.batches)} batch(es) of the rows, by their numbers: {shown[:400]}"


def holds(
    pipeline: Pipeline, rows: Sequence[Given], examples: int = 10, lookups: Mapping[str, Table] | None = None
) -> None:
    """Assert that the stream of these rows equals their batch in `examples` cuts and orders.

    None of them is late, and a re-delivery is left out before. An output with stable_input=True says itself that it is
    not deterministic, and is not looked at. Raises NotTheSame, Refused as `run` does, or where Hypothesis is missing.
    """
    tested, strategies = _hypothesis(examples)
    with ours():
        spark = spark_session()
        seen = tables.given(spark, pipeline, lookups or {})
        comes = shapes(spark, pipeline, seen)
        taken = Receive(spark, pipeline).take_in(then(rows))
        count = taken.kept.num_rows
        if not count:
            raise Refused(
                "none of these rows is kept, so there is nothing to hold", hint="see run(PIPELINE, rows).invalid"
            )
        by_time = pc.array_sort_indices(taken.kept.column(OO_EVENT_TIME).combine_chunks()).to_pylist()

        def played(cut: Cut) -> dict[str, Rows]:
            play = Play(spark, pipeline if cut.in_time else _patient(pipeline, taken), comes, seen)
            for batch in cut.batches:
                play.batch(replace(taken, kept=taken.kept.take(pa.array(batch, pa.int64()))))
            play.close()
            return {name: target.rows() for name, target in play.targets.items()}

        whole = Cut((tuple(range(count)),), in_time=False)
        one = played(whole)
        _compare(pipeline, one, played(whole), whole, NOT_DETERMINISTIC)

        def compare(cut: Cut) -> None:
            _compare(pipeline, one, played(cut), cut, BY_ORDER)

        compare(Cut((tuple(reversed(range(count))),), in_time=False))
        compare(Cut((*tuple((number,) for number in by_time[:EACH]), (*by_time[EACH:],)), in_time=True))
        tested(_cuts(strategies, by_time), compare)()


EACH = 8
"""So many rows have a batch of their own in the second cut."""


def _compare(pipeline: Pipeline, one: dict[str, Rows], other: dict[str, Rows], cut: Cut, why: str) -> None:
    for output in pipeline.outputs:
        if output.stable_input or pipeline.root_of(output).stable_input:
            continue
        found = difference(one[output.name], other[output.name])
        if found is not None:
            raise NotTheSame(told(output, found, str(cut), why))


def _patient(pipeline: Pipeline, taken: Taken) -> Pipeline:
    """The same with windows that wait for every row: rows in any order are in time."""
    times = taken.kept.column(OO_EVENT_TIME).cast(pa.int64()).to_numpy()
    span = timedelta(microseconds=int(np.ptp(times))) + timedelta(milliseconds=1)
    whole = span - span % timedelta(milliseconds=1) + timedelta(milliseconds=1)

    def wait(output: Output) -> Output:
        return (
            output if output.window is None or output.made_beside else replace(output, lateness=output.lateness + whole)
        )

    return replace(pipeline, outputs=tuple(map(wait, pipeline.outputs)))


def _cuts(strategies: Any, by_time: list[int]) -> Any:
    """Cuts in time, shuffled within each batch, and cuts of the rows in any order."""

    @strategies.composite
    def cut(draw: Callable[[Any], Any]) -> Cut:
        in_time = draw(strategies.booleans())
        order = by_time if in_time else draw(strategies.permutations(by_time))
        places = draw(strategies.lists(strategies.integers(1, max(1, len(order) - 1)), max_size=4, unique=True))
        edges = [0, *sorted(places), len(order)]
        parts = [order[start:stop] for start, stop in itertools.pairwise(edges) if start < stop]
        return Cut(tuple(tuple(draw(strategies.permutations(part))) for part in parts), in_time)

    return cut()


def _hypothesis(examples: int) -> tuple[Callable[..., Callable[[], None]], Any]:
    try:
        from hypothesis import HealthCheck, Phase, given, settings, strategies
    except ImportError as error:
        raise Refused(
            "holds() cuts the rows by Hypothesis, which is not installed",
            data="nothing was tested",
            hint="pip install 'onlyonce-pipelines[testing]'",
        ) from error
    # The same cuts in each run, so that a test that passes goes on to pass. Not made smaller: each try is some Spark
    # jobs.
    how = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )

    def tested(cuts: Any, compare: Callable[[Cut], None]) -> Callable[[], None]:
        found: Callable[[], None] = how(given(cuts)(compare))
        return found

    return tested, strategies
