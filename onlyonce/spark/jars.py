"""Decides where Spark gets the jars of Delta and Kafka from: from a folder, or by their coordinates.

A checkout has a folder that `make env` fills. An image has the folder that ONLYONCE_JARS names. Without a folder Spark itself
fetches them once (`spark.jars.packages`), in the versions of the installed packages pyspark and delta-spark. Who calls it:
`onlyonce.spark.options`. Errors: Refused for a folder that has no jar of Delta, and where those packages are not installed.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from onlyonce import settings
from onlyonce.model.errors import Refused

SCALA = "2.13"


def of_session(folder: Path) -> dict[str, str]:
    """The settings that bring the jars to the driver and to executors."""
    if list(folder.glob("delta-spark_*.jar")):
        return {"spark.driver.extraClassPath": f"{folder}/*", "spark.executor.extraClassPath": f"{folder}/*"}
    if folder.exists() or settings.jars():
        raise Refused(
            f"the Delta jars are not in {folder}",
            data="nothing was started",
            hint="`make env` brings them; without the folder, and without ONLYONCE_JARS, Spark fetches them by their coordinates",
        )
    return {"spark.jars.packages": ",".join(coordinates())}


def coordinates() -> list[str]:
    """The jars in Maven's coordinates, for the installed pyspark and delta-spark."""
    try:
        spark, delta = metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as error:
        raise Refused(
            f"there is no folder of jars, and the package {error.name} is not installed, whose version says which ones to fetch",
            data="nothing was started",
            hint="pip install 'onlyonce-pipelines[spark]', or name a folder with the jars: ONLYONCE_JARS",
        ) from None
    minor = ".".join(spark.split(".")[:2])
    return [
        f"io.delta:delta-spark_{minor}_{SCALA}:{delta}",
        f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}",
    ]
