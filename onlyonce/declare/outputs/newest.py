"""Upserts that keep the newest row of each key by columns of the rows, and remove rows.

Pure data, checked when it is made.

Changes of a database come again and out of order. Each has a position in its source, so the newest of a key is known
whatever comes first. A row that is deleted leaves its key and position behind: an older change that comes later must
not bring it back.

Who calls it: `sinks`, `pipeline`, and whoever asks a sink for these options. Errors: Refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onlyonce.declare.declaration import declared_at
from onlyonce.model.batch import AT_LEAST_ONCE
from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import IS_CURRENT, VALID_FROM, VALID_TO

if TYPE_CHECKING:
    from onlyonce.declare.pipeline import Output, Pipeline

HISTORY = "history"
ORDERED = ("string", "bigint", "int", "smallint", "tinyint", "decimal", "date", "timestamp", "timestamp_ntz")
"""Types whose values have one order, in Spark and in each sink. Texts are compared by their bytes."""


def newest_by(sink: Any) -> tuple[str, ...]:
    """The columns by which a sink's rows are newer than others; none where what is written last stays."""
    found: tuple[str, ...] = getattr(sink, "newest_by", ())
    return found


def deletes(sink: Any) -> str | None:
    """The column that says which rows a sink removes; None where it removes none."""
    found: str | None = getattr(sink, "deletes", None)
    return found


def check_sink(kind: str, sink: Any) -> None:
    """Refuse options that can't work together."""
    if newest_by(sink) and sink.write not in ("upsert", HISTORY):
        raise Refused(
            f"{kind}: newest_by with write={sink.write!r}",
            hint="newest_by puts the rows of a key in order: write='upsert' or 'history'",
        )
    if sink.write == HISTORY and not newest_by(sink):
        raise Refused(
            f"{kind}: write='history' without newest_by",
            hint="newest_by=… names the columns that put the versions of a key in order",
        )
    if twice := [name for name in newest_by(sink) if name in sink.keys]:
        raise Refused(f"{kind}: {twice[0]!r} is a key and in newest_by", hint="rows of one key differ in newest_by")
    if deletes(sink) and not newest_by(sink):
        raise Refused(
            f"{kind}: deletes={deletes(sink)!r} without newest_by",
            data="an older change that comes later would bring a deleted row back",
            hint="newest_by=… names the columns that put the changes of a key in order",
        )
    if deletes(sink) in (*sink.keys, *newest_by(sink)):
        raise Refused(
            f"{kind}: {deletes(sink)!r} says which rows are deleted, and is a key or in newest_by",
            hint="give it a column of its own, a boolean",
        )


def check(pipeline: Pipeline) -> None:
    """Refuse outputs whose newest rows could not be told."""
    for output in pipeline.outputs:
        if not newest_by(output.sink):
            continue
        where = f"{declared_at(output)}output {output.name}"
        if pipeline.root_of(output).has_windows:
            raise Refused(
                f"{where}: newest_by and a window",
                data="a change that comes too late for its window would be left out, and the row of its key stay "
                "an old one",
                hint="leave the window out: without one nothing is late. Without newest_by the row of the later "
                "window stays",
            )
        if pipeline.mode == AT_LEAST_ONCE and (deletes(output.sink) or output.sink.write == HISTORY):
            raise Refused(
                f"{where}: {'a history' if output.sink.write == HISTORY else 'deletes'} in mode='at_least_once'",
                data="two attempts at a batch may write at once there: a deleted row could come back, a version "
                "end at the wrong time",
                hint="mode='exactly_once'",
            )


def check_rows(output: Output, types: dict[str, str]) -> None:
    """Refuse rows without the columns that are declared, with a key that can't be compared, or with a column that has
    no order.

    `types`: column → Spark's type.
    """
    sink = output.sink
    where = f"{declared_at(sink) or declared_at(output)}output {output.name}"
    for name in (*newest_by(sink), *filter(None, [deletes(sink)])):
        if name not in types:
            raise Refused(
                f"{where}: {name!r} is not a column of what {output.made_by} gives",
                data="nothing was read or written",
                hint=f"There is: {', '.join(types)}",
            )
    for name in getattr(sink, "keys", ()):
        if "map<" in types.get(name, ""):
            raise Refused(
                f"{where}: column {name} is {types[name]}, and is a key: Spark and the sinks compare no maps",
                data="nothing was read or written",
                hint="take the entries that make the key as columns of their own, or the map as a string: F.to_json",
            )
    for name in newest_by(sink):
        if types[name].partition("(")[0] not in ORDERED:
            raise Refused(
                f"{where}: newest_by={name!r} is of type {types[name]}, which has no order that all parts agree on",
                data="nothing was read or written",
                hint=f"one of: {', '.join(ORDERED)}",
            )
    if sink.write == HISTORY:
        _check_history(where, types)
    if (told := deletes(sink)) and types[told] != "boolean":
        raise Refused(
            f"{where}: deletes={told!r} is of type {types[told]}, and not a boolean",
            data="nothing was read or written",
            hint=f"{told} = (op = 'd'), for example",
        )


def _check_history(where: str, types: dict[str, str]) -> None:
    if types.get(VALID_FROM) != "timestamp":
        raise Refused(
            f"{where}: a history needs to know when each version begins, and {VALID_FROM!r} is no column of type "
            "timestamp",
            data="nothing was read or written",
            hint=f"F.col('changed_at').alias({VALID_FROM!r}), for example",
        )
    if taken := [name for name in (VALID_TO, IS_CURRENT) if name in types]:
        raise Refused(
            f"{where}: {taken[0]!r} is found by the platform, from the versions of a key",
            data="nothing was read or written",
            hint="give the column another name",
        )
