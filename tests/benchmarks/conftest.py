"""What the benchmarks share: the clock of all queries, and the log of the contract tests."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from onlyonce import environment
from tests.benchmarks import measure
from tests.contract.conftest import log, new_log

__all__ = ["log", "new_log"]


@pytest.fixture(scope="session", autouse=True)
def compiled() -> Iterator[None]:
    """Compile plans, as every driver does; the other tests' session does not."""
    with environment.within({"ONLYONCE_TEST_COMPILED": "1"}):
        yield


@pytest.fixture
def clock(spark: SparkSession) -> Iterator[measure.Clock]:
    """Counts the batches of all queries."""
    made = measure.Clock()
    with mock.patch.object(DataStreamWriter, "start", lambda *given, **named: made.start(*given, **named)):
        yield made
