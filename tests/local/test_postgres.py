"""The embedded PostgreSQL: comes up, comes back, keeps what was committed, lets nobody in without a password."""

from __future__ import annotations

import os
import signal
import socket
import stat
from pathlib import Path

import psutil
import psycopg2
import pytest

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.local import postgres, processes

from .conftest import free_port


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    session = psycopg2.connect(url.replace("+psycopg2", ""))
    try:
        with session, session.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        session.close()


def postmaster(home: Path) -> int:
    return int((home / "postgres" / "data" / "postmaster.pid").read_text().splitlines()[0])


@pytest.fixture
def running(home: Path) -> Path:
    postgres.start()
    return home


def test_start_twice_is_one_server(running: Path) -> None:
    before = postmaster(running)
    postgres.start()
    assert postmaster(running) == before
    assert postgres.is_running()


def test_stop_and_start_keep_the_data(running: Path) -> None:
    ask(settings.database_url(), "CREATE TABLE kept AS SELECT 42 AS answer")
    postgres.stop()
    assert not postgres.is_running()
    postgres.stop()
    postgres.start()
    assert ask(settings.database_url(), "SELECT answer FROM kept") == [(42,)]


def test_a_killed_server_comes_back_with_what_was_committed(running: Path) -> None:
    ask(settings.database_url(), "CREATE TABLE survived AS SELECT generate_series(1, 1000) AS n")
    os.kill(postmaster(running), signal.SIGKILL)
    processes.wait_until(lambda: not postgres.is_running(), 60, "the end of the server")
    postgres.start()
    assert ask(settings.database_url(), "SELECT count(*) FROM survived") == [(1000,)]


def test_a_pid_file_that_names_a_stranger_does_not_hinder(running: Path) -> None:
    postgres.stop()
    pid_file = running / "postgres" / "data" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{running}/postgres/data\n1\n1\n\n127.0.0.1\n\n")
    postgres.start()
    assert postmaster(running) != os.getpid()


def test_the_urls_follow_the_port(running: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.stop()
    monkeypatch.setenv("ONLYONCE_PG_PORT", str(free_port()))
    try:
        postgres.start()
        assert f":{settings.pg_port()}/" in settings.database_url()
        assert ask(settings.database_url(), "SHOW port") == [(str(settings.pg_port()),)]
    finally:
        postgres.stop()


def test_a_taken_port_is_refused(running: Path) -> None:
    postgres.stop()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", settings.pg_port()))
        taken.listen()
        with pytest.raises(Refused, match=f"port {settings.pg_port()} .* is taken") as refusal:
            postgres.start()
    assert "ONLYONCE_PG_PORT" in refusal.value.hint


def test_the_reader_changes_nothing_and_sees_one_database(running: Path) -> None:
    with pytest.raises(psycopg2.errors.ReadOnlySqlTransaction):
        ask(settings.reader_url(), "CREATE TABLE no (n int)")
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        ask(settings.reader_url(), "SET TRANSACTION READ WRITE; CREATE TABLE no (n int)")
    with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
        ask(settings.reader_url().replace("/onlyonce?", "/airflow?"), "SELECT 1")


def test_nobody_gets_in_without_the_password(running: Path) -> None:
    for role in ("onlyonce_admin", "onlyonce_writer"):
        with pytest.raises(psycopg2.OperationalError, match="no password supplied"):
            ask(f"postgresql://{role}@127.0.0.1:{settings.pg_port()}/onlyonce", "SELECT 1")


def test_secrets_are_private_and_on_no_command_line(running: Path) -> None:
    files = [*running.glob("postgres/*.url"), running / "postgres" / "passwords.json"]
    assert len(files) == 5
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    secret = settings.database_url().split(":")[2].split("@")[0]
    assert len(secret) > 20
    assert not any(secret in argument for process in psutil.process_iter() for argument in _arguments(process))


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.skipif(os.geteuid() != 0, reason="another account is used for root only")
def test_a_folder_that_the_account_may_not_enter_is_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setenv("ONLYONCE_HOME", str(closed / "home"))
    monkeypatch.setenv("ONLYONCE_PG_PORT", str(free_port()))
    with pytest.raises(Refused, match="may not enter") as refusal:
        postgres.start()
    assert "ONLYONCE_HOME" in refusal.value.hint
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="another account is used for root only")
def test_programs_that_the_account_may_not_reach_are_copied(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = postgres.server_account()
    monkeypatch.setattr(postgres, "_can_run", lambda *_: False)
    postgres.make_enterable(home / "copied")
    binaries = postgres.reachable_binaries(account, home / "copied")
    assert postgres.run_as_account(account, binaries, ["postgres", "--version"]).stdout.startswith(
        "postgres (PostgreSQL) 18"
    )


def test_a_deep_folder_is_no_trap(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLYONCE_HOME", str(home / ("deep" * 30)))
    monkeypatch.setenv("ONLYONCE_PG_PORT", str(free_port()))
    try:
        postgres.start()
        assert ask(settings.database_url(), "SELECT 1") == [(1,)]
    finally:
        postgres.stop()
