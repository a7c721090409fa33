"""`up` and `down` say it if there is nothing to do; messages about the machine look like all others."""

from __future__ import annotations

import ast
import json
import os
import socket
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from onlyonce import environment, settings
from onlyonce.cli import app
from onlyonce.core import errors
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.local import airflow_api, airflow_server, platform, postgres, prerequisites, processes
from onlyonce.local.airflow_api import Address, AirflowApi

runner = CliRunner()
PACKAGE = Path(errors.OURS)
KINDS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, OnlyonceError)}


def test_a_process_is_found_after_a_step_of_the_clock_and_by_a_file_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And another one of the same id, as long after another boot, is not."""
    started = processes.spawn("server", ["sleep", "60"], {**os.environ}, tmp_path)
    try:
        file = tmp_path / "run" / "server.pid"
        record = json.loads(file.read_text())
        before = psutil.boot_time()
        with monkeypatch.context() as stepped:
            stepped.setattr("psutil._psplatform.boot_time", lambda: before + 60)
            assert processes.find("server", tmp_path) == started
        assert record["since_boot"] == pytest.approx(record["create_time"] - before, abs=1)

        file.write_text(json.dumps({name: record[name] for name in ("pid", "create_time")}))
        assert processes.find("server", tmp_path) == started
        ours = psutil.Process()
        file.write_text(json.dumps({"pid": ours.pid, "since_boot": ours.create_time() - before}))
        assert processes.find("server", tmp_path) is None
    finally:
        processes.stop([started], patience=5)


def test_down_says_that_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home, and with one whose server was never started."""
    home = tmp_path / "home"
    monkeypatch.setenv("ONLYONCE_HOME", str(home))
    assert runner.invoke(app, ["down"]).stderr == f"nothing runs: there is no platform in {home}\n"
    assert not home.exists()
    home.mkdir()
    assert runner.invoke(app, ["down"]).stderr == f"nothing runs of the platform in {home}\n"


@pytest.mark.parametrize("options, what", [([], "the platform"), (["--no-airflow"], "PostgreSQL of the platform")])
def test_up_says_that_it_runs_already(
    options: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of it if it does not."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    login = platform.Login("http://127.0.0.1:8080", "admin", "secret", tmp_path / "password")
    monkeypatch.setattr(platform, "up", lambda _, replaces: login)
    monkeypatch.setattr(platform, "database", lambda _: None)
    monkeypatch.setattr(airflow_server, "environment", environment.inherited)
    for runs in (True, False):
        monkeypatch.setattr(platform, "is_up", lambda runs=runs: runs)
        monkeypatch.setattr(postgres, "is_running", lambda runs=runs: runs)
        said = runner.invoke(app, ["up", *options]).stderr
        assert said == (f"{what} in {tmp_path} runs already\n" if runs else "")


def test_what_a_machine_lacks_is_told_with_its_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is missing in the first line, how to get it in the last one."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Refused) as refused:
        platform._require_machine()
    assert refused.value.what == (f"Java 17 or later is missing: JAVA_HOME is {tmp_path}, where there is no bin/java")
    assert refused.value.hint.startswith("unset JAVA_HOME, since /")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused) as refused:
        platform._require_machine()
    assert refused.value.hint.startswith("apt-get install openjdk-17-jre-headless, ")
    monkeypatch.setattr(prerequisites, "java_problem", lambda: "")
    monkeypatch.setattr(prerequisites, "DISK_TO_RUN", 1e9)
    with pytest.raises(Refused) as refused:
        platform._require_machine()
    assert refused.value.what.startswith("Too little disk: ")
    assert refused.value.hint == "Make room, or work on another disk"


def test_no_error_ends_with_a_full_stop() -> None:
    """What happened is one line, in front of `data:` and `next:`."""
    found = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}"
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in KINDS and call.args
        if ast.unparse(call.args[0]).rstrip("'\"").endswith(".")
    ]
    assert found == []


