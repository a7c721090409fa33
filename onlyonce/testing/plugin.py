"""The pytest plugin, which an installation brings (`pytest11`).

It imports no Spark and does nothing until a test asks for something. `onlyonce_spark` is the session that
`onlyonce.testing.run` uses, for what a test makes itself. `onlyonce_log` is a platform's database for the suite of a
sink (`onlyonce.testing.suite`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from onlyonce.testing.scratch import Log

pytest.register_assert_rewrite("onlyonce.testing.suite")


@pytest.fixture(scope="session")
def onlyonce_spark() -> SparkSession:
    """Return the Spark session of `onlyonce.testing.run`, which ends with the session of tests."""
    from onlyonce.testing.running import spark_session

    return spark_session()


@pytest.fixture(scope="module")
def onlyonce_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Yield a platform on its own PostgreSQL; the environment names it while the tests of a file run."""
    from onlyonce.testing import scratch
    from onlyonce.testing.scratch import platform

    with scratch.server("onlyonce-suite-") as server, platform(server, tmp_path_factory.mktemp("home")) as log:
        yield log


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the session that `run` has started."""
    running: Any = sys.modules.get("onlyonce.testing.running")
    if running is not None:
        running.stop()
