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


@pytest.fixture(autouse=True)
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a batch is, Spark's tasks take it in."""
    monkeypatch.setenv("ONLYONCE_IN_DRIVER_BYTES", "0")


@dataclass(frozen=True)
class Plan:
    """One execution of a streaming query: its operators, the root first."""

    operators: list[str]

    def has(self, *names: str) -> list[int]:
        """Where operators of these names stand."""
        return [at for at, name in enumerate(self.operators) if name in names]


class Plans:
    """What a Spark session has executed since a moment."""

    def __init__(self, spark: Any) -> None:
        self._store = spark._jsparkSession.sharedState().statusStore()
        self._context, self._gateway = spark._jsparkSession.sparkContext(), spark._sc._gateway
        self._before = max((e.executionId() for e in self._all()), default=-1)
        self._stages_before = max((s.stageId() for s in self._stages()), default=-1)

    def of(self, incarnation: str, operator: str) -> list[Plan]:
        """The executions of a query's batches in which an operator stands; what Delta does for itself is left out."""
        mine = [
            e for e in self._all() if e.executionId() > self._before and e.description().startswith(incarnation + "\n")
        ]
        plans = [Plan(operators(e.physicalPlanDescription())) for e in mine]
        return [plan for plan in plans if plan.has(operator)]

    def crossed(self, incarnation: str) -> int:
        """The most rows that a stage of a query's batches has read from a table and given to an exchange."""
        return max(int(s.shuffleWriteRecords()) for s in self._of(incarnation) if s.inputRecords())

    def exchanged(self, incarnation: str) -> int:
        """How many rows all stages of a query's batches have given to exchanges."""
        return sum(int(s.shuffleWriteRecords()) for s in self._of(incarnation))

    def _of(self, incarnation: str) -> list[Any]:
        new = [s for s in self._stages() if s.stageId() > self._stages_before and s.description().isDefined()]
        return [s for s in new if s.description().get().startswith(incarnation + "\n")]

    def _stages(self) -> list[Any]:
        nothing = self._gateway.new_array(self._gateway.jvm.double, 0)
        found = self._context.statusStore().stageList(None, False, False, nothing, None)
        return [found.apply(at) for at in range(found.size())]

    def _all(self) -> list[Any]:
        found = self._store.executionsList()
        return [found.apply(at) for at in range(found.size())]


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


def received(plans: Plans, of_a_batch: int) -> list[Plan]:
    """The plans of both batches of receive: Python goes through records once in each."""
    found = plans.of("shop/receive/1", "MapInArrow")
    assert len(found) == 2 * of_a_batch
    for plan in found:
        assert len(plan.has(*PYTHON)) == 1, plan.operators
    return found


def test_exactly_once_takes_one_pass_and_one_exchange_at_most(
    new_platform: Callable[..., Platform], spark: Any
) -> None:
    """Each batch of receive reads its lines once, in Python, and judges and writes its records once; plain lines are
    not exchanged at all.

    Each windowed output sums up below its only exchange, so that fewer rows cross it than were read."""
    platform, plans = new_platform("tests/support/lean_shop.py"), Plans(spark)
    run(platform)

    for plan in received(plans, 2):
        assert plan.has(*EXCHANGE) == [], plan.operators
    # Of sessions only records of one instant are one before their neighbours are known. Sliding windows double the
    # rows.
    for output, above, most in (
        ("fixed", "StateStoreSave", RECORDS // 2), ("sliding", "StateStoreSave", RECORDS),
        ("sessions", "SessionWindowStateStoreSave", 2 * RECORDS),
    ):  # fmt: skip
        written = plans.of(f"shop/{output}/1", above)
        assert written
        for plan in written:
            assert len(plan.has(*EXCHANGE)) == 1, f"{output}: {plan.operators}"
            exchange = plan.has(*EXCHANGE)[0]
            assert plan.has(above)[0] < exchange < plan.has("HashAggregate")[-1], f"{output}: {plan.operators}"
        crossed = plans.crossed(f"shop/{output}/1")
        assert 0 < crossed < most, f"{output}: {crossed} rows cross the exchange"


@pytest.mark.whole
def test_only_lines_that_are_not_plain_are_exchanged(new_platform: Callable[..., Platform], spark: Any) -> None:
    """Once, with one row more for each partition, between the parser and the task that judges."""
    platform, plans = new_platform("tests/support/lean_shop.py"), Plans(spark)
    platform.put("shop", "sales.jsonl", [*shop_oracle.sales(RECORDS, 1)[0], '{"id":"odd"}', "odder", '{"odd'])
    platform.run("shop")

    read, judged = plans.of("shop/receive/1", "MapInArrow")
    assert read.has(*EXCHANGE) == []
    assert len(judged.has(*EXCHANGE)) == 1, judged.operators
    # The task that judges, the conversion table's reader of what the fast path left, the fast path.
    last, _, first = judged.has(*PYTHON)
    assert last < judged.has(*EXCHANGE)[0] < first, judged.operators
    [partitions] = platform.sql("SELECT partitions FROM onlyonce.batches WHERE query = 'receive'")["partitions"]
    assert plans.exchanged("shop/receive/1") == 3 + partitions
    assert platform.sql("SELECT sum(kept) AS n FROM onlyonce.batches")["n"][0] == RECORDS


def test_at_least_once_takes_no_exchange(new_platform: Callable[..., Platform], spark: Any) -> None:
    """Receive is one pass without one: the task that reads lines writes them. Its output is the same as ever."""
    platform, plans = new_platform("tests/support/lean_loose_shop.py"), Plans(spark)
    run(platform)

    for plan in received(plans, 1):
        assert plan.has(*EXCHANGE) == [], plan.operators
    written = plans.of("shop/fixed/1", "StateStoreSave")
    assert written
    assert {len(plan.has(*EXCHANGE)) for plan in written} == {1}
