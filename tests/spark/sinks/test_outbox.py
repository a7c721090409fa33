"""Stream → outbox → delivered: on Spark, to a webhook and to BigQuery."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pytest

from onlyonce.sinks.outbox import deliver
from tests.fault.test_replay import forget_last_commit
from tests.support import shop_oracle
from tests.support.endpoints import BigQueryServer, Endpoint
from tests.support.platform import Platform

pytestmark = pytest.mark.spark


def test_what_a_stream_commits_is_sent_once_in_order_and_as_it_was(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over two batches and a replay: each record once, each shop's in order, values to the last digit; rows that the
    table rejects are invalid; each row is in the unit that the commit log names."""
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/sending.py")
    files = shop_oracle.sales(80, 2)
    for number, rows in enumerate(files):
        platform.put("shop", f"{number}.jsonl", rows)
    with Endpoint() as endpoint, BigQueryServer() as server:
        monkeypatch.setenv("TEST_ENDPOINT", endpoint.url)
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", server.url)
        platform.run("shop")
        committed = Counter(platform.sql("SELECT idempotency_key FROM onlyonce.outbox")["idempotency_key"])
        for query in ("notify", "rows"):
            forget_last_commit(query)
        platform.run("shop")
        report = deliver.main(["shop"])

    records = {r["id"]: r for r in shop_oracle.distinct(files).to_dict("records")}
    assert Counter(platform.sql("SELECT idempotency_key FROM onlyonce.outbox")["idempotency_key"]) == committed
    assert endpoint.ids() == Counter(list(records))
    for body in endpoint.effects:
        known = records[body["id"]]
        assert datetime.fromisoformat(body["at"]) == datetime.fromisoformat(str(known["at"]))
        assert [body[name] for name in ("shop", "cents", "weight", "note")] == [
            *(known[name] for name in ("shop", "cents", "weight")), None,
        ]  # fmt: skip
    units = platform.sql("SELECT payload::json->>'id' AS id, unit FROM onlyonce.outbox WHERE output = 'notify'")
    batch = {row.id: int(row.unit.split("/")[3]) for row in units.itertuples()}
    for shop in {record["shop"] for record in records.values()}:
        order = [(batch[b["id"]], b["at"]) for b in endpoint.effects if b["shop"] == shop]
        assert order == sorted(order)
    good = {i for i, record in records.items() if record["shop"] != "shop-3"}
    assert server.ids() == Counter(good)
    assert report.facts == {"waiting": 0, "dead": 0, "invalid": len(records) - len(good)}
    counts = platform.sql(
        "SELECT c.rows AS told, count(o.seq) AS there FROM onlyonce.commits c LEFT JOIN onlyonce.outbox o ON "
        "o.unit = c.unique_id "
        "WHERE c.sink IN ('notify', 'rows') GROUP BY c.unique_id, c.rows"
    )
    assert list(counts["told"]) == list(counts["there"])
