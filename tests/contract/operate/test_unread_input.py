"""`onlyonce lag` asks the sources themselves: input that no run has read shows while no driver runs."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
import structlog
import typer
from deltalake import write_deltalake

from onlyonce import settings
from onlyonce.cli import operate
from onlyonce.cli.shell import read
from onlyonce.core import backlog as model
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.operate import alerts, ask_sources, doctor, metrics, unread
from onlyonce.sources import backlog
from onlyonce.testing.scratch import Log
from tests.page.shop import Shop
from tests.support.platform import Platform, Server

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def five_files(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform whose pipeline has never run, and five files in its inbox, each an hour older than the next."""
    monkeypatch.setattr(backlog, "ASKER", backlog.Asker())
    migrate(platform.environment["ONLYONCE_DATABASE_URL"])
    for number in range(5):
        put(platform, f"{number}.jsonl", NOON + timedelta(hours=number))
    return platform


def put(platform: Platform, name: str, changed_at: datetime) -> None:
    """Put a file of one record, 30 bytes, that was last changed at a time."""
    path = platform.put("shop", name, ["x" * 29])
    os.utime(path, (changed_at.timestamp(),) * 2)


def told(capsys: pytest.CaptureFixture[str], stage: str = "receive") -> dict[str, Any]:
    """The row of a stage of the shop, as a script reads it."""
    operate.lag(as_json=True)
    rows = json.loads(capsys.readouterr().out)
    [row] = [row for row in rows if (row["pipeline"], row["stage"]) == ("shop", stage)]
    return dict(row)


