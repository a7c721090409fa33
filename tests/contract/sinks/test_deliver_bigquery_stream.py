"""BigQuery's write streams, with Google's own client: units of the outbox reach a server that refuses a repeated
offset, and misbehaves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from onlyonce.api.pipeline import BigQuery, BigQueryStream
from onlyonce.core.errors import OnlyonceError, Refused, Retryable
from onlyonce.failpoints import FailPoint
from onlyonce.sinks.outbox import deliver, send_bigquery
from tests.contract.conftest import Log
from tests.contract.outboxes import Outbox, Row, ids, run_process, sales
from tests.support.platform import free_port
from tests.support.write_streams import Fault, WriteStreams

SINK = BigQueryStream(table="p.d.t")


@pytest.fixture
def box(log: Log, monkeypatch: pytest.MonkeyPatch) -> Outbox:
    """The outbox of a BigQuery table. Requests are small."""
    monkeypatch.setattr(send_bigquery, "REQUEST_BYTES", 300)
    return Outbox(log, "streamed")


def send(box: Outbox, server: WriteStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    """One delivery to a server."""
    monkeypatch.setenv(send_bigquery.EMULATOR, server.address)
    assert box.deliver(SINK)


def test_each_unit_is_a_stream_whose_rows_become_visible_as_one(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """In few requests; the outbox has the stream's name, and a second delivery asks nobody."""
    units = [sales(20), [row | {"id": f"b{row['id']}"} for row in sales(30)]]
    for rows in units:
        box.put(rows)
    with WriteStreams() as server:
        send(box, server, monkeypatch)
        asked = len(server.requests)
        send(box, server, monkeypatch)

    assert server.ids() == ids(units[0] + units[1])
    assert sorted(len(stream.rows) for stream in server.streams.values()) == [20, 30]
    assert asked == len(server.requests) < 40
    assert {stream for (stream,) in box.log.rows("SELECT DISTINCT stream FROM onlyonce.outbox")} == set(server.streams)
    assert box.states() == Counter({("delivered",): 50})


