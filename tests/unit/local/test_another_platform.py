"""`up` starts no second platform next to the one that the environment names."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.local import airflow_server, platform

URLS = {
    "ONLYONCE_DATABASE_URL": (
        "postgresql+psycopg2://onlyonce_writer:secret@db.example:5433/flights",
        "db.example:5433/flights",
    ),
    # All that a container of Airflow's page has.
    "ONLYONCE_READER_URL": ("postgresql://onlyonce_reader:secret@postgres/onlyonce", "postgres:5432/onlyonce"),
    "AIRFLOW__API__BASE_URL": ("https://airflow.example", "https://airflow.example"),
    "ONLYONCE_AIRFLOW_URL": ("http://airflow-api-server:8080", "http://airflow-api-server:8080"),
}


@pytest.mark.parametrize("name", URLS)
def test_up_is_refused_if_another_platform_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started or made in the home, and no password is shown."""
    url, shown = URLS[name]
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(name, url)
    with pytest.raises(Refused) as refused:
        platform.up()

    assert shown in refused.value.what
    assert name in refused.value.hint
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "home").exists()


def test_a_homes_own_addresses_name_no_other_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a task of the embedded Airflow has them, with the login of another role."""
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "writer.url").write_text("postgresql+psycopg2://w:secret@127.0.0.1:54318/onlyonce?a=b\n")
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://other:secret@127.0.0.1:54318/onlyonce")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://localhost:8080/")
    assert (settings.named_database(), airflow_server.named()) == (None, None)

    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://other:secret@db.example/onlyonce")
    assert airflow_server.named() == ("AIRFLOW__API__BASE_URL", "http://localhost:8080")
