"""Several results of one function: `def f(rows): return {"good": …, "odd": …}`.

They are one frame until they are written.

An output without a transform is a result of the function of the output that it is `from_output`. The results go
together as one frame, so that one query, one batch and one reading of the function's rows make them all. Each row says
whose it is (`oo_result`); its columns have the result's name before theirs (`odd:cents`), but for the window, which all
have. No struct: staged rows take a new column as other tables do.

Who calls it: `results`. Errors: Refused for a result without an output, an output without a result, and results that
can't be one stream.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import OO_WINDOW
from onlyonce.session.names import quoted

RESULT, WINDOW = "oo_result", OO_WINDOW
NOTHING = "nothing was written"


def names(pipeline: Pipeline, root: Output) -> list[str]:
    """The outputs whose rows the function of `root` gives; one where it gives a DataFrame.

    In an order that does not depend on that of the declaration: Spark finds the state of a result by its place in the
    plan."""
    return sorted([root.name, *(made.name for made in pipeline.made_from(root) if made.is_result)])


def check(root: Output, wanted: list[str], given: dict[Any, Any], at: str) -> None:
    """Raise Refused unless the function has given exactly the results that have an output.

    `at` is the function's line, or empty.
    """
    for name in given:
        if name not in wanted:
            close = difflib.get_close_matches(str(name), wanted, n=1)
            raise Refused(
                f"{at}output {root.name}: {root.transform} gives a result {name!r}, and no output takes it",
                data=NOTHING,
                hint=(f"did you mean {close[0]!r}? " if close else "")
                + f"Declare Output(name={name!r}, from_output={root.name!r}, sink=…), without a transform; the "
                "output's own rows are the "
                f"result {root.name!r}",
            )
    if missing := [name for name in wanted if name not in given]:
        raise Refused(
            f"{at}output {missing[0]}: {root.transform} gives no result of this name; it gives "
            f"{', '.join(map(repr, given))}",
            data=NOTHING,
            hint="let the function return a DataFrame for each output, by its name",
        )


def united(root: Output, given: dict[str, DataFrame], at: str, stateless: Callable[[DataFrame], bool]) -> DataFrame:
    """All results as one frame. Raises Refused for a stream of which some results keep a state and others do not."""
    if any(frame.isStreaming for frame in given.values()):
        kinds = {name: stateless(frame) for name, frame in given.items()}
        if len(set(kinds.values())) > 1:
            first, other = (next(name for name, kind in kinds.items() if kind is wanted) for wanted in (True, False))
            raise Refused(
                f"{at}output {root.name}: {root.transform} gives {first!r} record by record and {other!r} by "
                "aggregation: rows of the one come "
                "at once, those of the other when their window closes, so no batch has both",
                data=NOTHING,
                hint=f"give {first!r} an Output of its own with a transform, or aggregate it by {OO_WINDOW} as well",
            )
    shared = [WINDOW] if root.window else []
    tagged = [_tagged(name, given[name], shared) for name in sorted(given)]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), tagged)


def are_united(rows: DataFrame) -> bool:
    """Whether a frame has several results."""
    return RESULT in rows.columns


def of(name: str, rows: DataFrame) -> DataFrame:
    """The rows of one result, with its own columns."""
    mark = f"{name}:"  # no name of an output has a colon
    own = [F.col(quoted(column)).alias(column.removeprefix(mark)) for column in rows.columns if column.startswith(mark)]
    return rows.filter(F.col(RESULT) == name).select(*[column for column in rows.columns if column == WINDOW], *own)


def _tagged(name: str, frame: DataFrame, shared: list[str]) -> DataFrame:
    own = [F.col(quoted(column)).alias(f"{name}:{column}") for column in frame.columns if column not in shared]
    return frame.select(*shared, F.lit(name).alias(RESULT), *own)
