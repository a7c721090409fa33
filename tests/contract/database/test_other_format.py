"""Every command, job and DAG task refuses a home or a database of another format in one sentence.

`down` and `stop` end such a platform.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from onlyonce.cli import app
from onlyonce.core.errors import Refused
from onlyonce.database import statements
from onlyonce.database.connect import Database, forget_connections, transaction
from tests.contract.conftest import Log, shared
from tests.support.platform import ROOT

__all__ = ["shared"]
EXEMPT = ("down", "stop")


def words(command: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command of the tree."""
    for name, part in command.commands.items():
        yield from words(part, (*before, name)) if hasattr(part, "commands") else [(*before, name)]


COMMANDS = sorted(words(get_command(app)))
JOBS = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for path in (ROOT / "onlyonce").rglob("*.py")
    if re.search(r"^    (job_main\.run|failures\.run_application)\(main\)", path.read_text(), re.MULTILINE)
)


def homes(at: Path) -> dict[str, str]:
    """Make homes that are refused; return the beginning of each refusal."""
    for name in ("other", "bare"):
        (at / name / "data").mkdir(parents=True)
    (at / "other" / "format").write_text("2\n")
    return {
        "other": f"the home {at / 'other'} has the format 2,",
        "bare": f"the home {at / 'bare'} has the format none (it has data,",
    }


@pytest.fixture
def other(shared: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Log]:
    """A platform whose database has another format. Its home is new."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("ONLYONCE_READER_URL", shared.server.url("reader", shared.name))
    shared.rows("UPDATE onlyonce_private.formats SET format = 'another'")
    forget_connections()
    yield shared
    shared.rows(f"UPDATE onlyonce_private.formats SET format = '{statements.FORMAT}'")
    forget_connections()


def told(command: tuple[str, ...]) -> tuple[int, str]:
    """Return the exit code of a command and what it says on standard error, on one line."""
    result = CliRunner().invoke(app, list(command))
    return result.exit_code, " ".join(result.stderr.split())


def test_commands_and_jobs_are_found() -> None:
    """The lists below are not empty, and have a command of a command."""
    assert ("reset",) in COMMANDS
    assert {"onlyonce.run.stream", "onlyonce.operate.audit"} < {*JOBS}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_refuses_a_home_of_another_format(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Or one with data and without the file; with whatever arguments."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql+psycopg2://nobody@127.0.0.1:1/none")
    for name, sentence in homes(tmp_path).items():
        monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / name))
        code, text = told(command)
        assert (sentence.replace(" ", "") in text.replace(" ", "")) is (command[0] not in EXEMPT)
        assert code == Refused.exit_code or command[0] in EXEMPT


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_refuses_a_database_of_another_format(other: Log, command: tuple[str, ...]) -> None:
    """By the view, since the reader has no access to private tables."""
    code, text = told(command)

    assert (f"the database has the format another, and this version needs {statements.FORMAT}" in text) is (
        command[0] not in EXEMPT
    )
    assert code == Refused.exit_code or command[0] in EXEMPT


@pytest.mark.parametrize("command", [(), ("--version",), ("run", "--help")], ids=" ".join)
def test_help_and_version_need_no_format(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They read nothing."""
    homes(tmp_path)
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "other"))

    assert "has the format" not in told(command)[1]


@pytest.mark.parametrize("name", JOBS)
def test_job_refuses_a_home_of_another_format(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """As a process of its own, by `python -m` or spark-submit."""
    monkeypatch.setattr(sys, "argv", ["job"])
    for home, sentence in homes(tmp_path).items():
        monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / home))
        with pytest.raises(SystemExit) as end:
            importlib.import_module(name).cli()
        assert end.value.code == Refused.exit_code
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", [lambda log: log.url, lambda log: log.server.url("reader", log.name)], ids=["writer", "reader"]
)
def test_no_session_opens_in_a_database_of_another_format(other: Log, url: Callable[[Log], str]) -> None:
    """Whoever asks: a job, a DAG task, the page, a notebook. The way to end the old platform does."""
    with pytest.raises(Refused, match="has the format another"), transaction(Database(url(other))):
        pass
    with transaction(Database(url(other), any_format=True)) as connection:
        assert statements.format_of_database(connection) == "another"
