"""Looks at what Spark tells of a query's state: notes how large it is, and detects rows that Spark itself has dropped
as late, which must never happen.

Spark counts such rows only afterwards, in the progress of a query, so the drop can be detected but not prevented.
The progress is checked before each next batch, and a lineage that has lost rows writes nothing more.

Who calls it: `outputs`, by `query`. Errors: InvariantBroken, at the first check that finds such rows.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.outputs.states import State, States
from onlyonce.database.connect import Database
from onlyonce.model.errors import InvariantBroken
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_WINDOW


class Dropped:
    """What was seen of a query's progress.

    Spark keeps the last of it only, so a query that stays up is looked at often.
    """

    def __init__(self, database: Database, lineage: str) -> None:
        self._database, self._lineage = database, lineage
        self._seen = ""

    def look(self, running: StreamingQuery) -> None:
        """Look at the progress that has come since the last look.

        Raises InvariantBroken, and marks the lineage as damaged.
        """
        new = self._new(running)
        self._note(new)
        dropped = sum(state.numRowsDroppedByWatermark() for one in new for state in one.stateOperators())
        if not dropped:
            return
        Lineages(self._database).set_state(self._lineage, "damaged")
        raise InvariantBroken(
            f"lineage {self._lineage}: Spark dropped {dropped} rows as late that the platform had judged in time",
            data="windows written by this run may lack rows; the lineage is marked damaged and won't run again",
            hint=f"does the transform change {OO_EVENT_TIME} or {OO_WINDOW}? Correct it, then: onlyonce lineage new "
            + self._lineage.rsplit("/", 1)[0],
        )

    def _note(self, new: list[Any]) -> None:
        for progress in reversed(new):
            told = [_state(number, one) for number, one in enumerate(progress.stateOperators())]
            if told:
                States(self._database).note(self._lineage, progress.batchId(), told)

    def _new(self, running: StreamingQuery) -> list[Any]:
        # As the JVM has it, and only what is new: Python's form of all that Spark keeps costs thousands of calls.
        found: list[Any] = []
        for progress in reversed(running._jsq.recentProgress()):
            if progress.timestamp() <= self._seen:
                break
            found.append(progress)
        if found:
            self._seen = found[0].timestamp()
        return found


def _state(number: int, told: Any) -> State:
    more = told.customMetrics()

    def metric(name: str) -> int | None:
        return int(more.get(name)) if more.containsKey(name) else None

    return State(
        number,
        told.operatorName(),
        told.numRowsUpdated(),
        told.numRowsRemoved(),
        metric("numRegisteredTimers"),
        metric("numDeletedTimers"),
        metric("rocksdbSstFileSize"),
        told.memoryUsedBytes(),
    )
