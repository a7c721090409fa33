"""The one SparkSession builder."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from onlyonce import environment, settings
from onlyonce.spark_options import options, with_retries


def start(name: str, master: str | None = None) -> SparkSession:
    """The session of this process, made if there is none yet (under spark-submit it is there already)."""
    environment.set_missing("PYSPARK_PYTHON", sys.executable)
    chosen = with_retries(master or settings.master())
    builder = SparkSession.builder.appName(name)
    if environment.variable("SPARK_ENV_LOADED") is None:
        builder = builder.master(chosen)
    for key, value in options(chosen).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(settings.spark().spark_log or "ERROR")
    return session