def test_files_that_no_run_has_read_wait(five_files: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    """With their bytes and the time of the oldest. No run has counted their records: null, not 0."""
    row = told(capsys)

    assert (row["backlog_bytes"], row["backlog_records"], row["source_answered"]) == (150, None, True)
    assert datetime.fromisoformat(row["oldest_unread_at"]) == NOON
    age = datetime.fromisoformat(row["asked_at"]) - NOON
    assert row["system_lag_seconds"] == round(age.total_seconds(), 1)  # no run knows of it, and it is the lag
    assert row["backlog_detail"] == {"files": 5}


def test_source_without_answer_is_no_zero(
    five_files: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that hangs is waited for once and for so long; its answer is the next one, if it comes."""
    monkeypatch.setattr(model, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(backlog, "ASKER", asker := backlog.Asker())
    may_end, begun = threading.Event(), list[int]()
    whole = backlog.unread

    def slow(*of: Any) -> model.Backlog:
        begun.append(1)
        assert may_end.wait(60)
        return whole(*of)

    monkeypatch.setattr(backlog, "unread", slow)
    rows = [told(capsys), told(capsys)]
    may_end.set()
    [request] = asker.requests.values()
    request.answer.result(60)
    late = told(capsys)

    for row in rows:
        assert (row["source_answered"], row["backlog_bytes"], row["backlog_records"]) == (False, None, None)
        assert row["backlog_unknown"] == "no answer within 0.01 s"
    assert (late["source_answered"], late["backlog_bytes"], len(begun)) == (True, 150, 1)


def test_answer_is_kept_for_seconds(
    five_files: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is loaded again and again asks a source once in that time."""
    first = told(capsys)
    put(five_files, "5.jsonl", NOON)
    kept = told(capsys)
    monkeypatch.setattr(model, "KEPT_SECONDS", 0)
    fresh = told(capsys)

    assert [row["backlog_bytes"] for row in (first, kept, fresh)] == [150, 150, 180]
    assert first["asked_at"] == kept["asked_at"] < fresh["asked_at"]


def test_doctor_finds_unread_input_without_driver(five_files: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the oldest waits longer than the bound. A source that does not know the age counts from the last commit."""
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    [found] = doctor.main(["--grace=0"]).tables["findings"]
    five_files.give(monkeypatch, ONLYONCE_ALERT_LAG_MINUTES=str(60 * 24 * 365 * 10))
    patient = doctor.main(["--grace=0"]).tables["findings"]
    structlog.reset_defaults()

    assert (found["finding"], found["where"]) == ("unread input", "shop/receive")
    assert found["what"].startswith("5 files, 150 bytes of the source of shop/receive are unread, the oldest for ")
    assert found["repair"].startswith("onlyonce run shop")
    assert patient == []


def test_lag_says_unread_input_first(five_files: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, with what to do; not while a driver is at work. The reader's role may ask for that."""
    five_files.sql("INSERT INTO onlyonce_private.pipelines (instance, pipeline) VALUES ('shop', 'shop')")
    [[number]] = five_files.sql(
        "INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, kind) "
        "VALUES ('shop/receive/1', 'shop', 'receive', 1, gen_random_uuid(), 'stream') RETURNING incarnation_no"
    ).values.tolist()
    operate.lag()
    idle = capsys.readouterr().out.splitlines()
    url = five_files.environment["ONLYONCE_DATABASE_URL"].replace("+psycopg2", "")
    with closing(psycopg2.connect(url, application_name=f"onlyonce/{number}/1")):
        operate.lag()
    busy = capsys.readouterr().out.splitlines()

    waiting = "input waiting for shop: 5 files, 150 bytes, the oldest since 2026-03-01 12:00:00Z ("
    assert idle[0].startswith(waiting)
    assert " days " in idle[0]
    assert idle[1] == "  next: onlyonce run shop, or onlyonce resume shop if its schedule is held"
    assert "next:" not in busy[1]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("PIPELINES = ()\n", "no file that was read declares it; name its file: onlyonce {command} --pipelines FILE"),
        (
            "1 / 0\n",
            "d.py can't be loaded: ZeroDivisionError: division by zero; correct the file, then: onlyonce {command}",
        ),
    ],
)
def test_pipeline_that_is_not_loaded_is_named_with_the_reason(
    five_files: Platform,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    content: str,
    reason: str,
) -> None:
    """By lag and status: the log knows the pipeline."""
    five_files.sql("INSERT INTO onlyonce_private.pipelines (instance, pipeline) VALUES ('shop', 'shop')")
    five_files.sql(
        "INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, kind) "
        "VALUES ('shop/receive/1', 'shop', 'receive', 1, gen_random_uuid(), 'stream')"
    )
    file = tmp_path / "d.py"
    file.write_text(content)
    five_files.give(monkeypatch, ONLYONCE_PIPELINES=str(file))

    lag = told(capsys)
    operate.status(as_json=True)
    [status] = json.loads(capsys.readouterr().out)

    for command, row in (("lag", lag), ("status", status)):
        assert (row["backlog_bytes"], row["source_answered"]) == (None, None)
        assert row["backlog_unknown"].startswith("not loaded: ")
        assert row["backlog_unknown"].endswith(reason.format(command=command))


@pytest.fixture
def undeclared(five_files: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Platform:
    """The platform, with the stored answer of the shop in the log, once no file that is read declares the shop."""
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    five_files.sql("INSERT INTO onlyonce_private.pipelines (instance, pipeline) VALUES ('shop', 'shop')")
    five_files.sql(
        "INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, kind) "
        "VALUES ('shop/receive/1', 'shop', 'receive', 1, gen_random_uuid(), 'stream')"
    )
    ask_sources.main([])
    (file := tmp_path / "d.py").write_text("PIPELINES = ()\n")
    five_files.give(monkeypatch, ONLYONCE_PIPELINES=str(file))
    return five_files


def test_doctor_takes_the_stored_answer(undeclared: Platform) -> None:
    """Of a pipeline that no file declares."""
    report = doctor.main(["--grace=0"])
    structlog.reset_defaults()

    [found] = report.tables["findings"]
    assert (found["finding"], found["where"]) == ("unread input", "shop/receive")
    assert found["what"].startswith("150 bytes of the source of shop/receive are unread, the oldest for ")
    assert report.warnings == []


@pytest.mark.parametrize("words", [[], ["shop"]])
def test_doctor_names_a_pipeline_not_looked_at(undeclared: Platform, words: list[str]) -> None:
    """No file declares it, and its stored answer is old."""
    undeclared.sql("UPDATE onlyonce_private.source_answers SET asked_at = asked_at - 3 * asked_every RETURNING 1")
    report = doctor.main(["--grace=0", *words])
    structlog.reset_defaults()

    assert report.title == "doctor: nothing stuck was found; not looked at: shop"
    [warning] = report.warnings
    assert warning.startswith("shop: no file that was read declares it, and no recent answer of its sources is stored")
    assert warning.endswith("onlyonce doctor --pipelines FILE, or add it to ONLYONCE_PIPELINES")


def test_lag_says_why_a_source_is_not_asked(undeclared: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    """As status does, on standard error and not among the columns."""
    said = []
    for command in (operate.lag, operate.status):
        command()
        shown = capsys.readouterr()
        assert "not loaded" not in shown.out
        said.append([line.replace("lag", "status") for line in shown.err.splitlines() if "not known" in line])

    assert said[0] == said[1]
    assert said[0][0].startswith("the unread input of shop is not known: not loaded: ")


def test_lag_says_that_nothing_waits(five_files: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the table of a pipeline without unread input."""
    for number in range(5):
        (five_files.home / "inbox" / "shop" / f"{number}.jsonl").unlink()

    operate.lag("shop")

    first = capsys.readouterr().out.splitlines()[0]
    assert first == "nothing waits for shop: no input is unread, and no stage has rows to read"


def test_status_shows_unread_input(five_files: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a pipeline that has not run."""
    operate.status(as_json=True)

    [row] = json.loads(capsys.readouterr().out)
    assert (row["pipeline"], row["state"], row["backlog_bytes"], row["backlog_records"]) == ("shop", "new", 150, None)


def test_status_for_people_is_short(
    five_files: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One column of unread input, with the number of files; why it is not known comes once, for all pipelines."""
    operate.status()
    waiting = capsys.readouterr()
    for name in ("a", "b", "c", "d"):
        five_files.sql(f"INSERT INTO onlyonce_private.pipelines (instance, pipeline) VALUES ('{name}', '{name}')")
        five_files.sql(
            "INSERT INTO onlyonce_private.incarnations (incarnation, instance, query, ordinal, checkpoint_id, kind) "
            f"VALUES ('{name}/receive/1', '{name}', 'receive', 1, gen_random_uuid(), 'stream')"
        )
    operate.status()
    others = capsys.readouterr()

    assert "5 files, 150 bytes" in waiting.out
    assert "backlog" not in waiting.out
    operate.lag()
    of_several = capsys.readouterr()
    [row] = [line for line in of_several.out.splitlines() if line.startswith("shop ")]
    assert re.fullmatch(r"shop +receive +5 files, 150 bytes +\d.* days.*", row), row
    assert "batches_waiting" not in of_several.out
    assert "onlyonce lag PIPELINE" in of_several.err
    assert "not known:" not in waiting.err
    assert others.out.count("not known") == 4
    [line] = [line for line in others.err.splitlines() if "not known" in line]
    assert line.startswith("the unread input of a, b, c and 1 more is not known: not loaded: ")


@pytest.fixture
def stored(five_files: Platform) -> Platform:
    """The platform, once its sources were asked for alerts and metrics."""
    ask_sources.main([])
    return five_files


def views(platform: Platform) -> dict[str, Any]:
    """What each way to look shows of the unread input of the shop."""
    [row] = platform.sql("SELECT backlog_bytes, backlog_records, oldest_unread_at FROM onlyonce.backlog").to_dict(
        "records"
    )
    figures = metrics.table(metrics.Figures(Database(platform.environment["ONLYONCE_READER_URL"], "test")))
    named = {row["metric"]: row["value"] for row in figures if row["metric"].startswith("onlyonce_backlog")}
    raised = [row["kind"] for row in alerts.main([]).tables["alerts"]]
    return {"bytes": row["backlog_bytes"], "metrics": named.keys(), "alerts": raised}


def test_stored_answer_reaches_views_metrics_and_alerts(stored: Platform) -> None:
    """Until it is older than three intervals: then it is null everywhere, and never the old number."""
    fresh = views(stored)
    stored.sql("UPDATE onlyonce_private.source_answers SET asked_at = asked_at - 3 * asked_every RETURNING 1")
    old = views(stored)

    size, age, answered = (f"onlyonce_backlog_{name}" for name in ("size_bytes", "age_seconds", "answered"))
    assert fresh == {"bytes": 150, "metrics": {size, age, answered}, "alerts": ["unread input"]}
    assert old == {"bytes": None, "metrics": set(), "alerts": []}


def test_failed_request_replaces_the_numbers(stored: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not known to be right any more."""
    monkeypatch.setattr(backlog, "ASKER", backlog.Asker())
    monkeypatch.setattr(backlog, "unread", lambda *_: (_ for _ in ()).throw(OSError("the mount is stale")))
    report = ask_sources.main([])
    now = views(stored)

    assert report.facts["without an answer"] == 1
    assert now == {"bytes": None, "metrics": {"onlyonce_backlog_answered"}, "alerts": ["source away"]}


@pytest.mark.parametrize("kind", ["unread input", "source away"])
def test_command_alerts_asks_the_sources(
    five_files: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Without a driver and without the DAG nothing is stored yet. A failed request is an alert of its own."""
    if kind == "source away":
        monkeypatch.setattr(backlog, "unread", lambda *_: (_ for _ in ()).throw(OSError("the mount is stale")))
    with pytest.raises(typer.Exit) as ended:
        operate.alerts(as_json=True)

    [row] = json.loads(capsys.readouterr().out)["tables"]["alerts"]
    assert (ended.value.exit_code, row["kind"], row["subject"]) == (1, kind, "shop/receive")


TWO = """
from dataclasses import replace
from tests.support.shop import SHOP

PIPELINES = (SHOP, replace(SHOP, name="stall", outputs=(SHOP.output("per_shop"),)))
"""


@pytest.fixture
def two_pipelines(five_files: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """Another pipeline beside the shop, whose inbox has a file of its own; the asker of its process is new."""
    file = tmp_path / "two.py"
    file.write_text(TWO)
    five_files.give(monkeypatch, ONLYONCE_PIPELINES=str(file))
    five_files.put("stall", "0.jsonl", ["x" * 29])
    os.utime(five_files.home / "inbox" / "stall" / "0.jsonl", (NOON.timestamp(),) * 2)
    return five_files


def test_commands_take_one_pipeline(
    two_pipelines: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ask its source alone; a look of the doctor at one pipeline is not kept for the page."""
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    operate.lag("stall", as_json=True)
    lag = json.loads(capsys.readouterr().out)
    operate.status("stall", as_json=True)
    status = json.loads(capsys.readouterr().out)
    found = doctor.main(["stall", "--grace=0"]).tables["findings"]
    kept = len(two_pipelines.sql("SELECT 1 AS one FROM onlyonce.findings"))
    every = doctor.main(["--grace=0"]).tables["findings"]
    structlog.reset_defaults()

    assert [(row["pipeline"], row["backlog_bytes"]) for row in lag] == [("stall", 30)]
    assert [(row["pipeline"], row["backlog_bytes"]) for row in status] == [("stall", 30)]
    assert [one["where"] for one in found] == ["stall/receive"]
    assert kept == 0
    assert [one["where"] for one in every] == ["shop/receive", "stall/receive"]


@pytest.mark.parametrize("command", ["lag", "status", "doctor"])
def test_unknown_pipeline_is_refused(five_files: Platform, command: str) -> None:
    """With a guess."""
    with pytest.raises(Refused, match="shopp"):
        doctor.main(["shopp"]) if command == "doctor" else getattr(operate, command)("shopp")
    structlog.reset_defaults()


@pytest.fixture
def two_sources(five_files: Platform, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A pipeline of two sources that has never run: two files of the web, one of the till."""
    five_files.give(monkeypatch, ONLYONCE_PIPELINES="tests/support/two_sources.py")
    for name, changed_at in (("web/0.jsonl", NOON), ("web/1.jsonl", NOON), ("till/0.csv", NOON - timedelta(hours=1))):
        folder, file = name.split("/")
        path = five_files.put(f"shop/{folder}", file, ["x" * 29])
        os.utime(path, (changed_at.timestamp(),) * 2)
    return five_files


def test_each_of_several_sources_has_a_row(two_sources: Platform, capsys: pytest.CaptureFixture[str]) -> None:
    """And the pipeline has their sum, with the age of the oldest. The view and the doctor have a row for each."""
    operate.lag("shop", as_json=True)
    rows = {row["stage"]: row for row in json.loads(capsys.readouterr().out)}
    ask_sources.main([])
    stored = two_sources.sql("SELECT stage, backlog_bytes FROM onlyonce.backlog ORDER BY stage").values.tolist()

    assert {stage: row["backlog_bytes"] for stage, row in rows.items()} == {
        "receive": 90, "receive/web": 60, "receive/till": 30
    }  # fmt: skip
    assert datetime.fromisoformat(rows["receive"]["oldest_unread_at"]) == NOON - timedelta(hours=1)
    assert stored == [["receive/till", 30], ["receive/web", 60]]


def test_one_of_several_sources_without_answer(
    two_sources: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own numbers and the sum are null; the other source's are not."""
    whole = backlog.unread

    def asked(view: Any, *more: Any) -> model.Backlog:
        if view.part.name == "till":
            raise OSError("the mount is stale")
        return whole(view, *more)

    monkeypatch.setattr(backlog, "unread", asked)
    operate.lag("shop", as_json=True)
    rows = {row["stage"]: row for row in json.loads(capsys.readouterr().out)}

    assert {stage: (row["source_answered"], row["backlog_bytes"]) for stage, row in rows.items()} == {
        "receive": (False, None), "receive/web": (True, 60), "receive/till": (False, None)
    }  # fmt: skip


def test_reader_that_exits_is_a_failed_answer(
    five_files: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of a team may end its thread by any exception. The next request asks again."""
    monkeypatch.setattr(model, "KEPT_SECONDS", 0)
    whole = backlog.unread
    monkeypatch.setattr(backlog, "unread", lambda *_: (_ for _ in ()).throw(SystemExit("3")))
    failed = told(capsys)
    monkeypatch.setattr(backlog, "unread", whole)

    assert (failed["source_answered"], failed["backlog_unknown"]) == (False, "SystemExit: 3")
    assert told(capsys)["backlog_bytes"] == 150


@pytest.fixture
def silent(five_files: Platform, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """A pipeline that has run, with one source of files, and a broker and a store that are silent."""
    shop = Shop(Log(server, five_files.database))
    shop.do(shop.receive())
    source_batches = settings.data_location("shop") / stored_names.SOURCE_BATCHES_MANIFEST
    write_deltalake(str(source_batches), pa.table({stored_names.BATCH_NO: [0], "known": ["{}"]}))
    five_files.put("shop/web", "0.jsonl", ["x" * 29])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        five_files.give(
            monkeypatch, ONLYONCE_PIPELINES="tests/support/silent_sources.py", SILENT_SERVERS=address,
            AWS_ENDPOINT_URL=f"http://{address}", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b",
            AWS_REGION="us-east-1", ONLYONCE_ALERT_LAG_MINUTES="0",
        )  # fmt: skip
        yield five_files


def test_silent_sources_are_named_and_hold_up_no_other(
    silent: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By lag, status and the doctor. A store would be asked again and again for a minute."""
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    operate.lag("shop", as_json=True)
    lag = {row["stage"]: row for row in json.loads(capsys.readouterr().out)}
    operate.status("shop", as_json=True)
    [status] = json.loads(capsys.readouterr().out)
    found = {one["where"]: one for one in doctor.main(["--grace=0"]).tables["findings"]}
    structlog.reset_defaults()

    names = ("receive", "receive/web", "receive/topic", "receive/store")
    assert [lag[name]["source_answered"] for name in names] == [False, True, False, False]
    assert lag["receive/web"]["backlog_bytes"] == 30
    assert lag["receive/store"]["backlog_unknown"] == "no answer within 2 s"
    for row in (lag["receive"], status):
        assert "topic: " in row["backlog_unknown"]
        assert "store: no answer within 2 s" in row["backlog_unknown"]
    assert found["shop/receive/web"]["finding"] == "unread input"
    assert {found[f"shop/receive/{name}"]["finding"] for name in ("topic", "store")} == {"source away"}


def test_program_ends_while_a_source_is_still_asked(silent: Platform) -> None:
    """Its store never answers, and the library that asks it waits for longer than the test does."""
    program = Path(sys.executable).parent / "onlyonce"

    done = subprocess.run(
        [program, "status", "shop", "--json"], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)
    assert "store: no answer within 2 s" in row["backlog_unknown"]


def test_answers_are_printed_as_they_come(
    silent: Platform, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First that no source has answered, then one line for each answer."""
    monkeypatch.setattr(model, "KEPT_SECONDS", 3)
    unread.print_each("shop", [dict(row) for row in read(lambda views: views.rows("taken_in"))])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    answered = [{row["stage"] for row in line if row["source_answered"]} for line in lines]
    assert (answered[0], answered[-1]) == (set(), {"receive/web"})
    assert {row["stage"]: row["backlog_unknown"] for row in lines[0]}["receive/web"] == "no answer within 2 s"
