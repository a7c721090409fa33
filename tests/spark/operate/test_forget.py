"""Records are forgotten under real streams: the results are those of the input without them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.core.errors import Retryable
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit, erase_search, forget
from tests.spark.outputs.test_processors import found, records, silences
from tests.support import shop_oracle
from tests.support.broker import Broker
from tests.support.cut_records import cut, in_time
from tests.support.erasure_places import plants
from tests.support.platform import Platform, multiset
from tests.support.stateful_shop import WATERMARK_DELAY
from tests.support.two_sources import Model, Sale

pytestmark = pytest.mark.spark

SHOPS = ["window_start", "shop", "sales", "cents"]
WHO, NEXT = "shop-3", "shop-2"
FAILED_ONE = "output broken (postgres::results.broken)"


def test_results_are_those_of_the_input_without_the_records_that_were_forgotten(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Of the windows that they were in, and all others as they were; killed before the windows are computed, and once
    more after it.

    A second person is erased before the outputs' new incarnations have run."""
    platform = new_platform("tests/support/before_compaction.py")
    files = shop_oracle.sales(120, 6)
    last: dict[str, Any] = {"id": "last", "shop": "shop-1", "at": "2026-01-02T00:00:00Z", "cents": 1, "weight": 1.0}
    for number, some in enumerate(files):
        platform.put("shop", f"{number}.jsonl", some)
    platform.run("shop", "--close")
    platform.put("shop", "last.jsonl", [last])
    platform.run("shop", "--close")
    platform.end_sessions()

    with monkeypatch.context() as armed:
        armed.setattr(forget, "passing", _killed("forget-after-copies"))
        with pytest.raises(FailPoint):
            _forget()
    report = _forget()
    platform.end_sessions()
    second = _forget(NEXT)

    every = shop_oracle.distinct([*files, [last]])
    gone = every["shop"].isin([WHO, NEXT])
    touched = every["window_start"].isin(every[gone]["window_start"])
    left = every[~gone & (touched | ~every["late"])]
    assert multiset(shop_oracle.per_shop(left), *SHOPS) == multiset(platform.table("shop/per_shop"), *SHOPS)
    assert [one.facts["kept"] for one in (report, second)] == [(every["shop"] == who).sum() for who in (WHO, NEXT)]
    assert min(report.facts["kept"], second.facts["kept"]) > 5
    assert multiset(every[~gone], "id") == multiset(platform.events().dropna(subset=["id"]), "id")
    assert any("results.each" in row["place"] for row in report.tables[forget.LEFT])
    assert all(who not in file.read_text() for who in (WHO, NEXT) for file in settings.inbox("shop").iterdir())
    assert audit.main(["--data"]).warnings == []
    again = [record for some in files for record in some]
    platform.put("shop", "again.jsonl", again)
    platform.run("shop", "--close")
    assert multiset(shop_oracle.per_shop(left), *SHOPS) == multiset(platform.table("shop/per_shop"), *SHOPS)


def _forget(who: str = WHO) -> Any:
    return forget.main(["shop", "--where", f"shop = '{who}'", "--yes", "--master", "local[2]"])


def _shops(platform: Platform) -> list[str]:
    return sorted(platform.sql("SELECT shop FROM results.broken")["shop"])


def _rows_in_files(platform: Platform) -> list[int]:
    """The rows of the newest pane of each window of the FileSink."""
    newest = (
        "SELECT DISTINCT ON (window_start) rows FROM onlyonce_private.panes WHERE output = 'filed' ORDER BY "
        "window_start, generation DESC"
    )
    return list(platform.sql(newest)["rows"])


def _killed(point: str) -> Callable[[str], None]:
    def passing(name: str) -> None:
        if name == point:
            raise FailPoint(name)

    return passing


