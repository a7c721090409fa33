"""A store that denies a request names its reason in three lines, whichever client asked and whatever it asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, location
from onlyonce.engine.failures import ended_with
from onlyonce.tables import opening, stores
from tests.support.s3 import S3

ROWS = pa.table({"n": [1, 2]})


def written(path: Location) -> DeltaTable:
    """Return a table of two versions."""
    for _ in range(2):
        write_deltalake(str(path), ROWS, mode="append", storage_options=stores.options_of_delta(path))
    return opening.table(path)


OBSTORE: dict[str, Callable[[Location], Any]] = {
    "list": lambda at: list(stores.of(at).entries(at)),
    "names": lambda at: list(stores.of(at).names(at)),
    "get": lambda at: stores.of(at).read(at / "a"),
    "head": lambda at: stores.of(at).look(at / "a"),
    "put": lambda at: stores.of(at).put(at / "b", b"b"),
    "read range": lambda at: stores.of(at).read_range(at / "a", 0, 1, ""),
    "tail": lambda at: stores.of(at).tail(at / "a", 1),
    "put new": lambda at: stores.of(at).put_new(at / "b", b"b"),
    "delete": lambda at: stores.of(at).delete(at / "a"),
    "delete all": lambda at: stores.of(at).delete_all(at, ["a"]),
}
DELTA: dict[str, Callable[[Location], Any]] = {
    "open": opening.table,
    "latest": opening.any_in,
    "commit entry": lambda at: opening.actions(at, 1),
    "append": lambda at: write_deltalake(str(at), ROWS, mode="append", storage_options=stores.options_of_delta(at)),
}


SPARK: dict[str, Callable[[SparkSession, Location], Any]] = {
    "read a table": lambda spark, at: spark.read.format("delta").load(str(at / "table")).collect(),
    "read files": lambda spark, at: spark.read.text(str(at / "a")).collect(),
    "write files": lambda spark, at: spark.range(3).write.mode("append").parquet(str(at / "files")),
    "stream into a checkpoint": lambda spark, at: streamed(spark, at),
}


def streamed(spark: SparkSession, at: Location) -> None:
    """Run a query whose checkpoint is in the store."""
    rows = spark.readStream.format("rate").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(at / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def place(versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    """A prefix with one object, and a Delta table."""
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    at = location(f"{versitygw.bucket()}/lake")
    stores.of(at).put(at / "a", b"a")
    written(at / "table")
    yield at
    versitygw.well()


def refused(ask: Callable[[], Any]) -> Refused:
    """Return the error with which a command would end."""
    raised: Exception | None = None
    try:
        ask()
    except Exception as error:
        raised = error
    assert raised is not None, "the store did not deny it"
    found = ended_with(raised)
    assert isinstance(found, Refused), f"{type(found).__name__} {found} of {raised!r}"
    assert len(str(found).splitlines()) == 3
    return found


@pytest.mark.parametrize("request_of", OBSTORE)
def test_denied_request_of_obstore_names_the_code(place: Location, versitygw: S3, request_of: str) -> None:
    versitygw.ill("expired", every=1)
    assert "ExpiredToken" in refused(lambda: OBSTORE[request_of](place)).what


def test_look_into_a_missing_bucket_is_refused(place: Location, versitygw: S3) -> None:
    """Its answer has no body either: it looks like that for a missing object."""
    assert stores.of(place).look(place / "missing") is None
    versitygw.ill("gone", every=1)
    assert "does not exist" in refused(lambda: stores.of(place).look(place / "a")).what


@pytest.mark.parametrize("request_of", DELTA)
def test_denied_request_of_deltalake_names_the_code(place: Location, versitygw: S3, request_of: str) -> None:
    versitygw.ill("expired", every=1)
    assert "ExpiredToken" in refused(lambda: DELTA[request_of](place / "table")).what


@pytest.mark.spark
@pytest.mark.parametrize("request_of", SPARK)
def test_denied_request_of_spark_names_the_code(
    place: Location, versitygw: S3, spark: SparkSession, spark_in_store: None, request_of: str
) -> None:
    versitygw.ill("expired", every=1)
    assert "ExpiredToken" in refused(lambda: SPARK[request_of](spark, place)).what
