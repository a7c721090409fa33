"""Places for files: a local disk, a real server of S3, moto, and what stands for Azure and GCS.

One process of each for a session of tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onlyonce.core.locations import Location, location
from tests.support import azure, gcs, jvm, s3


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3]:
    """The real server."""
    with s3.versitygw(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def spark_in_store(spark: Any, versitygw: s3.S3) -> Iterator[None]:
    """Spark's session of the tests, which reaches the real server."""
    with jvm.in_store(spark, versitygw.environment):
        yield


@pytest.fixture(scope="session")
def moto() -> Iterator[s3.S3]:
    """The other one, in Python: what the real server asks of us takes it six times as long, so it is for `make
    test-all`."""
    with s3.moto() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[azure.Azure]:
    """Azure's own emulator."""
    with azure.azurite() as server:
        yield server


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gcs.Gcs]:
    """A GCS that is none of Google's."""
    with gcs.served_by_go(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture(
    params=[
        "local",
        "versitygw",
        *(pytest.param(name, marks=pytest.mark.whole) for name in ("moto", "azurite", "fake_gcs")),
    ]
)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Location:
    """An empty place."""
    if request.param == "local":
        return location(str(request.getfixturevalue("tmp_path") / "place"))
    server: s3.S3 | azure.Azure | gcs.Gcs = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return location(f"{server.bucket()}/some/prefix")


@pytest.fixture(params=["versitygw", pytest.param("moto", marks=pytest.mark.whole)])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.S3]:
    """A server that a test may make ill."""
    server: s3.S3 = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.well()
    yield server
    server.well()
