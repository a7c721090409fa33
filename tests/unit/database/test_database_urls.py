"""PostgreSQL's URL in every spelling that people use, and what is refused by the name of its setting."""

from __future__ import annotations

import pytest

from onlyonce import settings
from onlyonce.commitlog.units import url_of
from onlyonce.core.database_url import address
from onlyonce.core.errors import Refused
from onlyonce.database.connect import Database, transaction

PLACE = "team:p%40ss@127.0.0.1:1/shop?sslmode=require"
OURS = f"postgresql+psycopg2://{PLACE}"


@pytest.fixture(autouse=True)
def no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "READER_URL"):
        monkeypatch.delenv(f"ONLYONCE_{name}", raising=False)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg2", "postgresql+psycopg", "POSTGRES"])
def test_every_spelling_means_the_driver_that_is_installed(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", f"{scheme}://{PLACE}")
    monkeypatch.setenv("SHOP_DB", f"{scheme}://{PLACE}")

    assert settings.database_url() == OURS
    assert Database(url_of("SHOP_DB"), pooler=f"{scheme}://{PLACE}") == Database(OURS, pooler=OURS)


@pytest.mark.parametrize(
    "url",
    [
        "not a url",
        "host:5432/shop",
        "sqlite:///shop",
        "postgresql+asyncpg://u@h/d",
        "postgresql://u:p@h:54x/d",
        "u:secret://h",
    ],
)
def test_another_url_is_refused_by_the_name_of_its_variable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", url)
    monkeypatch.setenv("SHOP_DB", url)

    with pytest.raises(Refused, match=r"setting ONLYONCE_DATABASE_URL (does not have the form|begins with)") as setting:
        settings.database_url()
    with pytest.raises(Refused, match="variable SHOP_DB"):
        url_of("SHOP_DB")
    assert "postgresql://user:password@host:5432/database" in setting.value.hint
    assert url not in str(setting.value)
    assert "secret" not in str(setting.value)


def test_a_url_that_cannot_be_read_is_refused_without_its_password() -> None:
    with (
        pytest.raises(Refused, match=r"the URL in ONLYONCE_DATABASE_URL, .* can't be read") as refused,
        transaction(Database("postgresql://team:secret@host:port/shop")),
    ):
        pass
    assert "secret" not in str(refused.value)


def test_a_person_reads_where_the_runs_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the reader's URL, never the embedded server: it is another platform."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", OURS)
    with pytest.raises(Refused, match="ONLYONCE_READER_URL"):
        settings.reader_url()
    assert settings.reading_url() == OURS

    monkeypatch.setenv("ONLYONCE_READER_URL", OURS.replace("team", "reader"))
    assert settings.reading_url() == settings.reader_url() == OURS.replace("team", "reader")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (OURS, "127.0.0.1:1/shop"),
        ("postgresql://u:p@db/shop", "db:5432/shop"),
        ("mysql+pymysql://u:p@db/shop", "db:3306/shop"),
        ("postgresql+psycopg2://u:p@/shop?host=%2Frun%2Fpg", "/run/pg:5432/shop"),
    ],
)
def test_a_database_is_named_without_its_login(url: str, told: str) -> None:
    assert address(url) == told


@pytest.mark.parametrize("url", ["postgresql://u:secret@h:5432", "postgresql://u:secret@h/", "mysql://u:secret@h:3306"])
def test_a_url_without_a_database_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL would take the user's name for the database's."""
    monkeypatch.setenv("SHOP_DB", url)

    with pytest.raises(Refused, match="variable SHOP_DB of a sink's database names no database") as told:
        url_of("SHOP_DB")

    assert "secret" not in str(told.value)
    assert "write SHOP_DB as" in told.value.hint
