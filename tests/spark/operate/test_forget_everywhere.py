"""A value is planted in every place that may have one.

A search of all bytes finds it in each; after the erasure it finds what the receipt names, and nothing else.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote

import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.operate import audit, erase_search, forget
from tests.support import erasure_places, value_finder
from tests.support.erasure_places import plants
from tests.support.platform import Platform, Server

pytestmark = pytest.mark.spark

WHO = 'o/né\t"il\\17'
ESCAPED = json.dumps(WHO).replace("/", "\\/")
WHERE = f"shop = '{WHO}'"

PLACES = erasure_places.by_path()
STAYS = {name for name, place in PLACES.items() if place.after == "named"}
"""Delivered files and rows, input that is not ours to change, and state without which rows would be written twice."""


@pytest.fixture
def marked(new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object) -> Platform:
    """A pipeline that has closed the windows of the person's records, and has read on."""
    platform = new_platform("tests/support/marked_shop.py")
    platform.give(monkeypatch, ONLYONCE_ARCHIVE=str(platform.home / "archive"))
    platform.sql(
        f"CREATE TABLE public.owners AS SELECT * FROM (VALUES ($${WHO}$$, 'one'), ('other', 'two')) AS v (shop, owner)"
    )
    platform.put(
        "shop", "0.jsonl", [line("a", ESCAPED, 0, 7), line("b", json.dumps(WHO), 1, -1), line("c", '"other"', 2, 5)]
    )
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
        "INSERT INTO onlyonce_private.outbox (instance, output, unit, seq, checkpoint_id, key, payload, state, attempts, "
        "answered_at) "
        f"VALUES ('shop', 'mails', 'u', 0, gen_random_uuid(), $$page$$, $${json.dumps({'shop': WHO})}$$, "
        "'delivered', 1, now())"
    )


def found(platform: Platform) -> list[str]:
    """The places of the search."""
    pipeline = declarations.load()["shop"]
    mentions = Mentions(erasure.read_conditions(WHERE, {"shop": "string"}))
    return [place.at for place in erase_search.search_everything(Database(settings.database_url()), pipeline, mentions)]


def kinds(platform: Platform, places: Iterable[str]) -> set[str]:
    """The kinds of these places."""
    below = {
        name: place.below if place.below.startswith("table ") else f"{platform.home}/{place.below}"
        for name, place in PLACES.items()
    }
    return {name for name, start in below.items() if any(place.startswith(start) for place in places)}


def everywhere(platform: Platform, server: Server) -> set[str]:
    """Return where the value is, by a search of every file and table that does not know the product's places."""
    mentions = Mentions(erasure.read_conditions(WHERE, {"shop": "string"}))
    return {
        *value_finder.in_files(str(platform.home), mentions),
        *value_finder.in_database(server, platform.database, (WHO, json.dumps(WHO))),
    }


def named(report: Report, platform: Platform, after: set[str]) -> set[str]:
    """Return each place of a receipt, as `everywhere` names it.

    Of an output, and of records without a line, it is the file or table that has them.
    """
    unknown, places = {one.place for one in forget.UNKNOWN}, [row["place"] for row in report.tables[forget.LEFT]]
    assert sorted({*places}) == sorted(places)
    return {_place(place, platform, after) for place in places if place not in unknown}


def _place(place: str, platform: Platform, after: set[str]) -> str:
    if place == "input of 1 records":
        return str(platform.home / "inbox" / "shop" / "packed.jsonl.gz")
    if in_database := re.fullmatch(r"output \S+ \(postgres::(\S+)\)|(?:pg_stats of|table) (\S+)", place):
        return f"table {in_database[1] or in_database[2]}"
    if in_files := re.fullmatch(r"output \S+ \(delta:(\S+)\)", place):
        return next((one for one in sorted(after) if one.startswith(f"{platform.home}/tables/{in_files[1]}/")), place)
    return place


@plants(*PLACES)
def test_after_an_erasure_the_search_finds_what_the_receipt_names(marked: Platform, server: Server) -> None:
    """In every place it was found before.

    The next person is erased before the new incarnation has run; then the pipeline goes on with it.
    """
    before = everywhere(marked, server)
    assert kinds(marked, before) == set(PLACES) == kinds(marked, found(marked))

    report = forget.main(["shop", "--where", WHERE, "--yes", "--master", "local[2]"])

    after = everywhere(marked, server)
    assert named(report, marked, after) == after
    assert kinds(marked, after) == STAYS
    assert [one for one in _stored(marked) if WHO in one] == []
    assert len(_stored(marked)) == len(report.tables[forget.LEFT])
    assert (marked.home / "logs" / "stream.log").read_text().splitlines() == [
        "one",
        " " * len(f"ValueError: {WHO} is wrong".encode()),
        "three",
    ]

    marked.end_sessions()
    assert forget.main(["shop", "--where", "shop = 'other'", "--yes", "--master", "local[2]"]).facts["kept"] == 1
    marked.put("shop", "more.jsonl", [line("y", '"more"', 7200, 3)])
    marked.run("shop", "--close")
    marked.end_sessions()
    assert sorted(marked.table("shop/per_shop")["shop"]) == ["last", "more"]
    assert audit.main(["--data"]).warnings == []


def _stored(platform: Platform) -> list[str]:
    return list(
        platform.sql("SELECT unnest(left_alone) AS one FROM onlyonce_private.erasures WHERE removal_no = 1")["one"]
    )
