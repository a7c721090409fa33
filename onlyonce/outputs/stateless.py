"""Whether the query of an output keeps no state, told by Spark's plan of it.

Who calls it: `outputs`. Errors: none of its own. Not promised: that an operator of a later Spark is known; one that is
not counts as one with state.
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
"""The logical operators of Spark that keep no state of a stream: a join of one stream, with tables."""


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
"""Those that give a row for a row at most. The sides of a union here are the control rows and the others."""


def adds_no_rows(result: DataFrame) -> bool:
    """Whether a function gives a row for each record at most, told by Spark's plan.

    An operator that is not known counts as one that may give more.
    """
    return _each_in(ADDS_NO_ROWS, result._jdf.queryExecution().analyzed())  # type: ignore[operator]


def _each_in(names: set[str], node: Any) -> bool:
    return node.nodeName() in names and all(
        _each_in(names, node.children().apply(n)) for n in range(node.children().size())
    )


def is_stateless(result: DataFrame) -> bool:
    """Whether a stream writes each row in the batch that reads it.

    An operator that is not known counts as one with state; what tables beside the stream are made by does not count."""
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
