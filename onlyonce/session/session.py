"""The one SparkSession builder."""

from __future__ import annotations

import sys

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from onlyonce import environment, settings
from onlyonce.spark_defaults import spark_defaults
from onlyonce.spark_options import options, with_retries


def start(name: str, master: str | None = None) -> SparkSession:
    """The session of this process, made if there is none yet (under spark-submit it is there already)."""
    environment.set_missing("PYSPARK_PYTHON", sys.executable)
    chosen = with_retries(master or settings.master())
    builder = SparkSession.builder.appName(name)
    if environment.variable("SPARK_ENV_LOADED") is None:
        builder = builder.master(chosen)
    for key, value in options(chosen, _theirs()).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if level := session.conf.get("spark.log.level", None):
        session.sparkContext.setLogLevel(level)
    return session


def _theirs() -> dict[str, str]:
    """What is set already: under spark-submit by its command line and its file, else by that file."""
    if environment.variable("SPARK_ENV_LOADED") is None:
        return spark_defaults()
    SparkContext._ensure_initialized()  # the JVM that spark-submit has started knows it
    return dict(SparkConf().getAll())
