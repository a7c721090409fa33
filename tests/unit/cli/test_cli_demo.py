"""The demo's own decisions, without a platform: how it ends, what it says of a run that failed, which rows it shows."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from onlyonce import console
from onlyonce.cli import app
from onlyonce.core.errors import OnlyonceError
from onlyonce.local import demo, platform
from onlyonce.local.airflow_api import AirflowApi
from onlyonce.local.platform import Login


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often the platform was stopped; nothing is ever started."""
    calls: list[str] = []
    monkeypatch.setattr(platform, "down", lambda out: calls.append("down"))
    monkeypatch.setattr(platform, "is_up", lambda: True)
    monkeypatch.setattr(platform, "login", lambda: Login("http://there", "admin", "secret", Path("passwords")))
    return calls


def happens(monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None, at: str = "_show_all") -> None:
    def act(*_: object) -> None:
        if error:
            raise error

    monkeypatch.setattr(demo, at, act)


def test_with_exit_it_stops_by_itself(monkeypatch: pytest.MonkeyPatch, stopped: list[str]) -> None:
    happens(monkeypatch)

    assert demo.main(leave=True) == 0
    assert stopped == ["down"]


def test_ctrl_c_at_the_end_stops_the_platform_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, stopped: list[str]
) -> None:
    happens(monkeypatch)
    happens(monkeypatch, KeyboardInterrupt(), at="_stay")

    assert demo.main(leave=False) == 0
    assert stopped == ["down"]


def test_ctrl_c_on_the_way_stops_the_platform_too(monkeypatch: pytest.MonkeyPatch, stopped: list[str]) -> None:
    happens(monkeypatch, KeyboardInterrupt())

    assert demo.main(leave=False) == 130
    assert stopped == ["down"]


def test_sigterm_stops_it_also_where_ctrl_c_is_ignored(monkeypatch: pytest.MonkeyPatch, stopped: list[str]) -> None:
    monkeypatch.setattr(demo, "_show_all", lambda out: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert demo.main(leave=False) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped == ["down"]


@pytest.mark.parametrize("options, times", [(["demo"], 0), (["demo", "--exit"], 1)])
def test_after_a_failure_the_ui_stays_unless_exit_was_asked_for(
    options: list[str], times: int, monkeypatch: pytest.MonkeyPatch, stopped: list[str]
) -> None:
    happens(monkeypatch, OnlyonceError("the run failed", hint="fix it"))

    result = CliRunner().invoke(app, options)

    assert result.exit_code == 1
    assert result.stderr.splitlines() == ["the run failed", "  next: fix it"]
    assert stopped == ["down"] * times
    assert ("still up: http://there" in result.stdout) == (times == 0)


class FailedRun:
    """What Airflow tells of a run whose task failed at its third attempt."""

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        return [{"task_id": "run", "state": "failed", "try_number": 3}]

    def task_log(self, dag_id: str, run_id: str, task_id: str, attempt: int) -> str:
        return "\n".join(f"attempt {attempt}, line {n} [red]" for n in range(100))


def test_a_failed_run_shows_the_end_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    api = cast(AirflowApi, FailedRun())

    with pytest.raises(OnlyonceError, match="of flights_stream failed"):
        demo._check(api, demo.Watched("flights", "r1", 10, state="failed"), console.console())

    shown = capsys.readouterr().out
    assert "attempt 3, line 99 [red]" in shown
    assert "line 10 " not in shown


def test_a_run_that_went_well_is_not_looked_into() -> None:
    demo._check(cast(AirflowApi, None), demo.Watched("flights", "r1", 10, state="success"), console.console())


def test_the_rows_with_the_most_come_first_and_ties_have_an_order() -> None:
    rows = [{"user": name, "ok": True, "count": count} for name, count in (("b", 2), ("a", 2), ("c", 9), ("d", 1))]

    by, top = demo.largest(rows, 3)

    assert by == "count"
    assert [row["user"] for row in top] == ["c", "a", "b"]


def test_rows_without_a_number_are_shown_as_they_come() -> None:
    assert demo.largest([{"a": "x"}, {"a": "y"}], 1) == ("", [{"a": "x"}])
