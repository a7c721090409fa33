"""Plans a job whose cut is fixed already without Spark's adaptive execution, which would make two jobs of it and a plan for each.

The frame is planned in a copy of its session, since other outputs may plan in that one at the same moment. What the session has cached is read as before.

Who calls it: the sinks whose units are tasks. Errors: none of its own. Not promised: how many partitions an exchange has that does not say it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame

ADAPTIVE = "spark.sql.adaptive.enabled"


def planned_once(frame: DataFrame) -> DataFrame:
    """The same frame, to be planned once and as a whole."""
    there: Any = frame._jdf
    jvm: Any = frame.sparkSession._jvm
    planner = _planner(there.sparkSession())
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(planner, there.logicalPlan()), frame.sparkSession)


@lru_cache(maxsize=64)
def _planner(session: Any) -> Any:
    """The copy of a session: made once, since each has a listener in Spark until the JVM collects it."""
    copy = session.cloneSession()
    copy.conf().set(ADAPTIVE, "false")
    return copy