def test_values_arrive_as_the_types_of_the_table(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last digit and microsecond; null is null."""
    row = {
        "id": "a",
        "shop": None,
        "n": 2**62,
        "at": "2026-01-01T00:00:00.123456Z",
        "day": "2026-02-28",
        "text": '🛒 " é\n',
    }
    box.put([row], key=None)
    box.log.rows(
        'UPDATE onlyonce_private.outbox SET payload = left(payload, -1) || \', "amount": '
        "12345678901234567890.123456789}'"
    )
    with WriteStreams() as server:
        send(box, server, monkeypatch)

    assert server.rows() == [
        row
        | {
            "at": datetime(2026, 1, 1, 0, 0, 0, 123456, UTC),
            "day": date(2026, 2, 28),
            "amount": Decimal("12345678901234567890.123456789"),
        }
    ]


FAULTS: list[Fault] = ["", "lost before", "lost after", "too busy", "twice"]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))])
def test_whatever_is_lost_each_row_is_there_once(box: Outbox, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Requests of any kind, answers of any request, the process between two of its steps, the server: against the rows
    that were put."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for unit in range(3):
        mine = [row | {"id": f"{unit} {row['id']}"} for row in sales(chance.randrange(1, 40))]
        box.put(mine)
        rows += mine
    ends = chance.randrange(3, 30)
    passed = 0

    def ended(name: str) -> None:
        nonlocal passed
        passed += 1
        if passed % ends == 0 and passed < 60:
            raise FailPoint(name)

    monkeypatch.setattr(send_bigquery, "passing", ended)
    monkeypatch.setattr(deliver, "passing", ended)
    server = WriteStreams(
        lambda number, _: chance.choice(FAULTS) if number < 60 and chance.random() < 0.25 else "",
        finalized_first=seed % 2 == 1,
    )
    for _ in range(60):
        with server, suppress(OnlyonceError, FailPoint):
            monkeypatch.setattr(
                send_bigquery, "REQUEST_BYTES", chance.choice([120, 300, 1000])
            )  # as of another version
            send(box, server, monkeypatch)
            break

    assert server.ids() == ids(rows)
    assert box.states() == Counter({("delivered",): len(rows)})
    assert box.log.rows("SELECT count(*) FROM onlyonce.outbox WHERE uncertain") == [(0,)]


POINTS = [
    "deliver-unit-before-begin", "deliver-unit-after-begin", "bigquery-after-stream", "bigquery-after-note", "bigquery-after-append",
    "bigquery-after-rows", "bigquery-after-end", "deliver-unit-after-write", "deliver-unit-after-record",
]  # fmt: skip


@pytest.mark.parametrize(
    "point", [p if p == "deliver-unit-after-write" else pytest.param(p, marks=pytest.mark.whole) for p in POINTS]
)
def test_a_kill_at_any_point_does_not_show(
    box: Outbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str
) -> None:
    """SIGKILL of the deliverer; the next one goes on in the same stream."""
    rows = sales(20)
    box.put(rows)
    with WriteStreams() as server:
        monkeypatch.setenv(send_bigquery.EMULATOR, server.address)
        code, output = run_process(box.log, server.address, tmp_path, point, pipelines="tests/support/streaming.py")
        assert code == -9, output[-2000:]
        send(box, server, monkeypatch)

    assert server.ids() == ids(rows)
    assert len([stream for stream in server.streams.values() if stream.rows]) == 1


def test_of_two_that_write_a_unit_at_once_one_is_seen(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was overtaken goes on in the same stream: the server has each offset once, and is committed once."""
    rows = sales(20)
    box.put(rows)
    with WriteStreams() as server:
        monkeypatch.setenv(send_bigquery.EMULATOR, server.address)
        wrote = send_bigquery.BigQueryStreamTarget.write

        def twice(self: Any, unit: str, rows: Any) -> None:
            rows = list(rows)
            wrote(self, unit, iter(rows))
            wrote(self, unit, iter(rows))

        monkeypatch.setattr(send_bigquery.BigQueryStreamTarget, "write", twice)
        assert box.deliver(SINK)

    assert server.ids() == ids(rows)


def test_a_stream_with_a_part_of_the_rows_is_not_committed(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of one attempt end within those of the next, as of another version: what lies over is refused as a
    whole.

    It is sent again.
    """
    rows = sales(20)
    box.put(rows)
    with WriteStreams(lambda number, _: "lost after" if number == 3 else "") as server:
        with pytest.raises(Retryable):
            send(box, server, monkeypatch)
        monkeypatch.setattr(send_bigquery, "REQUEST_BYTES", 10_000)
        with pytest.raises(Retryable, match=r"its stream has \d+ rows of 20"):
            send(box, server, monkeypatch)
        assert server.rows() == []
        send(box, server, monkeypatch)

    assert server.ids() == ids(rows)


REFUSED: dict[str, tuple[Callable[[WriteStreams], object], str]] = {
    "no such column": (lambda server: server.columns.pop("n"), "unexpected field"),
    "another type": (lambda server: server.columns.update(shop="INT64"), "can't hold its rows"),
    "a type that does not travel": (lambda server: server.columns.update(raw="BYTES"), "column raw of p.d.t is BYTES"),
    "a row that the server rejects": (
        lambda server: setattr(server, "rejects", lambda row: row["n"] == 7),
        "rejects row 7: no such shop",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_the_table_cannot_hold_is_refused_and_nothing_of_the_unit_is_seen(
    box: Outbox, monkeypatch: pytest.MonkeyPatch, case: tuple[Callable[[WriteStreams], object], str]
) -> None:
    """With the cause; when it is gone the same unit is delivered."""
    rows, (broken, says) = sales(20), case
    box.put(rows)
    server = WriteStreams()
    broken(server)
    with server, pytest.raises(Refused, match=says):
        send(box, server, monkeypatch)
    assert server.rows() == []
    assert box.states() == Counter({("waiting",): 20})

    well = WriteStreams(streams=server.streams)
    with well:
        send(box, well, monkeypatch)
    assert well.ids() == ids(rows)


def test_a_stream_that_the_server_has_forgotten_is_refused(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was committed can't be asked, so its rows are not sent again."""
    box.put(sales(5))
    with WriteStreams(lambda _, name: "lost after" if name == "BatchCommitWriteStreams" else "") as server:
        with pytest.raises(Retryable):
            send(box, server, monkeypatch)
        server.streams.clear()
        with pytest.raises(Refused, match=r"does not find p\.d\.t, or the stream of the unit"):
            send(box, server, monkeypatch)

    assert server.rows() == []


def test_a_server_that_is_away_takes_nothing_and_all_comes_when_it_is_back(
    box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retryable, with what it means for the rows."""
    rows = sales(5)
    box.put(rows)
    monkeypatch.setenv(send_bigquery.EMULATOR, f"127.0.0.1:{free_port()}")
    with pytest.raises(Retryable, match="BigQuery has not said whether it was done"):
        box.deliver(SINK)
    with WriteStreams() as server:
        send(box, server, monkeypatch)

    assert server.ids() == ids(rows)


def test_a_unit_of_which_insert_ids_have_sent_a_part_is_refused(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else that part would be there twice."""
    box.put(sales(5))
    box.log.rows(
        "UPDATE onlyonce_private.outbox SET state = 'delivered', attempts = 1, answered_at = now() WHERE seq = 0"
    )
    with WriteStreams() as server, pytest.raises(Refused, match="sent in another way"):
        send(box, server, monkeypatch)

    assert server.streams == {}


def test_units_in_a_lost_write_stream_are_not_inserted(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else their rows would be there twice.

    With the sink as it was they are found, and later rows go by insert ids.
    """
    box.put(sales(5))
    with WriteStreams(lambda _, name: "lost after" if name == "BatchCommitWriteStreams" else "") as server:
        with pytest.raises(Retryable):
            send(box, server, monkeypatch)
        with pytest.raises(Refused, match="may be in its table already") as refused:
            box.deliver(BigQuery(table=SINK.table))
        assert box.states() == Counter({("waiting",): 5})
        send(box, server, monkeypatch)

    assert server.ids() == ids(sales(5))
    assert "declare the sink as it was" in refused.value.hint
    assert box.deliver(BigQuery(table=SINK.table))


def test_units_of_a_killed_attempt_are_not_inserted(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are still being sent, by the log; they neither wait nor are dead letters of the new sink."""
    box.put(sales(5))
    box.log.rows("UPDATE onlyonce_private.outbox SET attempts = 1000")
    with WriteStreams() as server:
        monkeypatch.setattr(deliver, "passing", killed_at("deliver-unit-after-write"))
        with pytest.raises(FailPoint):
            send(box, server, monkeypatch)
        monkeypatch.setattr(deliver, "passing", killed_at(""))
        with pytest.raises(Refused, match="may be in its table already"):
            box.deliver(BigQuery(table=SINK.table))
        send(box, server, monkeypatch)

    assert server.ids() == ids(sales(5))
    assert box.states() == Counter({("delivered",): 5})


@pytest.mark.parametrize("finalized_first", [False, True])
def test_a_kill_before_the_commit_does_not_show(
    box: Outbox, monkeypatch: pytest.MonkeyPatch, finalized_first: bool
) -> None:
    """Google does not say whether an append to a finalized stream is refused for that, or for its offset."""
    box.put(sales(20))
    with WriteStreams(finalized_first=finalized_first) as server:
        monkeypatch.setattr(send_bigquery, "passing", killed_at("bigquery-after-end"))
        with pytest.raises(Retryable, match="FailPoint"):
            send(box, server, monkeypatch)
        monkeypatch.setattr(send_bigquery, "passing", killed_at(""))
        assert server.rows() == []
        send(box, server, monkeypatch)

    assert server.ids() == ids(sales(20))
    assert len(server.streams) == 1


ANOTHER = BigQueryStream(table="p.d.another")


def test_unit_goes_whole_to_another_declared_table(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream of the old table, with some of its rows, is never committed."""
    box.put(sales(20))
    with WriteStreams(lambda number, _: "lost after" if number == 4 else "", tables={"t", "another"}) as server:
        with pytest.raises(Retryable):
            send(box, server, monkeypatch)
        assert box.deliver(ANOTHER)

    assert (server.rows(), server.ids("another")) == ([], ids(sales(20)))


def test_unit_of_another_table_is_found_there(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to its commit was lost, and then another table was declared: it is not sent again."""
    box.put(sales(20))
    with WriteStreams(
        lambda _, name: "lost after" if name == "BatchCommitWriteStreams" else "", tables={"t", "another"}
    ) as server:
        with pytest.raises(Retryable):
            send(box, server, monkeypatch)
        assert box.deliver(ANOTHER)

    assert (server.ids(), server.rows("another")) == (ids(sales(20)), [])
    assert box.states() == Counter({("delivered",): 20})


def test_unit_of_a_removed_table_goes_whole_to_another(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that the removed table may have had are gone with it."""
    box.put(sales(20))
    with WriteStreams(lambda number, _: "lost after" if number == 4 else "", tables={"t", "another"}) as server:
        with pytest.raises(Retryable):
            send(box, server, monkeypatch)
        server.tables.remove("t")
        assert box.deliver(ANOTHER)

    assert server.ids("another") == ids(sales(20))


def test_forgotten_stream_of_another_table_is_refused(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old table may have the rows, and can't be asked for them."""
    box.put(sales(5))
    with WriteStreams(lambda number, _: "lost after" if number == 3 else "", tables={"t", "another"}) as server:
        with pytest.raises(Retryable):
            send(box, server, monkeypatch)
        server.streams.clear()
        with pytest.raises(Refused, match=r"does not find its write stream projects/p/datasets/d/tables/t/"):
            box.deliver(ANOTHER)

    assert server.streams == {}


def test_topic_that_kafka_has_noted_is_no_write_stream(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output had a KafkaSink, whose attempt has failed: the unit goes to the table whole."""
    box.put(sales(5))
    box.log.rows("UPDATE onlyonce_private.outbox SET attempts = 1, stream = 'sales.onlyonce-units'")
    with WriteStreams() as server:
        send(box, server, monkeypatch)

    assert server.ids() == ids(sales(5))


def killed_at(point: str) -> Callable[[str], None]:
    """End the deliverer at a fail-point."""

    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    return passing
