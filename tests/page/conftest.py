"""The page on a real PostgreSQL, behind Airflow's own authentication: real tokens, and no Airflow but its users' tables."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from onlyonce.database.connect import forget_connections
from onlyonce.database.migrate import migrate
from tests.contract.conftest import Log, ask, log, new_log  # noqa: F401 - fixtures
from tests.page.shop import Shop, filled
from tests.support.platform import Server
from tests.support.shared_server import SharedServer

if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="onlyonce-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ.setdefault(
    "AIRFLOW__API_AUTH__JWT_SECRET", "a secret of the tests, long enough for its algorithm to take it, all of it"
)

PREFIX = "/exactly-once"

Token = Callable[[str], str]


@pytest.fixture(scope="session")
def token() -> Token:
    """Makes a user's token by Airflow's own auth manager, by the name of a role."""
    from airflow import settings
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models import import_all_models
    from airflow.models.base import Base

    # It looks up revoked tokens, and whose DAG it is.
    import_all_models()
    Base.metadata.create_all(settings.engine)
    manager = create_auth_manager()
    return lambda role: str(manager.generate_jwt(SimpleAuthManagerUser(username="somebody", role=role)))


@pytest.fixture(scope="session")
def template(server: Server) -> Iterator[Shop]:
    """A pipeline with a bit of everything in the log. Tests get a copy of its database."""
    made = Log(server, server.new_database())
    migrate(made.url)
    shop = filled(made)
    ask(
        server.url("admin"),
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s",
        made.name,
    )
    yield shop
    server.drop(made.name)


@pytest.fixture
def shop(template: Shop, server: SharedServer, log: Log) -> Shop:  # noqa: F811
    """The same in the log of this test."""
    log.server.drop(log.name)
    server.copy_of(template.log.name, log.name)
    return template.on(log)


@pytest.fixture
def mounted(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FastAPI]:  # noqa: F811
    """The page where Airflow mounts it. It is given no way to the log but the reader's."""
    from onlyonce.airflow.plugin import OnlyoncePlugin

    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.setenv("ONLYONCE_READER_URL", log.server.url("reader", log.name))
    monkeypatch.delenv("ONLYONCE_DATABASE_URL", raising=False)
    whole = FastAPI()
    for part in OnlyoncePlugin.fastapi_apps:
        whole.mount(part["url_prefix"], part["app"])
    yield whole
    forget_connections()


@pytest.fixture
def anonymous(mounted: FastAPI) -> TestClient:
    """A client that has not logged in. An error of the page is an error of the test."""
    return TestClient(mounted, base_url="http://airflow" + PREFIX)


@pytest.fixture
def client(anonymous: TestClient, token: Token) -> TestClient:
    """A client with the cookie of a user who may only look."""
    anonymous.cookies.set("_token", token("VIEWER"))
    return anonymous
