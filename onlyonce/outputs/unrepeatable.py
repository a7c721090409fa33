"""Find in Spark's plan the expressions of a function whose value may differ at the next run (`core.unrepeatable`).

The analysed plan is walked from its leaves up. A value that may differ marks the column that it becomes, and each
column that is computed from it. If a marked column, or the expression itself, stands in a filter or a join, it decides
which rows there are. A chance value does so in each operator that is not a projection, such as a grouping.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from onlyonce.core.unrepeatable import FORGETS_ORDER, Found, Kind, listed

_NAMES = (
    "current_timestamp|now|current_date|localtimestamp|current_time|first|last|any_value|collect_list|collect_set"
    "|array_agg|listagg|string_agg|mode|min_by|max_by"
)
_SUSPECT = re.compile(rf"\b(?:{_NAMES})\(|more fields|subquery#")
"""Unrepeatable names that Spark does not flag, in an operator's expressions as a string. Spark cuts long lists."""
_CHOOSE_ROWS = ("Filter", "Join")
_SEED = re.compile(r"(?:, )?-?\d{12,}L?")
_COLUMN = re.compile(r"#\d+L?\b")
_ALIAS = re.compile(r" AS (\S+#\d+)L?")


def found_in(frame: DataFrame) -> list[Found]:
    """Return what may differ in a frame's plan; an empty list if nothing does."""
    return _Walk().over(frame._jdf.queryExecution().analyzed())  # type: ignore[operator]


def shared(frame: DataFrame) -> Found | None:
    """Return a chance value that two sides of a frame's union have in common; None if no two have.

    Spark computes each side by itself, so a record could be in both of them or in neither.
    """
    sides = [_Walk().over(side) for side in _sides(frame._jdf.queryExecution().analyzed())]  # type: ignore[operator]
    for at, side in enumerate(sides):
        others = {one.seeded for other in sides[at + 1 :] for one in other}
        for one in side:
            if one.listed.kind is Kind.CHANCE and one.seeded in others:
                return one
    return None


def clock_in_aggregate(frame: DataFrame) -> Found | None:
    """Return an aggregate of the clock, such as `max(current_timestamp())`; None if there is none.

    On a stream Spark replaces the clock by the batch's, which it does not take in an aggregate.
    """
    nodes = [frame._jdf.queryExecution().analyzed()]  # type: ignore[operator]
    while nodes:
        node = nodes.pop()
        nodes += _children(node)
        if node.nodeName() == "Aggregate":
            for one in _aggregates(_each(node.expressions())):
                if clock := next((found for found in _in_expression(one) if found.listed.kind is Kind.CLOCK), None):
                    return replace(clock, shown=_shown(one))
    return None


def _aggregates(expressions: list[Any]) -> Iterator[Any]:
    for one in expressions:
        if one.getClass().getSimpleName() == "AggregateExpression":
            yield one
        else:
            yield from _aggregates(_children(one))


def _sides(node: Any) -> list[Any]:
    name, below = node.nodeName(), _children(node)
    if name == "Union":
        return [side for child in below for side in _sides(child)]
    inner = _sides(below[0]) if name == "Project" and len(below) == 1 else []
    return inner if len(inner) > 1 else [node]


class _Walk:
    """One walk over a plan, with the marked columns that it has met."""

    def __init__(self) -> None:
        self._marked: dict[str, bool] = {}
        """By the number of a marked column: whether chance has marked it."""

    def over(self, node: Any) -> list[Found]:
        """Return what is unrepeatable in an operator and in all operators below it."""
        found = [one for child in _children(node) for one in self.over(child)]
        expressions = node.expressions()
        text = expressions.toString()
        projects, chooses = node.nodeName() == "Project", node.nodeName() in _CHOOSE_ROWS
        marks = self._marks_in(text)
        if not projects and (any(marks) or (chooses and marks)):
            found = [_deciding(one, chooses) for one in found]
        if _SUSPECT.search(text) or not all(one.deterministic() for one in _each(expressions)):
            for expression in _each(expressions):
                mine = list(_in_expression(expression))
                found += mine if projects else (_deciding(one, chooses) for one in mine)
                if mine:
                    self._mark(expression, any(one.listed.kind is Kind.CHANCE for one in mine))
            for below in _each(node.subqueries()):
                found += (_deciding(one, chooses) for one in _Walk().over(below))
        if own := _of_operator(node):
            found.append(own)
        if projects and marks:
            for expression in _each(expressions):
                if inherited := self._marks_in(expression.toString()):
                    self._mark(expression, any(inherited))
        return found

    def _marks_in(self, text: str) -> list[bool]:
        """Return, for each marked column of a text, whether chance has marked it."""
        return [self._marked[column] for column in _columns(text) if column in self._marked]

    def _mark(self, expression: Any, by_chance: bool) -> None:
        if alias := _ALIAS.search(expression.toString()):
            self._marked[alias[1].rsplit("#", 1)[1]] = by_chance


def _columns(text: str) -> Iterator[str]:
    return (one[1:].removesuffix("L") for one in _COLUMN.findall(text))


def _deciding(one: Found, chooses: bool) -> Found:
    return replace(one, decides=one.decides or chooses or one.listed.kind is Kind.CHANCE)


def _in_expression(expression: Any) -> Iterator[Found]:
    name = expression.getClass().getSimpleName()
    if name in FORGETS_ORDER:
        for child in _children(expression):
            yield from (one for one in _in_expression(child) if one.listed.kind is not Kind.ORDER)
        return
    if name == "WindowExpression" and _each(expression.windowSpec().orderSpec()):
        return  # its rows have an order
    if _is_barrier(name, expression) or _is_ordered(name, expression):
        return
    children = _children(expression)
    for child in children:
        yield from _in_expression(child)
    # Spark's flag is also set for each expression above one that has it.
    flagged = not expression.deterministic() and all(child.deterministic() for child in children)
    own = listed(name, deterministic=not flagged or "subquery#" in expression.toString())
    if own:
        yield Found(_shown(expression), expression.toString(), own)


def _of_operator(node: Any) -> Found | None:
    """Return what differs by an operator of the list: a sample, a limit without an order, a duplicate that is kept."""
    name = node.nodeName()
    ordered = name == "GlobalLimit" and "Sort" in (node.child().nodeName(), node.child().child().nodeName())
    whole = name.startswith("Deduplicate") and node.keys().size() >= node.child().output().size()
    own = None if ordered or whole else listed(name, deterministic=True)
    return Found(name.removeprefix("Global"), node.simpleString(25), own, decides=True) if own else None


def _shown(expression: Any) -> str:
    return _COLUMN.sub("", _SEED.sub("", expression.sql()))


def _is_barrier(name: str, expression: Any) -> bool:
    """Return whether an expression is `spark_partition_id() >= 0`: always true, and the platform's own (`windows`)."""
    return name == "GreaterThanOrEqual" and expression.toString() == "(SPARK_PARTITION_ID() >= 0)"


def _is_ordered(name: str, expression: Any) -> bool:
    """Return whether an aggregate that accepts an order has one."""
    if name == "ListAgg":
        return not expression.orderExpressions().isEmpty()
    return name == "Mode" and not expression.reverseOpt().isEmpty()


def _children(node: Any) -> list[Any]:
    return _each(node.children())


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]
