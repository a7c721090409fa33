"""Decide from Spark's plan whether the query of an output keeps no state.

An operator that is not in the lists, such as one of a later Spark, counts as one with state.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

STATELESS = {
    "Project",
    "Filter",
    "Union",
    "Expand",
    "Generate",
    "EventTimeWatermark",
    "SubqueryAlias",
    "StreamingRelation",
    "StreamingRelationV2",
    "StreamingExecutionRelation",
    "Join",
    "MapInPandas",
    "PythonMapInArrow",
    "MapInArrow",
    "FlatMapGroupsInPandas",
    "FlatMapGroupsInArrow",
    "MapElements",
    "MapPartitions",
    "SerializeFromObject",
    "DeserializeToObject",
    "TypedFilter",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "ResolvedHint",
    "UnresolvedHint",
    "Sample",
    "View",
    "WithCTE",
    "CTERelationDef",
    "CTERelationRef",
    "LateralJoin",
    "CollectMetrics",
}
"""Spark's logical operators that keep no state of a stream. A join counts only if exactly one side is a stream."""


ADDS_NO_ROWS = {
    "Project",
    "Filter",
    "Union",
    "EventTimeWatermark",
    "SubqueryAlias",
    "StreamingRelation",
    "StreamingRelationV2",
    "StreamingExecutionRelation",
    "LogicalRelation",
    "LogicalRDD",
    "ResolvedHint",
    "View",
}
"""Operators that return at most one row for a row. The sides of a union here are the control rows and the others."""


def adds_no_rows(result: DataFrame) -> bool:
    """Return whether Spark's plan shows that a function returns at most one row for each record.

    An unknown operator counts as one that may return more.
    """
    return _each_in(ADDS_NO_ROWS, result._jdf.queryExecution().analyzed())  # type: ignore[operator]


def _each_in(names: set[str], node: Any) -> bool:
    return node.nodeName() in names and all(
        _each_in(names, node.children().apply(n)) for n in range(node.children().size())
    )


def is_stateless(result: DataFrame) -> bool:
    """Return whether a stream writes each row in the batch that reads it.

    An unknown operator counts as one with state. Operators over tables that the stream is joined with don't count.
    """
    return _keeps_no_state(result._jdf.queryExecution().analyzed())  # type: ignore[operator]


def _keeps_no_state(node: Any) -> bool:
    if not node.isStreaming():
        return True
    below = [node.children().apply(n) for n in range(node.children().size())]
    if node.nodeName() not in STATELESS or (len(below) > 1 and not _one_streams(node, below)):
        return False
    return all(_keeps_no_state(child) for child in below)


def _one_streams(node: Any, below: list[Any]) -> bool:
    return node.nodeName() in ("Union", "WithCTE") or sum(child.isStreaming() for child in below) == 1
