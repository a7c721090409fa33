"""Decides where Spark gets the jars of Delta and Kafka from: from a folder, or by their coordinates.

A checkout has a folder that `make env` fills. An image has the folder that ONLYONCE_JARS names. Without a folder Spark
itself fetches them once (`spark.jars.packages`), in the versions of the installed packages pyspark and delta-spark. Who
calls it: `onlyonce.spark.options`. Errors: Refused for a folder that has no jar of Delta, and where those packages are
not installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from onlyonce import settings
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location, Url

SCALA = "2.13"
SDK = "2.35.4"
"""The version of Amazon's SDK: of its parts that S3A uses, as in docker/s3.xml."""
CLOUD = "4.1.2"
"""The newest spark-hadoop-cloud that there is, as in docker/s3.xml; of it one class is used, the writer of
checkpoints."""
CLIENTS = {"gs": ("gcs-connector", "hadoop-gcp"), "abfss": ("hadoop-azure",)}
"""Hadoop's clients of stores that no jars come for: how their files are named."""
WITHOUT = (
    "software.amazon.awssdk:bundle",
    "org.apache.hadoop:hadoop-cloud-storage",
    "org.apache.hadoop:hadoop-azure",
    "org.apache.hadoop:hadoop-huaweicloud",
    "org.apache.hadoop:hadoop-client-runtime",
    "com.google.cloud.bigdataoss:gcs-connector",
    "com.squareup.okhttp3:okhttp",
    "com.squareup.okio:okio",
    "org.eclipse.jetty:jetty-util",
    "org.eclipse.jetty:jetty-util-ajax",
    "joda-time:joda-time",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-cbor",
    "org.apache.httpcomponents:httpclient",
    "org.apache.httpcomponents:httpcore",
)
"""What they would bring: all of the SDK in 690 MB, every other cloud, and what pyspark has."""


def of_session(folder: Path, *, s3: bool = False) -> dict[str, str]:
    """The settings that bring the jars to the driver and to executors; those of S3 only where data is there, since each
    jar makes a start longer."""
    if list(folder.glob("delta-spark_*.jar")):
        there = f"{folder}/*:{_of_s3(folder)}/*" if s3 else f"{folder}/*"
        return {"spark.driver.extraClassPath": there, "spark.executor.extraClassPath": there}
    if folder.exists() or settings.jars():
        raise Refused(
            f"the Delta jars are not in {folder}",
            data="nothing was started",
            hint="`make env` brings them; without the folder, and without ONLYONCE_JARS, Spark fetches them by "
            "their coordinates",
        )
    if s3:
        return {
            "spark.jars.packages": ",".join([*coordinates(), *coordinates_of_s3()]),
            "spark.jars.excludes": ",".join(WITHOUT),
        }
    return {"spark.jars.packages": ",".join(coordinates())}


def refuse_without_client(at: Location, folder: Path, named: Iterable[str]) -> None:
    """Of data in GCS or ADLS: see that somebody has brought the jar with which Spark gets there, into the folder or by
    a setting (`named`)."""
    clients = CLIENTS.get(at.scheme, ()) if isinstance(at, Url) else ()
    if not clients or any(
        client in text for client in clients for text in [*named, *(jar.name for jar in folder.glob("*.jar"))]
    ):
        return
    raise Refused(
        f"the data is in {at}, and Spark has no client of such a store: there is no jar {' or '.join(clients)}",
        data="nothing was started",
        hint=f"put it and what it needs into {folder}, or name it in spark.jars.packages; "
        "docs/how-to/object-store.md says what was run there and what was not",
    )


def _of_s3(folder: Path) -> Path:
    beside = folder.with_name(f"{folder.name}-s3")
    if not list(beside.glob("hadoop-aws-*.jar")):
        raise Refused(
            f"the jars with which Spark reaches S3 are not in {beside}",
            data="nothing was started",
            hint="`make .venv/.made/s3` in a checkout brings them (12 MB); in an image put them beside the folder "
            "of ONLYONCE_JARS",
        )
    return beside


def coordinates() -> list[str]:
    """The jars in Maven's coordinates, for the installed pyspark and delta-spark."""
    try:
        spark, delta = metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as error:
        raise Refused(
            f"there is no folder of jars, and the package {error.name} is not installed, whose version says which "
            "ones to fetch",
            data="nothing was started",
            hint="pip install 'onlyonce-pipelines[spark]', or name a folder with the jars: ONLYONCE_JARS",
        ) from None
    minor = ".".join(spark.split(".")[:2])
    return [
        f"io.delta:delta-spark_{minor}_{SCALA}:{delta}",
        f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}",
    ]


def coordinates_of_s3() -> list[str]:
    """The same of the jars with which Spark reaches S3, for the Hadoop that the installed pyspark brings."""
    spec = find_spec("pyspark")
    found = [*Path(spec.origin).parent.glob("jars/hadoop-client-api-*.jar")] if spec and spec.origin else []
    if not found:
        raise Refused(
            "which Hadoop the installed pyspark brings can't be told: it has no jar hadoop-client-api",
            data="nothing was started",
            hint="name a folder with the jars: ONLYONCE_JARS, and beside it one with those of S3",
        )
    hadoop = found[0].stem.rpartition("-")[2]
    parts = [f"software.amazon.awssdk:{part}:{SDK}" for part in ("s3", "s3-transfer-manager", "sts")]
    return [f"org.apache.hadoop:hadoop-aws:{hadoop}", f"org.apache.spark:spark-hadoop-cloud_{SCALA}:{CLOUD}", *parts]