def test_an_output_that_fails_holds_up_no_other_and_is_named(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: object
) -> None:
    """A window of a FileSink that loses its last record is emptied.

    The receipt has the command that computes the other output again, and another person can be forgotten at once."""
    fails = tmp_path / "fails"
    monkeypatch.setenv("ERASED_FAILS", str(fails))
    platform = new_platform("tests/support/erased_outputs.py")
    for number, who in enumerate(("one", "two", "last")):
        platform.put(
            "shop",
            f"{number}.jsonl",
            [{"id": who, "shop": who, "at": f"2026-01-0{number + 1}T00:00:00Z", "cents": 1, "weight": 1.0}],
        )
    platform.run("shop", "--close")
    platform.end_sessions()

    fails.touch()
    report = _forget("one")
    fails.unlink()
    platform.end_sessions()
    other = _forget("two")

    left = [row["goes"] for row in report.tables[forget.LEFT] if row["place"] == FAILED_ONE]
    assert (report.facts[forget.FAILED], other.facts[forget.FAILED]) == (1, 0)
    stored = platform.sql("SELECT unnest(left_alone) AS one FROM onlyonce_private.erasures WHERE removal_no = 1")["one"]
    assert [one for one in stored if FAILED_ONE in one] == [
        f"{FAILED_ONE}: not computed again: it failed (Refused), so rows that were made of these records stay; "
        f"{left[0]}"
    ]
    assert _shops(platform) == ["last", "one"]
    assert _rows_in_files(platform) == [0, 0, 1]

    platform.backfill(*left[0].partition("onlyonce backfill ")[2].split())

    assert _shops(platform) == ["last"]
    assert audit.main(["--data"]).warnings == []


ONLY_SESSIONS = """
from dataclasses import replace

from tests.support.lean_shop import LEAN

PIPELINES = [replace(LEAN, outputs=[one for one in LEAN.outputs if one.name == "sessions"])]
"""


def test_an_erasure_waits_until_a_merged_session_is_closed(
    new_platform: Callable[..., Platform], tmp_path: Path, spark: object
) -> None:
    """The session of the record alone would have ended a minute ago. Then the result is that of the other records."""
    (tmp_path / "sessions.py").write_text(ONLY_SESSIONS)
    platform = new_platform(str(tmp_path / "sessions.py"))

    def read(*seconds: int) -> None:
        sales = [(at, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at)) for at in seconds]
        records = [
            {"id": f"sale-{at}-", "shop": "one", "at": time.isoformat(), "cents": at, "weight": 1.0}
            for at, time in sales
        ]
        platform.put("shop", f"{seconds[0]}.jsonl", records)
        platform.run("shop")
        platform.end_sessions()

    read(*range(0, 100, 4))
    read(100)
    erase = ["shop", "--where", "id = 'sale-0-'", "--yes", "--master", "local[2]"]
    with pytest.raises(Retryable, match="output sessions has an open session at 2026-01-01T00:00:00Z"):
        forget.main(erase)
    read(1000)
    read(1004)
    assert [*platform.table("shop/sessions")["sales"]] == [26]

    assert forget.main(erase).facts["kept"] == 1

    [row] = platform.table("shop/sessions").to_dict("records")
    assert (f"{row['window_start']:%H:%M:%S}", row["sales"]) == ("00:00:04", 25)


