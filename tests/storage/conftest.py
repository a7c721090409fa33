"""Places for files: a local disk, a real server of S3, moto, and the emulator of Azure. One process of each for a session of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onlyonce.model.location import Location, location
from tests.support import azure, s3


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3]:
    """The real server."""
    with s3.versitygw(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[s3.S3]:
    """The other one."""
    with s3.moto() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[azure.Azure]:
    """Azure's own emulator."""
    with azure.azurite() as server:
        yield server


@pytest.fixture(params=["local", "versitygw", "moto", pytest.param("azurite", marks=pytest.mark.whole)])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Location:
    """An empty place."""
    if request.param == "local":
        return location(str(request.getfixturevalue("tmp_path") / "place"))
    server: s3.S3 | azure.Azure = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return location(f"{server.bucket()}/some/prefix")


@pytest.fixture(params=["versitygw", "moto"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.S3]:
    """A server that a test may make ill."""
    server: s3.S3 = request.getfixturevalue(request.param)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.well()
    yield server
    server.well()