def test_airflow_that_runs_at_another_port_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell without the variable with which it was started would wait for an answer at the default port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(processes, "find", lambda *_: psutil.Process())
        assert port in processes.listens_at(psutil.Process())
        monkeypatch.setattr(processes, "listens_at", lambda _: {port})  # other tests of this process listen too
        monkeypatch.setenv("ONLYONCE_AIRFLOW_PORT", str(port))
        airflow_server.require_port()

        monkeypatch.setenv("ONLYONCE_AIRFLOW_PORT", "8080" if port != 8080 else "8081")
        with pytest.raises(Refused, match=f"runs at port {port}") as refused:
            airflow_server.require_port()

    assert f"export ONLYONCE_AIRFLOW_PORT={port}" in refused.value.hint


def test_another_port_of_postgresql_and_airflows_own_settings_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The running server keeps its port, and `up` sets Airflow's settings itself: a variable would change nothing."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    monkeypatch.setenv("ONLYONCE_PG_PORT", "5555")
    (tmp_path / "postgres" / "data").mkdir(parents=True)
    (tmp_path / "postgres" / "data" / "postmaster.pid").write_text("1\n/data\n0\n5556\n\n127.0.0.1\n")
    monkeypatch.setattr(postgres, "is_running", lambda: True)
    own = {"AIRFLOW__API__PORT": "8080", "AIRFLOW__CORE__EXECUTOR": "LocalExecutor"}
    monkeypatch.setattr(airflow_server, "inherited", lambda: {**own, "AIRFLOW__API__PORT": "9090", "PATH": "/bin"})
    monkeypatch.setattr(airflow_server, "environment", lambda: own)

    port, ignored = platform.without_effect(airflow=True)
    assert "runs at port 5556, and ONLYONCE_PG_PORT is 5555" in port
    assert "follow AIRFLOW__API__PORT: " in ignored
    assert "ONLYONCE_AIRFLOW_PORT" in ignored
    monkeypatch.setenv("ONLYONCE_PG_PORT", "5556")
    assert [*platform.without_effect(airflow=False)] == []


def test_up_refuses_to_lose_the_dags_of_another_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The last start has served them. Not if both are named, if the file is gone, or after --replace."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    (tmp_path / "airflow").mkdir()
    theirs, ours = tmp_path / "a" / "pipelines.py", tmp_path / "b" / "pipelines.py"
    for file in (theirs, ours):
        file.parent.mkdir()
        file.touch()
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(theirs))
    airflow_server.refuse_other_project()
    airflow_server.note_served()
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{theirs}:{ours}")
    airflow_server.refuse_other_project()
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(ours))
    with pytest.raises(Refused, match=f"has served the pipelines of {theirs} until now") as refused:
        airflow_server.refuse_other_project()
    assert (
        f"ONLYONCE_PIPELINES={theirs}:{ours} onlyonce up. For these alone: onlyonce up --replace" in refused.value.hint
    )
    theirs.unlink()
    airflow_server.refuse_other_project()


def test_a_project_that_the_running_airflow_does_not_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also by `pause`. Nothing is said of a project that it reads, nor of the pipelines that ship."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    theirs, ours = tmp_path / "a" / "pipelines.py", tmp_path / "b" / "pipelines.py"
    for file in (theirs, ours):
        file.parent.mkdir()
        file.touch()
    given = {"ONLYONCE_PIPELINES": str(theirs), "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "a" / "dags")}
    monkeypatch.setattr(processes, "find", lambda *_: psutil.Process())
    monkeypatch.setattr(processes, "environment_of", lambda _: given)
    for named, said in ((ours, True), (theirs, False), (settings.shipped(), False)):
        monkeypatch.setenv("ONLYONCE_PIPELINES", str(named))
        assert bool(airflow_server.unread()) is said
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(ours))
    unread = airflow_server.unread()
    assert unread
    assert f"reads the DAGs in {tmp_path / 'a' / 'dags'}, of {theirs}: the pipelines of {ours}" in unread.what
    assert f"ONLYONCE_PIPELINES={theirs}:{ours} onlyonce up" in unread.hint
    monkeypatch.setattr(AirflowApi, "dags_with", lambda *_: [])
    with pytest.raises(Refused, match=f"the pipelines of {ours}"):
        airflow_api.hold_schedules("shop", held=True, api=AirflowApi(Address("http://127.0.0.1:8080", own=True)))
