"""Which forms of times a declaration may name for its columns (`formats`).

What they mean is in the conversion table.
"""

from __future__ import annotations

from collections.abc import Mapping

from onlyonce.declare import ddl
from onlyonce.declare.sources.kafka import Kafka
from onlyonce.declare.sources.ranges import Custom
from onlyonce.declare.sources.sources import IN_COLUMNS, Source
from onlyonce.declare.sources.tables import DeltaSource
from onlyonce.model.errors import Refused
from onlyonce.model.values import time_formats

TIMES = {"date": "date", "timestamp": "timestamp", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz"}


def check(whose: str, schema: str, formats: Mapping[str, str], source: Source) -> None:
    """Raise Refused for a form of a column that is no time, for a form that is none, and for a source whose columns
    have types of their own."""
    if formats and (isinstance(source, (Custom, DeltaSource)) or source.format in IN_COLUMNS):
        told = "a schema" if isinstance(source, Kafka) else "types"
        raise Refused(
            f"{whose}: formats with a source whose columns have {told} of their own",
            data="nothing was read or written",
            hint="declare the column as the type that it has, and make the time of it in your function or in "
            "Input(columns=…)",
        )
    kinds = dict(ddl.scalars(schema)) if formats else {}
    for column, form in formats.items():
        kind = TIMES.get(kinds.get(column, ""))
        if kind is None:
            there = [name for name, one in kinds.items() if one in TIMES]
            what = f"which is a {kinds[column]} and no time" if column in kinds else "which is not declared"
            raise Refused(
                f"{whose}: formats has {column!r}, {what}",
                data="nothing was read or written",
                hint="it may have: "
                f"{', '.join(there) or 'none of the columns, since no column is a date or timestamp'}; a "
                "field within a struct by its path, as order.paid",
            )
        if why := _wrong(kind, form):
            raise Refused(
                f"{whose}: formats: {form!r} can't be the form of {column}: {why}",
                data="nothing was read or written",
                hint=f"give one of {', '.join(time_formats.EPOCHS)}, or a pattern such as '%d/%m/%Y %H:%M' "
                "(docs/reference/values.md)",
            )


def _wrong(kind: str, form: str) -> str | None:
    if form in time_formats.EPOCHS:
        return (
            None
            if kind == "timestamp"
            else f"a count since 1970 is an instant, and the column is a {kind}; declare it as timestamp"
        )
    try:
        time_formats.reader(form)
    except time_formats.Wrong as why:
        return str(why)
    if kind == "date" and time_formats.has_clock(form):
        return "it has a time of day, and the column is a date; declare it as timestamp_ntz or timestamp"
    if kind == "timestamp_ntz" and time_formats.has_zone(form):
        return "it has a zone, and the column is a timestamp_ntz; declare it as timestamp"
    return None
