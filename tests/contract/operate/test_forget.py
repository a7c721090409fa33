"""An erasure without Spark: what goes, what stays, what is refused, and what a kill at any step leaves."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet
from typer.testing import CliRunner

from onlyonce import settings
from onlyonce.api.joins_and_state import Join
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, PubSub
from onlyonce.cli import app
from onlyonce.commitlog import backfills
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.removals import Removals
from onlyonce.core import erasure, line_values
from onlyonce.core.batch import to_micros
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.frontier import Frontier
from onlyonce.core.runs import Report
from onlyonce.core.windows import Fixed
from onlyonce.database.connect import Database, ask, run
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit, compact, erase_inputs, erase_rows, erase_search, forget
from onlyonce.records import trace
from onlyonce.run import reset
from onlyonce.sinks import targets
from onlyonce.sources import pubsub_lines, record_id
from onlyonce.tables import commit, opening, rewrite
from tests.contract.shop import MINUTE, Shop, at, shop  # noqa: F401 - a fixture
from tests.support.erasure_places import plants

COMPUTE_AGAIN = forget._compute_again
WHO = "u17-secret"
SECOND = MINUTE / 60
BROKEN = f'{{"id":"{WHO}", broken'
LINES = [f'{{"id":"{WHO}","at":"2026-01-01T00:00:00Z"}}', '{"id":"other"}', f'{{"id":"{WHO}0"}}', BROKEN]


@pytest.fixture
def closed(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:  # noqa: F811
    """Three batches, the last of which closes what the others have; an input file that was taken in, and a copy in the
    archive."""
    monkeypatch.setattr(audit, "SECOND_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(forget, "_compute_again", lambda *_: [])
    monkeypatch.setenv("ONLYONCE_ARCHIVE", str(tmp_path / "archive"))
    shop.receive((WHO, at(0)), ("other", at(0)), (BROKEN, "no JSON"))
    shop.receive(("later", at(3)), (WHO, at(4)))
    shop.receive(("last", at(60)))
    for query in ("per_shop", "balance"):
        shop.output(query, closes=(at(0), at(3)))
        shop.output(query)
    for folder in (settings.inbox("shop"), tmp_path / "archive" / "shop"):
        folder.mkdir(parents=True)
        (folder / "1.jsonl").write_text("\n".join(LINES) + "\n")
    for folder in passing_by():
        folder.mkdir(parents=True)
        (folder / "left-by-a-killed-driver").write_text(WHO)
    entry = {"path": [str(settings.inbox("shop") / "1.jsonl")], "batch_no": [0], "size": [1], "modified_ns": [1]}
    write_deltalake(
        str(settings.data_dir("shop") / "files"), pa.table(entry | {"refusal": pa.array([None], pa.string())})
    )
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "logs" / "stream.log").write_text(f"begun\nValueError: {WHO} is wrong\n")
    shop.die()
    return shop


def places(shop: Shop) -> list[str]:  # noqa: F811
    """The places that the decoding search finds."""
    mentions = Mentions(erasure.read_conditions(f"id = '{WHO}'", {"id": "string"}))
    return [place.at for place in erase_search.search_everything(shop.log.database, shop.pipeline, mentions)]


def passing_by() -> tuple[Path, Path]:
    """Where records are for a batch's time."""
    return settings.blocks_dir("shop"), settings.data_dir("shop") / "trials"


def erase(*more: str, where: str = f"id = '{WHO}'") -> Report:
    """As the command does it."""
    return forget.main(["shop", "--where", where, "--by", "privacy desk", "--yes", *more])


def rows(shop: Shop) -> Counter[str]:  # noqa: F811
    """All rows of `events`."""
    found = DeltaTable(str(shop.events)).to_pyarrow_table().to_pylist()
    return Counter(repr(sorted(row.items())) for row in found)


def on_disk(shop: Shop) -> list[str]:  # noqa: F811
    """The rows of every data file of `events` that is on the disk, whether the table has it or not, that name the
    person."""
    tables = (
        parquet.read_table(file, partitioning=None)
        for file in shop.events.rglob("*.parquet")
        if opening.LOG not in file.parts
    )
    return [str(row) for table in tables for row in table.to_pylist() if WHO in str(row)]


