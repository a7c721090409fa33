"""What a condition on a pipeline's columns asks of the lines of each of its sources.

A source of several has columns of its own. A column of the pipeline that is one of them under another name, or a
constant, is known from a line. One that is computed is not, so lines of that source are not searched; the receipt names
the source and the column. Who calls it: the search of input. No errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from onlyonce.declare import ddl
from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.model.operate.erasing import COMPARED, Condition
from onlyonce.model.operate.mentions import Mentions


class Asked(NamedTuple):
    """A source as if it were the pipeline's only one, and the condition on its own columns: None if none of its lines
    fits.

    `computed` names a column that no line shows.
    """

    source: Pipeline
    condition: Condition | None
    computed: str | None = None


def of(pipeline: Pipeline, condition: Condition) -> Iterator[Asked]:
    """Yield each source with its condition."""
    for source in inputs.each(pipeline):
        condition = replace(condition, aliases=source.aliases)
        if source.part is None or not source.part.columns:
            yield Asked(source, condition)
        else:
            yield _asked(source, {column: made.strip() for column, _, made in source.part.columns}, condition)


def mentions(pipeline: Pipeline, condition: Condition) -> Mentions:
    """Return the test of a condition, which knows the names that the sources have for its columns."""
    names = {name: {name} for name in condition.values}
    for source in inputs.each(pipeline):
        made = {column: made.strip().strip("`") for column, _, made in source.part.columns} if source.part else {}
        for name, known in names.items():
            own = made.get(name, name)
            known |= {own, source.aliases.get(own, own)}
    return Mentions(condition, {name: tuple(known) for name, known in names.items()})


def _asked(source: Pipeline, made: dict[str, str], condition: Condition) -> Asked:
    own = ddl.types(source.schema)
    values, kinds = {}, {}
    for name, value in condition.values.items():
        column = made[name].strip("`")
        if column in own and own[column] in COMPARED:
            values[column], kinds[column] = value, own[column]
        elif made[name].upper() == "NULL":
            return Asked(source, None)
        elif (constant := _constant(made[name])) is None:
            return Asked(source, None, name)
        elif constant != value:
            return Asked(source, None)
    return Asked(source, replace(condition, values=values, kinds=kinds))


def _constant(made: str) -> str | None:
    """Return the value of a string or whole number in Spark's SQL; None of any other expression."""
    if len(made) > 1 and made[0] == made[-1] == "'" and not set("'\\") & set(made[1:-1]):
        return made[1:-1]
    return made if made.lstrip("-").isdecimal() else None
