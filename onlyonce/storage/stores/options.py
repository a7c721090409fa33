"""What each library is told of an object store.

No secret is among it: delta-rs, obstore and Hadoop find those themselves.

Each of them reads the standard variables (AWS_ACCESS_KEY_ID and its companions, AWS_ENDPOINT_URL, AWS_REGION;
GOOGLE_APPLICATION_CREDENTIALS; AZURE_STORAGE_ACCOUNT_NAME, …) or asks for the role of the machine. So nothing of it can
get into a log, a table, or Spark's page. What is said here is what they would not find out: that an endpoint speaks
plain HTTP.

Who calls it: `opening`, `objects`, `onlyonce.spark.options`. Errors: none. Pure but for the environment.
"""

from __future__ import annotations

from onlyonce.environment import variable
from onlyonce.model.storage.location import Location, Url, is_s3

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
ON_DISK = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's default starts four processes for each file that it writes to a disk, to set and ask its permissions: 40 ms.
This one starts one: 10 ms. Each looks whether the file is there, and then renames."""


def of_delta(at: Location) -> dict[str, str] | None:
    """The storage options of delta-rs; None for a local path."""
    if not isinstance(at, Url):
        return None
    given = {"aws_endpoint_url": endpoint(), "aws_region": region()} if is_s3(at) else {}
    return {key: value for key, value in given.items() if value} | ({"allow_http": "true"} if plain_http(at) else {})


def of_spark(at: Location) -> dict[str, str]:
    """The settings of a Spark session that has data there.

    `s3://` is spoken by S3A, so that a table has one name for all its readers.
    """
    if not isinstance(at, Url):
        return {CHECKPOINTS: ON_DISK}
    if not is_s3(at):
        return {}
    found = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.AbstractFileSystem.s3a.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.s3a.endpoint.region": region() or "us-east-1",
        # One PUT for a file of a checkpoint. Spark's default writes another and renames it, which is twenty requests
        # there, and no more atomic.
        CHECKPOINTS: "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
        "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
    }
    if named := endpoint():
        found |= {
            "spark.hadoop.fs.s3a.endpoint": named,
            "spark.hadoop.fs.s3a.path.style.access": "true",  # a server of one's own seldom has a name for each bucket
            "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not plain_http(at)).lower(),
        }
    return found


def endpoint() -> str | None:
    """The address of an S3 that is not Amazon's."""
    return next((found for name in ENDPOINTS if (found := variable(name))), None)


def region() -> str | None:
    """The region of buckets; None where the library is to find out."""
    return next((found for name in REGIONS if (found := variable(name))), None)


def plain_http(at: Url) -> bool:
    """Whether the store is spoken to without TLS, as one on this machine is."""
    if at.scheme == "abfss":
        return (variable("AZURE_STORAGE_USE_EMULATOR") or "").lower() == "true"
    if at.scheme == "gs":  # where that is, the key file of the service account says
        return (variable("STORAGE_EMULATOR_HOST") or "").startswith("http://")
    return is_s3(at) and (endpoint() or "").startswith("http://")