def test_joined_rows_go_from_the_windows_of_their_left_records(
    new_platform: Callable[..., Platform], spark: object
) -> None:
    """The erased payments are in other windows. While such a window is open, the erasure waits."""
    platform = new_platform("tests/support/joined_shop.py")

    def read(*files: list[tuple[str, str, int]]) -> None:
        for some in files:
            records = [
                {
                    "id": f"{kind}-{second}",
                    "kind": kind,
                    "shop": shop,
                    "at": (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).isoformat(),
                    "cents": 7,
                }
                for kind, shop, second in some
            ]
            platform.put("shop", f"{some[0][2]:04}.jsonl", records)
        platform.run("shop")
        platform.end_sessions()

    def forget_payment(second: int) -> Report:
        report = forget.main(["shop", "--where", f"id = 'payment-{second}'", "--yes", "--master", "local[2]"])
        platform.end_sessions()
        return report

    def rows() -> list[tuple[str, Any]]:
        found = platform.sql("SELECT order_id, payment_id FROM results.all_of_both WHERE payment_id IS NOT NULL")
        return sorted(zip(found["order_id"], found["payment_id"], strict=True))

    read([("payment", "a", 50), ("order", "a", 70)], [("order", "b", 105)], [("order", "b", 106)])
    assert rows() == [("order-70", "payment-50")]
    with pytest.raises(Retryable, match="has open windows with these records"):
        forget_payment(50)
    read([("order", "c", 170), ("payment", "c", 190)], [("order", "b", 3600)], [("order", "b", 3700)])
    read([("order", "b", 7200)], [("order", "b", 7300)])
    assert rows() == [("order-170", "payment-190"), ("order-70", "payment-50")]

    reports = [forget_payment(second) for second in (50, 190)]

    assert [report.facts["windows"] > 0 for report in reports] == [True, True]
    assert rows() == []
    assert platform.table("shop/paid").empty
    assert audit.main(["--data"]).warnings == []


def test_a_record_of_one_of_several_sources_goes(new_platform: Callable[..., Platform], spark: object) -> None:
    """By a renamed column and a constant of its source. A record of the same id from the other source stays."""
    platform = new_platform("tests/support/two_sources.py")
    sales = {
        "web": [Sale("web", "one", 0, 1), Sale("web", "two", 5, 2)],
        "till": [Sale("till", "one", 7, 4), Sale("till", "two", 8, 8)],
    }
    for source, some in sales.items():
        platform.put(f"shop/{source}", "0.txt", [sale.line for sale in some])
    platform.run("shop", "--close")
    for source in sales:
        platform.put(f"shop/{source}", "1.txt", [Sale(source, "last", 7200, 1).line])
    platform.run("shop", "--close")
    platform.end_sessions()

    report = forget.main(["shop", "--where", "id = 'one' AND place = 'till'", "--yes", "--master", "local[2]"])

    left = [sale for some in sales.values() for sale in some if (sale.source, sale.id) != ("till", "one")]
    last = [Sale(source, "last", 7200, 1) for source in sales]
    assert (report.facts["kept"], report.facts["lines"], report.facts[forget.WITHOUT]) == (1, 1, 0)
    lines = (platform.home / "inbox" / "shop" / "till" / "0.txt").read_text().splitlines()
    assert [bool(line.strip()) for line in lines] == [False, True]
    assert multiset(platform.table("shop/per_minute"), "window_start", "place", "cents", "sales") == Model(
        [*sales]
    ).windows([*left, *last])


