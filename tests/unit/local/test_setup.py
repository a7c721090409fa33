"""What the containers need: a mistake in the environment is refused in three lines, before a role has a wrong password."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.core.errors import Refused
from onlyonce.local import postgres, setup

PASSWORDS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
RIGHT = {
    "ONLYONCE_DATABASE_URL": "postgresql+psycopg2://writer:a@db/onlyonce",
    "ONLYONCE_READER_URL": "postgresql+psycopg2://reader:b@db/onlyonce",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql+psycopg2://airflow:c@db/airflow",
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in RIGHT.items():
        monkeypatch.setenv(name, value)


def test_each_role_has_the_password_of_its_url() -> None:
    assert setup.passwords() == {"writer": "a", "reader": "b", "airflow": "c"}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize(("login", "told"), [("writer@", "no password"), ("writer:@", "no password"), ("", "no role")])
def test_a_url_without_a_password_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, login: str, told: str) -> None:
    """The role would get the word None as its password."""
    monkeypatch.setenv(name, f"postgresql+psycopg2://{login}db/x")

    with pytest.raises(Refused, match=f"{name} has {told}"):
        setup.passwords()


@pytest.mark.parametrize("missing", [PASSWORDS, "ONLYONCE_AIRFLOW_PASSWORD"])
def test_a_variable_that_is_missing_is_named_in_three_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, missing: str
) -> None:
    """Also one that is needed last."""
    monkeypatch.setattr(postgres, "make_missing", lambda *_: None)
    monkeypatch.setattr(setup, "migrate", lambda _: [])
    monkeypatch.setenv("ONLYONCE_ADMIN_URL", RIGHT["ONLYONCE_DATABASE_URL"])
    monkeypatch.setenv(PASSWORDS, str(tmp_path / "passwords"))
    monkeypatch.setenv("ONLYONCE_AIRFLOW_PASSWORD", "d")
    monkeypatch.delenv(missing)

    assert setup.main() == Refused.exit_code
    assert f"{missing} is not set" in capsys.readouterr().err
