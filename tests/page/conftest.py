"""The page on a real PostgreSQL, behind Airflow's own authentication: real tokens, and no Airflow but its users'
tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from fastapi import FastAPI
from fastapi.testclient import TestClient

from onlyonce.database.connect import forget_connections
from onlyonce.database.migrate import migrate
from onlyonce.settings import ROOT
from tests.contract.conftest import Log, ask, log, new_log  # noqa: F401 - fixtures
from tests.page.shop import Shop, filled
from tests.support import airflow_users
from tests.support.platform import Server
from tests.support.shared_server import SharedServer

PREFIX = "/exactly-once"

Token = Callable[..., str]


@pytest.fixture(scope="session")
def token() -> Token:
    """Make a user's token by Airflow's own auth manager, by the name of a role."""
    return airflow_users.token


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
    from onlyonce.airflow.page.plugin import OnlyoncePlugin

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
    """A client with the cookie of a user who may start runs."""
    anonymous.cookies.set("_token", token("USER"))
    return anonymous


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline `shop` as its file has it: windows of a minute, closed a minute after their end."""
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(ROOT / "tests" / "support" / "shop.py"))


class ByName(SimpleAuthManager):
    """Permit a user only the DAGs in the user's name, as an auth manager with permissions per DAG does."""

    def is_authorized_dag(self, **asked: Any) -> bool:
        """Compare the DAG's id with the names; without an id any DAG will do, as in the FAB auth manager."""
        allowed = asked["user"].username.split(",")
        details = asked.get("details")
        return (details is None or details.id is None or details.id in allowed) and super().is_authorized_dag(**asked)


@pytest.fixture
def by_name(anonymous: TestClient, token: Token, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a client of the page for a user who may see the DAGs with these names."""
    token("VIEWER")
    manager = ByName()
    manager.init()
    monkeypatch.setattr(airflow_app._AuthManagerState, "instance", manager)

    def client(names: str, role: str = "USER") -> TestClient:
        anonymous.cookies.set("_token", token(role, names))
        return anonymous

    return client
