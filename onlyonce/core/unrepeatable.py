"""List Spark's expressions whose value may differ if a batch is run again, and decide whether rows are staged. Pure.

Spark's own flag does not decide. It is not set for the clock and for aggregates that depend on the order of rows
(Spark 4.2), and a batch that is run again after a crash has other values of these too. A Python function counts as
deterministic unless it is declared by `asNondeterministic`, so nothing is known about it. The hash of a batch's rows
(`core.units.compare`) finds it at a replay.

To stage a batch costs one Delta commit of its rows before they are written, and one more reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from onlyonce.core.stored_names import OO_EVENT_TIME, OO_INGESTION_TIME


class Kind(StrEnum):
    """Why an expression has another value: it is drawn by chance, it reads the clock, or it takes rows in any order."""

    CHANCE = "chance"
    CLOCK = "clock"
    ORDER = "order"


@dataclass(frozen=True)
class Listed:
    """One expression of the list.

    reason   why its value may differ, as the end of a sentence that begins with the expression
    instead  what gives the same value at each run, and so costs no staging
    """

    kind: Kind
    reason: str
    instead: str


_DRAWN = Listed(Kind.CHANCE, "draws a new value at each run", "a hash of the record's id (xxhash64)")
_NUMBERED = Listed(Kind.CHANCE, "numbers rows by the task that has them", "a key of the record")
_PLACED = Listed(Kind.CHANCE, "names where a task has read a row", "a column of the record")
_UNKNOWN = Listed(Kind.CHANCE, "is not deterministic, as Spark or its author says", "a value of the record")
_CLOCK = Listed(
    Kind.CLOCK, "is the time of the run", f"the event time, or {OO_INGESTION_TIME}, the time at which a record came"
)
SMALLEST = f"min(struct({OO_EVENT_TIME}, value)).value"
"""The value of the first event, in SQL and in PySpark: the smallest one of several events at that time."""
_ANY = Listed(Kind.ORDER, "takes the row that comes first, in whatever order tasks end", SMALLEST)
_OF_TIED = Listed(Kind.ORDER, "takes any of the rows that are equally small or large", SMALLEST)
_FIRST = Listed(Kind.ORDER, "keeps the rows that come first, in whatever order tasks end", f"{SMALLEST} for each key")
_LIST = Listed(Kind.ORDER, "has the order in which tasks end", "array_sort(collect_list(…))")
_TIE = Listed(Kind.ORDER, "takes any of the values that are equally frequent", "mode(value, deterministic=True)")
_JOINED = Listed(
    Kind.ORDER, "joins values in the order in which tasks end", "array_join(array_sort(collect_list(…)), ',')"
)

LISTED = {
    "Rand": _DRAWN, "Randn": _DRAWN, "RandStr": _DRAWN, "Uniform": _DRAWN, "Uuid": _DRAWN, "Shuffle": _DRAWN,
    "MonotonicallyIncreasingID": _NUMBERED, "SparkPartitionID": _NUMBERED,
    "InputFileName": _PLACED, "InputFileBlockStart": _PLACED, "InputFileBlockLength": _PLACED,
    "CurrentTimestamp": _CLOCK, "Now": _CLOCK, "CurrentDate": _CLOCK, "LocalTimestamp": _CLOCK, "CurrentTime": _CLOCK,
    "First": _ANY, "Last": _ANY, "AnyValue": _ANY, "MinBy": _OF_TIED, "MaxBy": _OF_TIED,
    "CollectList": _LIST, "CollectSet": _LIST, "ListAgg": _JOINED, "Mode": _TIE,
    "Sample": _DRAWN, "GlobalLimit": _FIRST, "Deduplicate": _FIRST, "DeduplicateWithinWatermark": _FIRST,
}  # fmt: skip
"""Each expression by the name of its class in Spark, and each operator (the last line) by its own name."""
FORGETS_ORDER = {"SortArray", "ArraySort", "Size", "ArrayMin", "ArrayMax", "ArrayContains"}
"""Functions of an array whose value does not depend on its order. A list below one is not staged."""


@dataclass(frozen=True)
class Found:
    """An expression of a function's plan whose value may differ at the next run.

    shown     as Spark writes it, without a seed that Spark has chosen
    seeded    as Spark writes it, with the seed. Two expressions of one seed are one draw
    decides   whether it decides which rows there are, and not only their values
    """

    shown: str
    seeded: str
    listed: Listed
    decides: bool = False

    def __str__(self) -> str:
        return f"{self.shown} {self.listed.reason}"


def listed(name: str, *, deterministic: bool) -> Listed | None:
    """Return why an expression's value may differ; None if it does not.

    `deterministic`: what Spark says of it, for an expression that the list does not have.
    """
    return LISTED.get(name) or (None if deterministic else _UNKNOWN)


def of_kind(found: Iterable[Found], *kinds: Kind) -> Found | None:
    """Return the first expression of one of these kinds, or None."""
    return next((one for one in found if one.listed.kind in kinds), None)


def because(declared: bool | None, found: Iterable[Found], *, exactly_once: bool) -> str | None:
    """Return why an output's rows are staged before they are written; None if they are not.

    declared       the option `stable_input`: True stages, False does not, None: the function's plan decides
    found          what differs in its plan (`outputs.unrepeatable`)
    exactly_once   whether the batch begins so. At least once, rows may be written twice anyway
    """
    if declared is not None:
        return "stable_input=True is declared" if declared else None
    first = next(iter(found), None)
    return str(first) if first is not None and exactly_once else None


STAGED_TABLE = "staged before they are written"
"""The name of the table of a report that lists the staged outputs."""
COSTS = "each batch is written and read once more; run again it has the same values, a backfill may give others"
"""The cost and effect of staging, in the table of staged outputs."""


def expression_of(why: str) -> str:
    """Return the name of the expression that a reason (`because`) begins with; empty if the option is declared."""
    return "" if _instead(why) is None else why.partition("(")[0].partition(" ")[0]


def _instead(why: str) -> str | None:
    return next((one.instead for one in (*LISTED.values(), _UNKNOWN) if why.endswith(one.reason)), None)


def staged_rows(
    staged: Mapping[str, Mapping[str, str]], places: Mapping[tuple[str, str], str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the table of a report that lists the staged outputs; no table if none is.

    `staged`: pipeline -> output -> why it is staged. `places`: (pipeline, output) -> the line of the expression, or of
    the declaration.
    """
    rows: list[dict[str, Any]] = [
        {
            "pipeline": pipeline,
            "output": output,
            "at": places.get((pipeline, output)),
            "staged, because": why,
            "what that means": COSTS,
            "if it is not wanted": f"use {instead}" if (instead := _instead(why)) else "take stable_input=True out",
        }
        for pipeline, outputs in staged.items()
        for output, why in outputs.items()
    ]
    return {STAGED_TABLE: rows} if rows else {}


def declared_of(options: Iterable[bool | None]) -> bool | None:
    """Return the `stable_input` of several results of one function: their rows are staged together, or not at all."""
    given = set(options)
    return True if True in given else False if False in given else None
