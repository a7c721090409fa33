"""A value is planted in every place that may have one. The decoding search finds it in each; after the erasure it finds what the receipt names, and nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import psycopg2
import pytest

from onlyonce import settings
from onlyonce.database.connect import Database
from onlyonce.declare import loading as declarations
from onlyonce.model.errors import Retryable
from onlyonce.model.operate import erasing
from onlyonce.model.operate.mentions import Mentions
from onlyonce.operate import audit
from onlyonce.operate.erase import forget, search
from tests.support.platform import Platform, Server

pytestmark = pytest.mark.spark

WHO = 'o/né "il\\17'
ESCAPED = json.dumps(WHO).replace("/", "\\/")
WHERE = f"shop = '{WHO}'"

PLACES = {
    "events": "data/shop/events/", "state": "data/shop/checkpoints/per_shop/1/state/", "state of files": "data/shop/checkpoints/filed/1/state/",
    "statistics": "tables/shop/per_shop/_delta_log/", "rows of Delta": "tables/shop/per_shop/", "pending": "files/shop/filed/.pending/",
    "inbox": "inbox/shop/0.jsonl", "compressed inbox": "inbox/shop/packed.jsonl.gz", "archive": "archive/shop/0.jsonl",
    "run log": "logs/stream.log", "JSON log": "logs/json.log", "access log": "logs/airflow.log", "outbox": "table onlyonce_private.outbox",
    "rejected": "table onlyonce_private.rejected", "rows of PostgreSQL": "table results.each",
}  # fmt: skip
"""Each kind of place, and how its name begins below the home."""
STAYS = {"pending", "compressed inbox", "rows of PostgreSQL"}
"""Delivered files and rows, and input that is not ours to change."""


@pytest.fixture
def marked(new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object) -> Platform:
    """A pipeline that has closed the windows of the person's records, and has read on."""
    platform = new_platform("tests/support/marked_shop.py")
    platform.give(monkeypatch, ONLYONCE_ARCHIVE=str(platform.home / "archive"))
    platform.put("shop", "0.jsonl", [line("a", ESCAPED, 0, 7), line("b", json.dumps(WHO), 1, -1), line("c", '"other"', 2, 5)])
    packed = platform.home / "inbox" / "shop" / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(line("d", ESCAPED, 3, 9).encode() + b"\n"))
    platform.run("shop", "--close")
    platform.put("shop", "last.jsonl", [line("z", '"last"', 3600, 1)])
    platform.run("shop", "--close")
    platform.end_sessions()
    _plant(platform)
    return platform


def line(record: str, shop: str, second: int, cents: int) -> str:
    """A line of input."""
    return f'{{"id":"{record}","shop":{shop},"at":"2026-01-01T{second // 3600:02}:00:{second % 60:02}Z","cents":{cents},"weight":1.0}}'


def _plant(platform: Platform) -> None:
    """In places to which no run of this pipeline brings it."""
    archive, logs = platform.home / "archive" / "shop", platform.home / "logs"
    archive.mkdir(parents=True)
    logs.mkdir(parents=True, exist_ok=True)
    (archive / "0.jsonl").write_text(line("a", ESCAPED, 0, 7) + "\n" + line("c", '"other"', 2, 5) + "\n")
    (logs / "stream.log").write_text(f"one\nValueError: {WHO} is wrong\nthree\n")
    (logs / "json.log").write_text(json.dumps({"event": f"a row {json.dumps({'shop': WHO})}"}) + "\n")
    (logs / "airflow.log").write_text(f'"GET /exactly-once/search?q={quote(WHO, safe="")} HTTP/1.1" 200\n')
    platform.sql(
        "INSERT INTO onlyonce_private.outbox (instance, output, unit, seq, life, key, payload, state, attempts, answered_at) "
        f"VALUES ('shop', 'mails', 'u', 0, gen_random_uuid(), $$page$$, $${json.dumps({'shop': WHO})}$$, 'delivered', 1, now())"
    )


def found(platform: Platform) -> list[str]:
    """The places of the search."""
    pipeline = declarations.load()["shop"]
    mentions = Mentions(erasing.read(WHERE, {"shop": "string"}))
    return [place.at for place in search.everything(Database(settings.database_url()), pipeline, mentions)]


def kinds(platform: Platform, places: list[str]) -> set[str]:
    """The kinds of these places."""
    below = {name: start if start.startswith("table ") else f"{platform.home}/{start}" for name, start in PLACES.items()}
    return {name for name, start in below.items() if any(place.startswith(start) for place in places)}


def on_pages(server: Server, platform: Platform, table: str) -> bool:
    """Whether the value is on the pages of a table, also of a row that was deleted."""
    with psycopg2.connect(server.url("admin", platform.database).replace("+psycopg2", "")) as session:
        cursor = session.cursor()
        cursor.execute("CHECKPOINT")
        cursor.execute("SELECT pg_read_binary_file(pg_relation_filepath(%s::regclass))", (table,))
        [(content,)] = cursor.fetchall()
    return any(one.encode() in bytes(content) for one in (WHO, json.dumps(WHO)))


def test_after_an_erasure_the_search_finds_what_the_receipt_names(marked: Platform, server: Server) -> None:
    """In every place it was found before. The pipeline goes on with a new incarnation, and after its first run the next person is erased."""
    tables = [f"onlyonce_private.{name}" for name in forget.REWRITTEN]
    before = found(marked)
    assert kinds(marked, before) == set(PLACES)
    assert [on_pages(server, marked, table) for table in tables] == [True, True]

    report = forget.main(["shop", "--where", WHERE, "--yes", "--master", "local[2]"])

    after = found(marked)
    assert kinds(marked, after) == STAYS
    named = _named(report, marked)
    assert {place for place in named if place in before or place in after} == set(after)
    assert all(any(f"{place}: " in what for what in _left(marked)) for place in after)
    assert [on_pages(server, marked, table) for table in tables] == [False, False]
    assert (marked.home / "logs" / "stream.log").read_text().splitlines() == ["one", " " * len(f"ValueError: {WHO} is wrong".encode()), "three"]

    marked.end_sessions()
    with pytest.raises(Retryable, match="onlyonce run shop"):  # the new incarnation has closed no window yet
        forget.main(["shop", "--where", "shop = 'other'", "--yes", "--master", "local[2]"])
    marked.run("shop", "--close")
    marked.end_sessions()
    assert forget.main(["shop", "--where", "shop = 'other'", "--yes", "--master", "local[2]"]).facts["kept"] == 1
    marked.put("shop", "more.jsonl", [line("y", '"more"', 7200, 3)])
    marked.run("shop", "--close")
    marked.end_sessions()
    assert sorted(marked.table("shop/per_shop")["shop"]) == ["last", "more"]
    assert audit.main(["--data"]).warnings == []


def _named(report: Any, platform: Platform) -> set[str]:
    return {row["what"].partition(": ")[0] for row in report.tables["stays, and is not in our reach"]}


def _left(platform: Platform) -> list[str]:
    return list(platform.sql("SELECT unnest(left_alone) AS one FROM onlyonce_private.erasures WHERE removal_no = 1")["one"])
