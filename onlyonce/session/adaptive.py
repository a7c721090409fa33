"""Plans a job whose cut is fixed already without Spark's adaptive execution, which would make two jobs of it and a plan
for each.

The frame is planned in a copy of its session, since other outputs may plan in that one at the same moment. What the
session has cached is read as before.

Who calls it: the sinks whose units are tasks, and `outputs.in_driver`. Errors: none of its own. Not promised: how many
partitions an exchange has that does not say it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame

ADAPTIVE = "spark.sql.adaptive.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"


def planned_once(frame: DataFrame) -> DataFrame:
    """The same frame, to be planned once and as a whole."""
    return _planned(frame, _planner(frame._jdf.sparkSession()))


def of_local_rows(frame: DataFrame) -> DataFrame:
    """The same frame, planned once and with one partition behind each exchange, if it is made of rows that the driver
    has given to Spark and of nothing else: these are few.

    Any other frame as it is, since nobody knows how much it reads."""
    plan = frame._jdf.logicalPlan()
    leaves = plan.collectLeaves()
    if plan.subqueriesAll().nonEmpty() or any(
        leaves.apply(at).nodeName() != "LocalRelation" for at in range(leaves.size())
    ):
        return frame
    return _planned(frame, _planner(frame._jdf.sparkSession(), "1"))


def _planned(frame: DataFrame, planner: Any) -> DataFrame:
    jvm: Any = frame.sparkSession._jvm
    return DataFrame(
        jvm.org.apache.spark.sql.classic.Dataset.ofRows(planner, frame._jdf.logicalPlan()), frame.sparkSession
    )


@lru_cache(maxsize=64)
def _planner(session: Any, partitions: str | None = None) -> Any:
    """The copy of a session: made once, since each has a listener in Spark until the JVM collects it."""
    copy = session.cloneSession()
    copy.conf().set(ADAPTIVE, "false")
    if partitions:
        copy.conf().set(PARTITIONS, partitions)
    return copy
