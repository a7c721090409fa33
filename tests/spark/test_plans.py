"""The plans that Spark has executed, read from its own store after real runs: exchanges, passes over the data, Python.

A plan is the tree of operators of one execution; where Spark adapted it, the final one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import shop_oracle
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

EXCHANGE = {"Exchange", "BroadcastExchange", "ShuffleExchange"}
PYTHON = {"ArrowEvalPython", "BatchEvalPython", "MapInArrow", "MapInPandas", "PythonMapInArrow"}
RECORDS = 400


@dataclass(frozen=True)
class Plan:
    """One execution of a streaming query: its operators, the root first, and Spark's figures by (operator, figure)."""

    operators: list[str]
    figures: dict[tuple[str, str], list[int]]

    def has(self, *names: str) -> list[int]:
        """Where operators of these names stand."""
        return [at for at, name in enumerate(self.operators) if name in names]


class Plans:
    """What a Spark session has executed since a moment."""

    def __init__(self, spark: Any) -> None:
        self._store = spark._jsparkSession.sharedState().statusStore()
        self._before = max((e.executionId() for e in self._all()), default=-1)

    def of(self, lineage: str, operator: str) -> list[Plan]:
        """The executions of a query's batches in which an operator stands; what Delta does for itself is left out."""
        mine = [e for e in self._all() if e.executionId() > self._before and e.description().startswith(lineage + "\n")]
        plans = [Plan(operators(e.physicalPlanDescription()), self._figures(e.executionId())) for e in mine]
        return [plan for plan in plans if plan.has(operator)]

    def _all(self) -> list[Any]:
        found = self._store.executionsList()
        return [found.apply(at) for at in range(found.size())]

    def _figures(self, execution: int) -> dict[tuple[str, str], list[int]]:
        values = self._store.executionMetrics(execution)
        nodes = self._store.planGraph(execution).allNodes()
        figures: dict[tuple[str, str], list[int]] = {}
        for node in (nodes.apply(at) for at in range(nodes.size())):
            metrics = node.metrics()
            for metric in (metrics.apply(at) for at in range(metrics.size())):
                value = values.get(metric.accumulatorId())
                if value.isDefined() and re.fullmatch(r"[\d,]+", value.get()):
                    figures.setdefault((node.name().split()[0], metric.name()), []).append(
                        int(value.get().replace(",", ""))
                    )
        return figures


def operators(description: str) -> list[str]:
    """The names in the tree of a formatted plan."""
    tree = description.split("== Physical Plan ==\n")[1].split("\n\n")[0]
    final = tree.split("+- == Initial Plan ==")[0]
    named = [re.match(r"[\s:+\-*]*(Scan \w+|\w+)", line) for line in final.splitlines()]
    return [name[1] for name in named if name and name[1] not in ("AdaptiveSparkPlan", "ResultQueryStage")]


def run(platform: Platform) -> None:
    """Two files, of which the second closes windows of the first."""
    for number, records in enumerate(shop_oracle.sales(RECORDS, 2)):
        platform.put("shop", f"sales-{number}.jsonl", records)
    platform.run("shop")


def test_exactly_once_takes_one_exchange_and_one_pass(new_platform: Callable[..., Platform], spark: Any) -> None:
    """Each batch of receive reads its lines once and exchanges them once; each windowed output sums up below its only
    exchange, so that fewer rows cross it than were read."""
    platform, plans = new_platform("tests/support/lean_shop.py"), Plans(spark)
    run(platform)

    received = plans.of("shop/receive/1", "Scan text")
    assert len(received) == 2
    for plan in received:
        assert len(plan.has("Scan text")) == 1, plan.operators
        assert len(plan.has(*EXCHANGE)) == 1, plan.operators
        assert len(plan.has(*PYTHON)) == 1, plan.operators
        assert plan.has(*PYTHON)[0] < plan.has(*EXCHANGE)[0] < plan.has("Scan text")[0]
    for output, above, below in (
        ("fixed", "StateStoreSave", "HashAggregate"), ("sliding", "StateStoreSave", "HashAggregate"),
        ("sessions", "SessionWindowStateStoreSave", "HashAggregate"),
    ):  # fmt: skip
        written = plans.of(f"shop/{output}/1", above)
        assert written
        for plan in written:
            assert len(plan.has(*EXCHANGE)) == 1, f"{output}: {plan.operators}"
            exchange = plan.has(*EXCHANGE)[0]
            assert plan.has(above)[0] < exchange < plan.has(below)[-1], f"{output}: {plan.operators}"
        if output == "sessions":
            continue  # only records of one instant are one session before their neighbours are known
        crossed = sum(sum(plan.figures.get(("Exchange", "shuffle records written"), [])) for plan in written)
        assert 0 < crossed < RECORDS, f"{output}: {crossed} rows cross the exchange"


def test_at_least_once_takes_no_exchange_and_no_python(new_platform: Callable[..., Platform], spark: Any) -> None:
    """Receive is Spark's expressions over one pass; its output is the same as ever."""
    platform, plans = new_platform("tests/support/lean_loose_shop.py"), Plans(spark)
    run(platform)

    received = plans.of("shop/receive/1", "Scan text")
    assert len(received) == 2
    for plan in received:
        assert len(plan.has("Scan text")) == 1, plan.operators
        assert plan.has(*EXCHANGE, *PYTHON) == [], plan.operators
    written = plans.of("shop/fixed/1", "StateStoreSave")
    assert written
    assert {len(plan.has(*EXCHANGE)) for plan in written} == {1}