def in_the_log(shop: Shop) -> list[str]:  # noqa: F811
    """The tables of the database in which the value is."""
    tables = shop.log.rows(
        "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables WHERE schemaname LIKE "
        "'onlyonce%'"
    )
    return [name for (name,) in tables if shop.log.rows(f"SELECT 1 FROM {name} t WHERE t::text LIKE '%{WHO}%'")]


def check(shop: Shop, before: Counter[str]) -> None:  # noqa: F811
    """What must be after an erasure, however it came about."""
    assert rows(shop) == Counter({row: n for row, n in before.items() if WHO not in row})
    assert (on_disk(shop), in_the_log(shop), places(shop)) == ([], [], [])
    assert [folder for folder in passing_by() if folder.exists()] == []
    for file in (settings.inbox("shop") / "1.jsonl", Path(str(settings.archive()), "shop", "1.jsonl")):
        assert file.read_text().splitlines() == [" " * len(LINES[0]), LINES[1], LINES[2], " " * len(BROKEN)]
        assert [*file.parent.iterdir()] == [file]
    assert list(audit._events(shop.log.database, "shop", shop.events)) == []
    [receipt] = shop.log.rows(
        "SELECT kind, state, columns, asked_by, kept, invalid, lines, windows FROM onlyonce.removals"
    )
    assert receipt == ("erasure", "done", ["id"], "privacy desk", 1, 1, 4, 1)
    assert shop.log.rows("SELECT todo, ids FROM onlyonce_private.erasures") == [(None, None)]


@plants(
    "blocks and trials",
    "messages of a subscription",
    "write-ahead log",
    "backups",
    "Airflow's database",
    "run log",
    "inbox",
    "archive",
)
def test_records_go_from_everywhere_and_a_receipt_without_their_values_stays(closed: Shop) -> None:
    """A look alone changes nothing.

    Files keep their size and time, and the manifest knows them as they were. What can't be erased is told.
    """
    before, file = rows(closed), settings.inbox("shop") / "1.jsonl"
    mark = file.stat()
    closed.log.rows(
        "INSERT INTO onlyonce_private.subscriptions (subscription, pipeline) VALUES "
        "('projects/p/subscriptions/s', 'shop')"
    )
    assert {Path(place).parent.name for place in places(closed)} >= {"_delta_log", "logs", "shop", "blocks", "trials"}
    assert forget.main(["shop", "--where", f"id = '{WHO}'"]).facts["lines of input files"] == 4
    assert (rows(closed), file.read_text().count(WHO)) == (before, 3)

    report = erase()

    check(closed, before)
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (mark.st_size, mark.st_mtime_ns)
    assert opening.added(closed.events, commit.latest(closed.events)) == []
    left = {row["place"]: row["goes"] for row in report.tables[forget.LEFT]}
    assert any(place.startswith("output balance") for place in left)
    assert {one.place for one in forget.UNKNOWN} < left.keys()
    assert "write-ahead log of PostgreSQL" in left
    assert left["messages of the Pub/Sub subscription projects/p/subscriptions/s"] == forget.PUBSUB_GOES
    found, _ = trace.trace(closed.log.database, closed.pipeline, "shop", record_id.asked(closed.pipeline, [WHO]))
    assert found.warnings[0].startswith("erased")
    assert erase().run_id == "dry run"  # there is nothing any more


def test_a_new_incarnation_that_has_not_run_holds_up_no_erasure(closed: Shop) -> None:
    """The windows that the incarnation before it has closed are its own.

    So the next person is erased before a run, and the audit agrees.
    """
    reaches = [reach(closed)]
    for query in ("per_shop", "balance"):
        reset.new(f"shop/{query}", yes=True)
    reaches.append(reach(closed))

    receipts = [erase().facts, erase(where="id = 'other'").facts]

    assert reaches[0] == reaches[1] != backfills.Reach(-1, Frontier())
    assert [facts["windows"] for facts in receipts] == [1, 1]
    assert [row for row in rows(closed) if WHO in row or "other" in row] == []
    assert list(audit._events(closed.log.database, "shop", closed.events)) == []


