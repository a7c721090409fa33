"""What a run refuses before Spark starts, and what its report says when nothing was new."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from onlyonce import check
from onlyonce.api import load
from onlyonce.cli import checking
from onlyonce.core.errors import DatabaseAway, Refused
from onlyonce.core.runs import Interrupted
from onlyonce.database import connect
from onlyonce.database.connect import Database, run
from onlyonce.engine import session
from onlyonce.run import stream
from tests.contract.shop import Shop, at, shop

__all__ = ["shop"]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark can't start; a run that gets so far ends as by Ctrl-C."""

    def start(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "start", start)


CHANGED = """
import dataclasses
from tests.support.shop import SHOP
PIPELINES = [dataclasses.replace(SHOP, schema=SHOP.schema.replace("weight double", "weight string"))]
"""


@pytest.mark.parametrize("long", [(), ("--continuous",)])
def test_a_changed_declaration_is_refused_before_spark_starts(
    shop: Shop, long: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The log knows under which declaration each incarnation has run."""
    shop.receive(("a", at(0)))
    shop.die()
    file = tmp_path / "changed.py"
    file.write_text(CHANGED)
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(file))

    with pytest.raises(Refused, match=rf"^{file}:4: column weight of"):
        stream.main(["shop", *long])


def test_a_run_that_is_ended_says_so_and_which_windows_are_open(shop: Shop) -> None:
    shop.receive(("a", at(0)), ("b", at(5.5)))
    shop.die()

    with pytest.raises(Interrupted) as ended:
        stream.main(["shop"])
    report = ended.value.report

    assert report.title == "shop: stopped before anything was committed"  # input may wait
    assert report.warnings[-1] == (
        "stopped by Ctrl-C: in total this run committed nothing. `onlyonce run shop` continues from there"
    )
    assert report.tables["open_windows"] == [
        {
            "output": name, "closed_until": at(4.5), "newest_window_ends": at(6), "closes_at_event_time": at(7),
        }
        for name in ("per_shop", "balance")
    ]  # fmt: skip


@pytest.mark.parametrize(("which", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_continuous_run_stopped_while_spark_starts_says_so(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, which: signal.Signals, name: str
) -> None:
    """Its report does not say that nothing was new: input may wait."""
    shop.receive(("a", at(0)))
    shop.die()
    monkeypatch.setattr(session, "start", lambda *_: signal.raise_signal(which))

    report = stream.main(["shop", "--continuous"])

    assert report.title == "shop: stopped before anything was committed"
    assert report.warnings == [
        f"stopped by {name}: in total this run committed nothing. `onlyonce run shop --continuous` continues from there"
    ]


def test_stopped_run_says_what_it_did_in_total() -> None:
    """Records and batches of receive, batches of each output, and the command that continues."""
    fates = [
        {"query": "receive", "batches": 2, "in": 63_000},
        {"query": "per_shop", "batches": 1, "in": 62_000},
        {"query": "total", "batches": 2, "in": 62_000},
    ]
    by = stream.StoppedBy("Ctrl-C", "onlyonce run shop --continuous")

    assert stream.stopped_in_words(by, fates) == (
        "stopped by Ctrl-C: in total this run received 63,000 records in 2 batches and committed outputs per_shop (1 batch), "
        "total (2 batches). `onlyonce run shop --continuous` continues from there"
    )


WITH_DATABASE = """
import dataclasses
from onlyonce import Postgres
from tests.support.shop import SHOP
SINK = Postgres(table="results.mine", connection="MINE_DATABASE")
OUTPUT = dataclasses.replace(SHOP.outputs[0], sink=SINK)
PIPELINES = [dataclasses.replace(SHOP, name="mine", outputs=(OUTPUT,))]
"""


def test_missing_variable_is_refused_before_spark_starts(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By a run and by a check, at the line of the declaration."""
    shop.die()
    file = tmp_path / "mine.py"
    file.write_text(WITH_DATABASE)
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(file))
    monkeypatch.delenv("MINE_DATABASE", raising=False)
    monkeypatch.setattr(session, "start", None)

    for work in (lambda: stream.main(["mine"]), lambda: checking.checked([load.load()["mine"]])):
        with pytest.raises(Refused) as refused:
            work()
        assert refused.value.what == (
            f"{file}:5: output per_shop: the environment variable MINE_DATABASE of a sink's database is not set"
        )


def test_silent_database_of_a_sink_is_named_at_its_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With its kind, address and variable, and with what the server's driver says: once."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = tmp_path / "mine.py"
    file.write_text(WITH_DATABASE.replace("Postgres", "MySQL").replace("results.mine", "mine"))
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(file))
    monkeypatch.setenv("MINE_DATABASE", f"mysql://a:b@127.0.0.1:{port}/x")
    [pipeline] = load.load().values()
    warned: list[str] = []
    monkeypatch.setattr(connect, "_say_again", lambda _: warned.append("again"))

    with checking.one_attempt(), pytest.raises(DatabaseAway) as away:
        check.check_tables(pipeline, pipeline.outputs[0], StructType())

    assert away.value.what.startswith(
        f"{file}:5: output per_shop: the MySQL database at 127.0.0.1:{port}/x did not answer: Can't connect to MySQL"
    )
    assert "The address is in MINE_DATABASE" in away.value.hint
    assert warned == []


def test_check_waits_seconds_for_a_silent_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes the connection and never answers. The error names host and port."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        begun = time.monotonic()
        with checking.few_seconds(), pytest.raises(DatabaseAway, match=f"database at 127.0.0.1:{port}/x did not"):
            run(Database(f"postgresql://a:b@127.0.0.1:{port}/x"), lambda connection: None)

    assert time.monotonic() - begun < 3 * checking.CHECK_SECONDS
