"""The pytest plugin, which an installation brings (`pytest11`). It imports no Spark and does nothing until a test asks for something.

`onlyonce_spark` is the session that `onlyonce.testing.run` uses, for what a test makes itself; it ends with the session of tests.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def onlyonce_spark() -> SparkSession:
    """The Spark session of `onlyonce.testing.run`."""
    from onlyonce.testing.running import spark_session

    return spark_session()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the session that `run` has started."""
    running: Any = sys.modules.get("onlyonce.testing.running")
    if running is not None:
        running.stop()
