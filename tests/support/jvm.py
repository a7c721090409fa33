"""Starts the Spark session that the tests of a worker share.

A JVM that ends while it starts, as where the machine has no memory for it at that instant, would fail each test that
asks for the session.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psutil
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from onlyonce import environment
from onlyonce.core.locations import location
from onlyonce.tables import stores

STARTS = 3
ANY = "s3://any"
HADOOP = "spark.hadoop."
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Plans of a few rows, each new: to compile them costs a quarter of a run. Drivers in processes of their own compile,
and so does `make test-all`."""


def session(name: str) -> Any:
    """Start a session with two cores and, if they are installed, the jars of S3 on its class path.

    Raise what the last start raised.

    It compiles no plan, unless ONLYONCE_TEST_COMPILED is set.

    A JVM that ends before it answers is started again, and the summary of the tests says so.
    """
    from onlyonce.engine.options import jar_folder
    from onlyonce.engine.session import start

    starts = Retrying(
        retry=retry_if_exception(_has_ended), stop=stop_after_attempt(STARTS), before_sleep=_tell, reraise=True
    )
    jars = jar_folder()
    data = {"ONLYONCE_DATA": ANY} if list(jars.with_name(f"{jars.name}-s3").glob("hadoop-aws-*.jar")) else {}
    # Hundreds of tests use one JVM, and what Spark keeps of their plans has filled the 2 GB of a driver.
    with environment.within({"ONLYONCE_DRIVER_MEMORY": "3g", **data}):
        session = starts(start, name, "local[2]")
    session.conf.set(stores.CHECKPOINTS, stores.ON_DISK)
    for name, value in ({} if "ONLYONCE_TEST_COMPILED" in os.environ else INTERPRETED).items():
        session.conf.set(name, value)
    session.sparkContext.environment["ONLYONCE_DATA"] = ""  # its Python workers inherit the variables of the JVM
    return session


@contextmanager
def in_store(session: Any, given: Mapping[str, str]) -> Iterator[None]:
    """Let the session and its Python workers reach an S3 by its variables, as a session that is started with these
    variables does."""
    hadoop, workers = session.sparkContext._jsc.hadoopConfiguration(), session.sparkContext.environment
    with environment.within(dict(given)):
        found = {
            key.removeprefix(HADOOP): value
            for key, value in stores.options_of_spark(location(ANY)).items()
            if key.startswith(HADOOP)
        }
    # The JVM started without the variables.
    found |= {"fs.s3a.access.key": given["AWS_ACCESS_KEY_ID"], "fs.s3a.secret.key": given["AWS_SECRET_ACCESS_KEY"]}
    for key, value in found.items():
        hadoop.set(key, value)
    workers.update(given)
    yield
    for name in given:
        del workers[name]
    for key in found:
        hadoop.unset(key)
    session.conf.set(stores.CHECKPOINTS, stores.ON_DISK)


def _has_ended(error: BaseException) -> bool:
    return "JAVA_GATEWAY_EXITED" in str(error)


def _tell(state: RetryCallState) -> None:
    assert state.outcome
    free = psutil.virtual_memory().available >> 20
    warnings.warn(
        f"start {state.attempt_number} of Spark's JVM, {free} MB of memory free: {state.outcome.exception()}",
        RuntimeWarning,
        stacklevel=1,
    )