@pytest.mark.parametrize("pipeline", ["shop", pytest.param("till", marks=pytest.mark.whole)])
@plants("state of a processor")
def test_output_with_state_is_computed_from_the_start_without_erased_records(
    new_platform: Callable[..., Platform], spark: object, pipeline: str
) -> None:
    """Of two persons, erased one after the other before the next run.

    Its state, in RocksDB, goes at once; its rows go with the next run, as the receipt says.
    """
    platform = new_platform("tests/support/stateful_shop.py")
    chance = random.Random(5)
    them = [
        one | {"shop": f"shop-{one['shop']}", "id": f"id-{one['id']}"} for one in records(chance, 40) if one["shop"]
    ]
    last = {"id": "id-last", "shop": "shop-last", "at": "2026-01-02T00:00:00+00:00"}
    files = [*cut(chance, them, 2), [last]]
    for number, file in enumerate(files):
        platform.put(pipeline, f"{number}.jsonl", file)
        platform.run(pipeline, "--close")
    platform.end_sessions()
    one = next(record["id"] for record in in_time(files, WATERMARK_DELAY) if record["shop"] == "shop-b")
    conditions = [("shop", "shop-a"), ("id", one)]

    def places(column: str, value: str) -> list[str]:
        asked = Mentions(erasure.read_conditions(f"{column} = '{value}'", {"shop": "string", "id": "string"}))
        return [
            place.at
            for place in erase_search.search_everything(
                Database(settings.database_url()), declarations.load()[pipeline], asked
            )
        ]

    def forget_each() -> list[Report]:
        return [
            forget.main([pipeline, "--where", f"{column} = '{value}'", "--yes", "--master", "local[2]"])
            for column, value in conditions
        ]

    assert any("/checkpoints/silences/1/state/" in place for place in places(*conditions[0]))
    reports = forget_each()
    kept = [row["goes"] for row in reports[0].tables[forget.LEFT]]
    assert not any("/checkpoints/" in place for condition in conditions for place in places(*condition))
    assert any(f"onlyonce run {pipeline} takes them out and computes them from the start" in what for what in kept)

    platform.run(pipeline, "--close")
    platform.end_sessions()
    forget_each()

    left = [record for record in in_time(files, WATERMARK_DELAY) if record["shop"] != "shop-a" and record["id"] != one]
    assert found(platform, pipeline) == silences(left)
    assert [places(*condition) for condition in conditions] == [[], []]
    assert audit.main(["--data"]).warnings == []


@plants("messages of a source")
def test_messages_of_a_topic_stay_and_the_receipt_says_until_when(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, broker: Broker, spark: object
) -> None:
    """The same decoding finds the value in a message.

    It goes from `events` and from the lines of the other source, in each spelling.
    """
    who = 'o/né "il, \\17'
    topic = broker.topic("web", retention_ms="86400000", segment_ms="3600000")
    for name, value in (("TEST_SOURCES", "topic,till"), ("TEST_TOPIC", topic), ("TEST_SERVERS", broker.servers)):
        monkeypatch.setenv(name, value)
    platform = new_platform("tests/support/two_sources.py")
    sales = [Sale("topic", who, 0, 1), Sale("topic", "two", 5, 2)], [Sale("till", who, 7, 4), Sale("till", "two", 8, 8)]
    spelled = who.replace('"', '""')
    platform.put("shop/till", "0.txt", [sale.line.replace(who, f'"{spelled}"') for sale in sales[1]])
    broker.produce(topic, *(json.dumps(sale.line).replace("/", "\\/").encode() for sale in sales[0]))
    platform.run("shop", "--close")
    broker.produce(topic, json.dumps(Sale("topic", "last", 7200, 1).line).encode())
    platform.put("shop/till", "1.txt", [Sale("till", "last", 7200, 1).line])
    platform.run("shop", "--close")
    platform.end_sessions()
    mentions = Mentions(erasure.read_conditions(f"id = '{who}'", {"id": "string"}))

    report = forget.main(["shop", "--where", f"id = '{who}'", "--yes", "--master", "local[2]"])

    assert sum(erase_search.count_mentions(message.value(), mentions) for message in broker.read(topic, 1)) == 1
    kept = {row["place"]: row["goes"] for row in report.tables[forget.LEFT] if topic in row["place"]}
    [(place, goes)] = kept.items()
    assert (place, re.sub("by .*Z", "by", goes)) == (
        f"messages of the topic {topic}",
        "gone by (retention.ms=86400000, segment.ms=3600000)",
    )
    assert (report.facts["kept"], report.facts["lines"]) == (2, 1)
    last = [Sale(source, "last", 7200, 1) for source in ("topic", "till")]
    rows = [sale for some in sales for sale in some if sale.id != who]
    assert multiset(platform.table("shop/per_minute"), "window_start", "place", "cents", "sales") == Model(
        ["topic", "till"]
    ).windows([*rows, *last])
    assert [
        place.at
        for place in erase_search.search_everything(
            Database(settings.database_url()), declarations.load()["shop"], mentions
        )
    ] == ["table results.each"]
