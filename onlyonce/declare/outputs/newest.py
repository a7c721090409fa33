"""Upserts that keep the newest row of each key by columns of the rows, and remove rows.

Pure data, checked when it is made.

Changes of a database come again and out of order. Each has a position in its source, so the newest of a key is known
whatever comes first. A row that is deleted leaves its key and position behind: an older change that comes later must
not bring it back.

Who calls it: `sinks`, `pipeline`, and whoever asks a sink for these options. Errors: Refused.
"""

from __future__ import annotations

from typing import Any

from onlyonce.model.errors import Refused

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
