"""As `test_forget_everywhere`: a value comes from a topic and goes to each kind of sink outside.

What a search that does not know the product finds afterwards is what the receipt names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.operate import forget
from onlyonce.sinks.outbox import deliver
from tests.support import value_finder
from tests.support.broker import Broker
from tests.support.endpoints import BigQueryServer, Endpoint
from tests.support.erasure_places import plants
from tests.support.iceberg_shop import configured
from tests.support.mariadb import MariaDB
from tests.support.marked_outside import BROKER, ENDPOINT
from tests.support.mysql_shop import THERE
from tests.support.platform import Platform, Server

pytestmark = pytest.mark.spark

WHO = 'o/né "il\\17'
WHERE = f"shop = '{WHO}'"
MENTIONS = Mentions(erasure.read_conditions(WHERE, {"shop": "string"}))
SEARCHED = "part(s) with these values"
SENT = ("to_topic", "notified", "in_bigquery")


def message(record: str, shop: str, second: int, at: str = "2026-01-01T{:02}:00:{:02}Z") -> bytes:
    """A message of the topic, which has another name for the shop."""
    when = at.format(second // 3600, second % 60)
    return json.dumps({"id": record, "Shop": shop, "at": when, "cents": 7, "weight": 1.0}).replace("/", "\\/").encode()


@plants(
    "rows of MySQL",
    "snapshots of Iceberg",
    "file without a snapshot",
    "messages of a source",
    "messages of a sink",
    "outbox",
    "rows that were sent",
)
def test_of_what_is_outside_the_receipt_names_what_a_search_finds(
    new_platform: Callable[..., Platform],
    monkeypatch: pytest.MonkeyPatch,
    spark: object,
    server: Server,
    broker: Broker,
    mariadb: MariaDB,
    tmp_path: Path,
) -> None:
    """Windows in MySQL and Iceberg are computed again; rows without windows, old snapshots and files of killed tasks
    are named; so is what was sent, which leaves the outbox."""
    lake, source, out, there = tmp_path / "lake", broker.topic("in"), broker.topic("out"), mariadb.new_database()
    platform = new_platform("tests/support/marked_outside.py")
    platform.give(
        monkeypatch, **configured(platform.environment["ONLYONCE_DATABASE_URL"], lake), TEST_IN=source, TEST_OUT=out,
        **{BROKER: broker.servers, THERE: mariadb.url(there)},
    )  # fmt: skip

    def everywhere() -> set[str]:
        found = {
            *value_finder.in_files(str(platform.home), MENTIONS),
            *value_finder.in_files(str(lake), MENTIONS),
            *value_finder.in_mysql(mariadb, there, MENTIONS),
        }
        found |= {*value_finder.in_database(server, platform.database, (WHO, json.dumps(WHO, ensure_ascii=False)))} - {
            value_finder.WAL
        }
        return found | {
            f"messages of the topic {topic}"
            for topic in (source, out)
            if value_finder.in_topic(broker, topic, MENTIONS)
        }

    with Endpoint() as endpoint, BigQueryServer() as bigquery:
        platform.give(monkeypatch, **{ENDPOINT: endpoint.url, "BIGQUERY_EMULATOR_HOST": bigquery.url})
        broker.produce(source, message("a", WHO, 0), message("b", "other", 1), message("invalid", WHO, 2, "never"))
        platform.run("shop", "--close")
        broker.produce(source, message("z", "last", 3600))
        platform.run("shop", "--close")
        deliver.main(["shop"])
    platform.end_sessions()
    for file in [*lake.rglob("*.parquet")]:
        (file.parent / f"killed-{file.name}").write_bytes(file.read_bytes())
    before = everywhere()

    report = forget.main(["shop", "--where", WHERE, "--yes", "--master", "local[2]"])

    after, left = everywhere(), report.tables[forget.LEFT]
    topics = {f"messages of the topic {topic}" for topic in (source, out)}
    assert {"table each_sale", "table per_shop", "table onlyonce_private.outbox", *topics} <= before
    assert any(place.startswith(f"{platform.home}/data/shop/events/") for place in before)
    assert after - topics == {row["place"].removeprefix("file://") for row in left if row["found"].endswith(SEARCHED)}
    assert {place for place in after if not place.startswith(f"{lake}/")} == {"table each_sale", *topics}
    assert {Path(place).name.startswith("killed-") for place in after if place.endswith(".parquet")} == {True, False}
    others = {row["place"] for row in left if not row["found"].endswith(SEARCHED)} - {
        one.place for one in forget.UNKNOWN
    }
    named = {one.split()[1] if one.startswith("output ") else one for one in others}
    assert named == {
        "in_mysql",
        "mysql_each",
        "iceberg_each",
        *SENT,
        f"messages of the topic {source}",
        "write-ahead log of PostgreSQL",
    }
    assert any(f"messages of the topic {out}," in row["goes"] for row in left)
    assert (report.facts["kept"], report.facts["invalid"]) == (1, 1)
