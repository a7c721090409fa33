"""The thread that watches the executors of a context."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark import SparkContext

from onlyonce.engine import session


class Stopping:
    """A context that the driver stops right after its JVM's side was read."""

    master = "yarn"

    def __init__(self) -> None:
        self.java = MagicMock()
        self.java.sc().schedulerBackend().getExecutorIds().size.return_value = 2
        self.java.sc().statusTracker().getActiveJobIds.return_value = [1]
        self._there = [self.java]

    @property
    def _jsc(self) -> Any:
        return self._there.pop() if self._there else None


def test_the_watch_ends_with_a_context_that_stops_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """And with no error: the driver has stopped it."""
    context: Any = Stopping()
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    monkeypatch.setattr("time.sleep", lambda _: None)

    session._watch(context, 60)

    assert context._jsc is None
