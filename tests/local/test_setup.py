"""The containers' first service, against a server that has only its superuser, as the PostgreSQL of a new volume."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from onlyonce import environment, settings
from onlyonce.database import statements
from onlyonce.local import postgres, setup

pytestmark = [pytest.mark.airflow]


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    session = psycopg2.connect(url.replace("+psycopg2", ""))
    try:
        session.autocommit = True
        with session.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        session.close()


@pytest.fixture(scope="module")
def admin(home: Path) -> str:
    """The superuser's URL of a server without our roles and databases."""
    statements.make_home()  # the server is in the home's folder here, and a home with data must have its format
    postgres.start()
    url = (home / "postgres" / "admin.url").read_text().strip()
    for database in postgres.OWNERS:
        ask(url, f"DROP DATABASE {database}")
    for role in {role for role, _ in postgres.ROLES.values()} - {postgres.ADMIN}:
        ask(url, f"DROP ROLE {role}")
    return url


@pytest.fixture(scope="module")
def urls(admin: str, home: Path) -> Iterator[dict[str, str]]:
    """The environment that docker-compose.yml gives to `setup`, and the URL of each role, once `setup` has run."""
    place = admin.split("@")[1].split("/")[0]
    made = {
        name: f"postgresql+psycopg2://{role}:password-of-{name}@{place}/{database}?sslmode=prefer"
        for name, (role, database) in postgres.ROLES.items()
    }
    (home / "airflow").mkdir(exist_ok=True)
    given = {
        "ONLYONCE_ADMIN_URL": admin,
        "ONLYONCE_DATABASE_URL": made["writer"],
        "ONLYONCE_READER_URL": made["reader"],
        "ONLYONCE_AIRFLOW_PASSWORD": "of the UI",
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "airflow" / "passwords"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": made["airflow"],
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": made["airflow"]
        .replace("psycopg2", "asyncpg")
        .replace("sslmode", "ssl"),
    }
    with environment.within(given):
        assert setup.main() == 0
        yield made


def test_a_new_server_gets_all_that_the_others_need(urls: dict[str, str], home: Path) -> None:
    """Roles with the passwords of the URLs, both databases with their tables, and the UI's password; twice is once."""
    assert ask(urls["writer"], "SELECT count(*) = 2 FROM onlyonce_private.formats") == [(True,)]
    assert ask(urls["airflow"], "SELECT count(*) FROM alembic_version") == [(1,)]
    password = home / "airflow" / "passwords"
    assert json.loads(password.read_text()) == {"admin": "of the UI"}
    assert stat.S_IMODE(password.stat().st_mode) == 0o600
    before = ask(urls["writer"], "SELECT part, made_at FROM onlyonce_private.formats ORDER BY part")
    assert setup.main() == 0
    assert ask(urls["writer"], "SELECT part, made_at FROM onlyonce_private.formats ORDER BY part") == before


def test_each_role_may_what_it_is_for(urls: dict[str, str]) -> None:
    """The reader sees the views and writes nothing; Airflow and the platform don't enter each other's database."""
    assert ask(urls["reader"], "SELECT count(*) FROM onlyonce.batches") == [(0,)]
    for statement in ("SELECT * FROM onlyonce_private.formats", "CREATE TABLE mine (n int)"):
        with pytest.raises(psycopg2.Error):
            ask(urls["reader"], statement)
    for stranger in (
        urls["airflow"].replace("/airflow?", "/onlyonce?"),
        urls["writer"].replace("/onlyonce?", "/airflow?"),
    ):
        with pytest.raises(psycopg2.OperationalError, match="permission denied"):
            ask(stranger, "SELECT 1")


async def answer(url: str) -> object:
    """One, by the driver of Airflow's async sessions."""
    engine = create_async_engine(url)
    try:
        async with engine.connect() as connection:
            return (await connection.execute(text("SELECT 1"))).scalar()
    finally:
        await engine.dispose()


@pytest.mark.whole
def test_both_drivers_do_as_the_url_says_of_tls(urls: dict[str, str]) -> None:
    """This server has no TLS: who prefers it gets in, who requires it does not, by psycopg2's word and by asyncpg's."""
    waits = os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC"]
    assert ask(urls["airflow"], "SELECT 1") == [(1,)]
    assert asyncio.run(answer(waits)) == 1
    with pytest.raises(psycopg2.OperationalError, match="SSL"):
        ask(urls["airflow"].replace("prefer", "require"), "SELECT 1")
    with pytest.raises(ConnectionError, match="SSL"):
        asyncio.run(answer(waits.replace("prefer", "require")))


def test_a_database_of_another_format_is_refused(urls: dict[str, str]) -> None:
    """Before anything of this version starts."""
    made = ask(urls["writer"], "SELECT DISTINCT format FROM onlyonce_private.formats")[0][0]
    ask(urls["writer"], "UPDATE onlyonce_private.formats SET format = 'another'")
    try:
        assert setup.main() == 64
    finally:
        ask(settings.database_url(), f"UPDATE onlyonce_private.formats SET format = '{made}'")