def reach(shop: Shop) -> backfills.Reach:  # noqa: F811
    """How far the output with windows has come."""
    return Backfills(shop.log.database).reach("shop", "per_shop")


POINTS = [
    "forget-after-begin", "forget-after-count", "remove-before-commit", "remove-after-commit", "forget-before-sweep", "forget-after-records",
    "forget-before-file", "forget-after-files", "forget-after-copies", "forget-after-state", "forget-after-leftovers", "forget-before-end",
]  # fmt: skip


SAMPLE = ("forget-after-begin", "remove-after-commit", "forget-before-file")
"""The others are in make test-all."""


@pytest.mark.parametrize(
    "point", [pytest.param(one, marks=() if one in SAMPLE else pytest.mark.whole) for one in POINTS]
)
def test_a_kill_at_any_step_is_finished_by_the_same_command(
    closed: Shop, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Another condition has to wait, and so does a removal by age; a compaction between is no matter."""
    before = rows(closed)

    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        for module in (forget, erase_search, erase_rows, erase_inputs, rewrite):
            armed.setattr(module, "passing", passing)
        with pytest.raises(FailPoint):
            erase()
    assert list(audit._events(closed.log.database, "shop", closed.events)) == []
    with pytest.raises(Refused, match="has not ended"):
        erase(where="id = 'other'")
    compact.compact(closed.log.database, "shop", [], dry_run=False)
    assert Removals(closed.log.database).under_way("shop") == ["erasure 1"]
    erase()

    check(closed, before)


def at_work(shop: Shop) -> None:  # noqa: F811
    """A driver."""
    shop.work()


def unread(shop: Shop) -> None:  # noqa: F811
    """A batch with such a record that the outputs have not read."""
    shop.receive((WHO + "x", at(61)))
    shop.log.rows("UPDATE onlyonce_private.batches SET state = state")
    shop.die()


def open_window(shop: Shop) -> None:  # noqa: F811
    """The record's window is not closed: its event time is the newest."""
    shop.receive((WHO + "x", at(70)))
    for query in ("per_shop", "balance"):
        shop.output(query)
        shop.output(query)
    shop.die()


def not_taken_in(shop: Shop) -> None:  # noqa: F811
    """A file that no run has seen."""
    (settings.inbox("shop") / "2.jsonl").write_text(f'{{"id":"{WHO}x"}}\n')


def unsent(shop: Shop) -> None:  # noqa: F811
    """A row that waits in the outbox."""
    shop.log.rows(
        "INSERT INTO onlyonce_private.outbox (instance, output, unit, seq, checkpoint_id, payload) "
        "VALUES ('shop', 'mails', 'u', 0, gen_random_uuid(), %s)", f'{{"id":"{WHO}x"}}',
    )  # fmt: skip


IN_USE: dict[str, tuple[Callable[[Shop], None], type[Exception], str]] = {
    "a driver at work": (at_work, Refused, "a driver of shop/"),
    "not read by an output": (unread, Retryable, "has not read on"),
    "an open window": (open_window, Retryable, "open windows"),
    "input that is not taken in": (not_taken_in, Retryable, "2.jsonl is not taken in"),
    "rows that are not sent": (unsent, Retryable, "mails has not sent"),
}


@pytest.mark.parametrize("name", IN_USE)
def test_records_that_are_still_in_use_are_not_erased_yet(closed: Shop, name: str) -> None:
    """Nothing is changed, and the error says what to wait for."""
    use, kind, said = IN_USE[name]
    use(closed)
    before = rows(closed)

    with pytest.raises(kind, match=said):
        erase(where=f"id = '{WHO}{'' if name == 'a driver at work' else 'x'}'")

    assert rows(closed) == before
    assert closed.log.rows("SELECT * FROM onlyonce_private.removals") == []


def test_erasure_is_refused_if_a_driver_starts_before_it_begins(closed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard was passed, and is asked again under the lock."""
    before, guard = rows(closed), forget.refuse_in_use

    def passed(*asked: Any) -> None:
        guard(*asked)
        closed.work()

    monkeypatch.setattr(forget, "refuse_in_use", passed)
    with pytest.raises(Refused, match="a driver of shop/"):
        erase()

    assert rows(closed) == before
    assert closed.log.rows("SELECT * FROM onlyonce_private.removals") == []


def test_no_first_batch_begins_until_an_erasure_has_ended(closed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would read all of `events`: neither a new incarnation, nor one that was registered before the erasure began."""
    closed.open("total")
    closed.die()

    def passing(name: str) -> None:
        raise FailPoint(name)

    with monkeypatch.context() as armed:
        armed.setattr(forget, "passing", passing)
        with pytest.raises(FailPoint):
            erase()

    for query in ("total", "new"):
        with pytest.raises(Retryable, match="records of shop are being erased"):
            Removals(closed.log.database).register("shop", query)
    with pytest.raises(Retryable, match="records of shop are being erased"):
        closed.output("total")
    Removals(closed.log.database).register("shop", "per_shop")
    closed.die()
    erase()
    closed.output("total")


def test_records_in_files_below_folders_are_erased_once_they_are_taken_in(
    closed: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a recursive inbox, and in the archive."""
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/deep_shop.py")
    files = [settings.inbox("shop") / "dt=1" / "a.jsonl", Path(str(settings.archive()), "shop", "dt=1", "b.jsonl")]
    for file in files:
        file.parent.mkdir()
        file.write_text("\n".join(LINES) + "\n")
    with pytest.raises(Retryable, match=r"a\.jsonl is not taken in yet"):
        erase()

    entry = {"path": [str(files[0])], "batch_no": [0], "size": [1], "modified_ns": [1]}
    write_deltalake(
        str(settings.data_dir("shop") / "files"),
        pa.table(entry | {"refusal": pa.array([None], pa.string())}),
        mode="append",
    )
    erase()

    assert [file.read_text().count(WHO) for file in files] == [1, 1]  # the id of another record begins alike


def test_erasure_waits_for_a_pipeline_with_a_link_to_the_inbox(
    closed: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest has the file by another path."""
    link = tmp_path / "link"
    link.symlink_to(settings.inbox("shop"))
    text = Path("tests/support/shop.py").read_text().replace('name="shop",\n', 'name="other",\n', 1)
    text = text.replace("source=Files(", f'source=Files(inbox="{link}", ').replace('"results.', '"elsewhere.')
    (tmp_path / "other.py").write_text(text)
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"tests/support/shop.py{os.pathsep}{tmp_path}/other.py")
    with pytest.raises(Retryable, match=r"1\.jsonl is not taken in yet"):
        erase()

    passed_by = {"path": [str(link / "1.jsonl")], "batch_no": [-1], "size": [1], "modified_ns": [1]}
    write_deltalake(
        str(settings.data_dir("other") / "files"), pa.table(passed_by | {"refusal": pa.array([None], pa.string())})
    )
    report = erase()

    assert any("other, which reads the same inbox" in row["place"] for row in report.tables[forget.LEFT])


def test_erasure_waits_for_no_pipeline_that_skips_the_folder(
    closed: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not recursive never takes in the files below folders."""
    inbox = settings.inbox("shop")
    (inbox / "1.jsonl").unlink()
    file = inbox / "dt=1" / "a.jsonl"
    file.parent.mkdir()
    file.write_text("\n".join(LINES) + "\n")
    text = Path("tests/support/shop.py").read_text().replace('name="shop",\n', 'name="other",\n', 1)
    text = text.replace("source=Files(", f'source=Files(inbox="{inbox}", ')
    (tmp_path / "other.py").write_text(text.replace('"results.', '"elsewhere.'))
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"tests/support/deep_shop.py{os.pathsep}{tmp_path}/other.py")
    entry = {"path": [str(file)], "batch_no": [0], "size": [1], "modified_ns": [1]}
    write_deltalake(
        str(settings.data_dir("shop") / "files"),
        pa.table(entry | {"refusal": pa.array([None], pa.string())}),
        mode="append",
    )

    erase()

    assert file.read_text().count(WHO) == 1  # the id of another record begins alike


def test_erasure_waits_for_the_pipelines_of_its_files(
    closed: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If `--pipelines` names files, whatever ONLYONCE_PIPELINES names."""
    text = Path("tests/support/shop.py").read_text().replace('name="shop",\n', 'name="other",\n', 1)
    text = text.replace("source=Files(", f'source=Files(inbox="{settings.inbox("shop")}", ')
    (tmp_path / "other.py").write_text(text.replace('"results.', '"elsewhere.'))
    files = ("--pipelines", "tests/support/shop.py", "--pipelines", str(tmp_path / "other.py"))

    with pytest.raises(Retryable, match=r"1\.jsonl is not taken in yet"):
        erase(*files)

    entry = {"path": [str(settings.inbox("shop") / "1.jsonl")], "batch_no": [-1], "size": [1], "modified_ns": [1]}
    write_deltalake(
        str(settings.data_dir("other") / "files"), pa.table(entry | {"refusal": pa.array([None], pa.string())})
    )
    report = erase(*files)

    assert any("other, which reads the same inbox" in row["place"] for row in report.tables[forget.LEFT])


@pytest.mark.parametrize(
    ("time", "within", "windows"),
    [
        (at(1) + 10 * SECOND, 30 * SECOND, [at(0)]),
        (at(2) + 50 * SECOND, 30 * SECOND, [at(3)]),
        (at(6) + 10 * SECOND, 200 * SECOND, [at(3)]),
        (at(1) + 40 * SECOND, 30 * SECOND, []),
    ],
    ids=["the window before", "the window after", "a window farther away", "none"],
)
def test_window_of_the_other_record_of_a_join_is_computed_again(
    closed: Shop, time: datetime, within: timedelta, windows: list[datetime]
) -> None:
    """The record's own window has no row."""
    found = erase_rows.windows_again(closed.log.database, joined(within), [time])

    assert [start for spans in found.values() for start, _ in spans] == [to_micros(start) for start in windows]


def test_erasure_waits_until_the_window_of_the_other_record_is_closed(closed: Shop) -> None:
    """The record's own window is closed."""
    records = erase_rows.Records(times=[at(2) + 50 * SECOND])
    database, join = closed.log.database, joined(30 * SECOND)
    assert erase_rows.windows_upto(database, join, records) >= 0
    closed.log.rows(f"UPDATE onlyonce_private.panes SET final = false WHERE window_start = '{at(3)}' RETURNING output")

    with pytest.raises(Retryable, match="output per_shop has open windows with these records"):
        erase_rows.windows_upto(database, join, records)

    erase_rows.windows_upto(database, join, replace(records, times=[at(2) + 20 * SECOND]))


def joined(within: timedelta) -> Pipeline:
    """The pipeline whose output `per_shop` is a join."""
    join = Join(left="m:left", right="m:right", on="id", within=within)
    output = Output(name="per_shop", join=join, window=Fixed(MINUTE), sink=Delta())
    return Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=[output]
    )


@pytest.mark.parametrize("alias", ["id", "Nummer"])
def test_what_was_sent_goes_from_the_outbox(
    closed: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alias: str
) -> None:
    """By the columns of the row that was sent, whatever the source calls them."""
    declared = (
        "from dataclasses import replace\n\nfrom tests.support.shop import SHOP\n\nPIPELINES = [replace(SHOP, "
        "aliases={'id': %r})]\n"
    )
    (tmp_path / "pipelines.py").write_text(declared % alias)
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(tmp_path / "pipelines.py"))
    for number, who in enumerate((WHO, "other")):
        closed.log.rows(
            "INSERT INTO onlyonce_private.outbox (instance, output, unit, seq, checkpoint_id, payload, state, attempts, " "answered_at) "
            "VALUES ('shop', 'mails', 'u', %s, gen_random_uuid(), %s, 'delivered', 1, now())", number, f'{{"id":"{who}"}}',
        )  # fmt: skip

    erase()

    assert closed.log.rows("SELECT payload FROM onlyonce_private.outbox") == [('{"id":"other"}',)]


def received_later(closed: Shop, *lines: Any) -> None:
    """Take some lines in by new drivers, and let the outputs read them."""
    closed.drivers["receive"] = closed.log.restart(closed.drivers["receive"])
    closed.receive(*lines)
    for query in ("per_shop", "balance"):
        closed.drivers[query] = closed.log.restart(closed.drivers[query])
        closed.output(query)
        closed.output(query)
    closed.die()


@pytest.mark.parametrize("code", ["latin-1", "utf-16-le", "utf-16-be"])
def test_line_in_another_encoding_goes(closed: Shop, code: str) -> None:
    """Such a record is invalid, and `events` has its bytes in hexadecimal. The line is blanked, byte by byte."""
    who = "renée-secret"
    line = f'{{"id":"{who}"}}'.encode(code)
    received_later(closed, (line.hex().upper(), f"{line_values.NOT_UTF8}; …"))
    file = settings.inbox("shop") / "1.jsonl"
    file.write_bytes(line + b"\n" + LINES[1].encode() + b"\n")

    report = erase(where=f"id = '{who}'")

    assert (report.facts["invalid"], report.facts["lines"]) == (1, 1)
    assert file.read_bytes() == b" " * len(line) + b"\n" + LINES[1].encode() + b"\n"


def test_message_that_is_no_record_goes(closed: Shop) -> None:
    """One that was pulled whole is meant by its payload.

    One of Avro or Protobuf has no names of columns, and a longer value is another person's.
    """
    payloads = [f'{{"id":"{who}",}}'.encode() for who in (WHO, f"{WHO}0")]
    pulled = [
        pubsub_lines.line(
            pubsub_lines.Message("ack", "1", {}, payload + end, 1), PubSub(subscription="projects/p/subscriptions/s")
        )
        for payload in payloads
        for end in (b"", b"\xff")
    ]
    framed = [(b"\0\0\0\0\1" + bytes([2 * len(who)]) + who.encode()).hex().upper() for who in (WHO, f"{WHO}0")]
    received_later(
        closed, *((line, "no JSON") for line in pulled), *((line, "the schema does not fit") for line in framed)
    )
    before = rows(closed)

    report = erase()

    assert report.facts["invalid"] == 4  # and the one that was there
    assert sum(before.values()) - sum(rows(closed).values()) == 5


SPELLED = [f'{{"id":"{value}"}}' for value in ("o\\/neil", "o\\u002fneil", "o/neil")]


def test_every_spelling_goes_and_a_record_without_a_line_is_reported(closed: Shop, tmp_path: Path) -> None:
    """From the inbox, the outbox and the invalid rows.

    A receipt names how many records had no line, and the command ends with exit code 1.
    """
    missing = erase().facts[forget.WITHOUT]  # both files have both lines
    (tmp_path / "archive" / "shop" / "1.jsonl").unlink()
    broken = [*(line[:-1] for line in SPELLED), "[" * 3000]
    received_later(
        closed,
        ("o/neil", at(0)),
        *((line, "no JSON") for line in broken),
        (broken[2].encode().hex(), f"{line_values.NOT_UTF8}; …"),
    )
    file = settings.inbox("shop") / "1.jsonl"
    file.write_text("\n".join([*broken, SPELLED[1]]) + "\n")
    for number, line in enumerate(SPELLED):
        closed.log.rows(
            "INSERT INTO onlyonce_private.outbox (instance, output, unit, seq, checkpoint_id, payload, state, attempts, " "answered_at) "
            "VALUES ('shop', 'mails', 'u', %s, gen_random_uuid(), %s, 'delivered', 1, now())", number, line,
        )  # fmt: skip
    before = rows(closed)

    ended = CliRunner().invoke(app, ["forget", "shop", "--where", "id = 'o/neil'", "--yes", "--json"])

    assert (missing, ended.exit_code) == (0, 1)
    assert sum(before.values()) - sum(rows(closed).values()) == 5
    assert {line.strip() for line in file.read_text().splitlines()} == {"", broken[3]}
    assert closed.log.rows("SELECT payload FROM onlyonce_private.outbox") == []
    assert json.loads(ended.stdout)["facts"][forget.WITHOUT] == 1
    assert (
        "input of 1 records: no line of them was found"
        in closed.log.rows("SELECT left_alone FROM onlyonce_private.erasures ORDER BY removal_no")[1][0][0]
    )


def test_lines_of_a_redelivered_record_stand_for_no_other(closed: Shop, tmp_path: Path) -> None:
    """Two records of a person: one has two lines, the other's file was deleted."""
    (tmp_path / "archive" / "shop" / "1.jsonl").unlink()
    condition = erasure.read_conditions(f"shop = '{WHO}'", {"shop": "string"})
    records = erase_rows.Records(Counter(kept=2), ids=[(1, 1), (2, 2)])
    file = settings.inbox("shop") / "1.jsonl"

    def without_line(*ids: str) -> int:
        file.write_text("".join(f'{{"id":"{name}","shop":"{WHO}"}}\n' for name in ids))
        lines = erase_inputs.found_in_files(closed.pipeline, condition)
        return forget.Found(records, lines, [], []).records_without_line

    assert (without_line("a", "a"), without_line("a", "b"), without_line("a")) == (1, 0, 1)


def test_an_output_whose_target_is_away_for_good_can_be_left_out(closed: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The erasure ends, the receipt names it, and the exit code is 1; a name that is not declared is refused."""

    def away(*_: object) -> Any:
        raise Retryable("the target does not answer")

    def stored_of(database: Database, pipeline: Pipeline, output: Output) -> Any:
        found = found_of(database, pipeline, output)
        return (
            SimpleNamespace(root=found.root, files=away, rows=away, clean=away) if output.name == "per_shop" else found
        )

    found_of = targets.stored_of
    monkeypatch.setattr(forget, "_compute_again", COMPUTE_AGAIN)
    monkeypatch.setattr(targets, "stored_of", stored_of)
    monkeypatch.setattr("onlyonce.engine.session.start", lambda *_: None)
    monkeypatch.setattr("onlyonce.outputs.backfill_windows.backfill", lambda *_: None)
    with pytest.raises(Refused, match="no output 'balanse'"):
        erase("--leave", "balanse")
    with pytest.raises(Retryable, match="does not answer"):
        erase()

    report = erase("--leave", "per_shop")

    left = [row for row in report.tables[forget.LEFT] if row["place"].startswith("output per_shop ")]
    assert [row["found"] for row in left] == [
        "not computed again: it was left out by --leave, so rows that were made of these records stay",
        "not searched: it was left out by --leave",
    ]
    assert forget.complete(report) is False
    assert closed.log.rows("SELECT state FROM onlyonce.removals") == [("done",)]


@pytest.mark.parametrize("ids", [False, True])
def test_a_redelivery_is_a_duplicate_unless_the_ids_are_forgotten_too(closed: Shop, ids: bool) -> None:
    """The doctor misses no ids either way."""
    erase(*(["--ids"] if ids else []))
    uneven = run(closed.log.database, lambda conn: ask(conn, "doctor", "uneven_buckets"))
    for query in ("receive",):
        closed.drivers[query] = closed.log.restart(closed.drivers[query])
    closed.receive((WHO, at(0)), ("other", at(0)))

    assert uneven == []
    assert closed.log.rows(
        "SELECT kept, duplicate FROM onlyonce_private.batches WHERE incarnation = 'shop/receive/1' AND batch_id = 3"
    ) == [(1, 1) if ids else (0, 2)]


def test_maintenance_goes_on_after_an_erasure(closed: Shop) -> None:
    """The same transactions are numbered on."""
    erase()
    erase(where="id = 'later'")

    assert closed.log.rows("SELECT removal_no, state FROM onlyonce.removals ORDER BY 1") == [(1, "done"), (2, "done")]
    assert compact.main(["shop"]).warnings == []
