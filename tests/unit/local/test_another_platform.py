"""`up` starts no second platform next to the one that the environment names."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.core.errors import Refused
from onlyonce.local import platform

URLS = {
    "ONLYONCE_DATABASE_URL": (
        "postgresql+psycopg2://onlyonce_writer:secret@db.example:5433/flights",
        "db.example:5433/flights",
    ),
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
