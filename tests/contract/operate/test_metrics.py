"""The metrics are the views' figures, under the names that the dashboard asks for. A real PostgreSQL, no collector."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from typer.testing import CliRunner

from onlyonce.cli import app
from onlyonce.commitlog.health import Views
from onlyonce.core.errors import Refused
from onlyonce.database.connect import Database
from onlyonce.operate import metrics
from onlyonce.operate.metrics import METRICS, UP, Figures
from onlyonce.settings import ROOT
from tests.contract.conftest import Log
from tests.contract.shop import Shop, at, shop
from tests.support.platform import free_port

__all__ = ["shop"]
DASHBOARD = ROOT / "docker" / "grafana" / "onlyonce.json"


@pytest.fixture
def worked(shop: Shop) -> Shop:
    """Two receive batches, of which one output has read the first: three kept, one duplicate, one invalid."""
    shop.receive(("a", at(0)), ("b", at(1)), ("c", at(90)))
    shop.output()
    shop.receive(("a", at(0)), ('{"id"', "the line is no JSON object"))
    shop.log.rows(
        "UPDATE onlyonce_private.units SET lookups_spared = 7, false_positives = 2 WHERE unique_id = "
        "'shop/receive/1/1/events/0'"
    )
    return shop


def reader(log: Log) -> Database:
    """The role that only reads."""
    return Database(log.server.url("reader", log.name), "onlyonce-metrics")


def collected(figures: Figures) -> dict[str, dict[tuple[str, ...], float]]:
    """What OpenTelemetry's own reader collects: metric → attributes → value."""
    memory = InMemoryMetricReader()
    made = metrics.provider(figures, memory)
    data = memory.get_metrics_data()
    assert data is not None
    [scope] = data.resource_metrics[0].scope_metrics
    made.shutdown()
    return {
        metric.name: {
            tuple(map(str, (point.attributes or {}).values())): point.value  # type: ignore[union-attr]
            for point in metric.data.data_points
        }
        for metric in scope.metrics
    }


def test_each_figure_is_that_of_the_views(worked: Shop) -> None:
    """Counted by hand for the shop, each with its labels, read by the role that only reads."""
    found = collected(Figures(reader(worked.log)))

    assert found[UP] == {(): 1}
    assert found["onlyonce.records.read"] == {("shop", "receive"): 5}
    assert {fate: n for (_, stage, fate), n in found["onlyonce.records"].items() if stage == "receive"} == {
        "kept": 3, "duplicate": 1, "invalid": 1, "expired": 0
    }  # fmt: skip
    assert found["onlyonce.batches"] == {("shop", "receive"): 2, ("shop", "per_shop"): 1}
    assert found["onlyonce.state"] == {("shop", query, "live"): 1 for query in ("receive", "per_shop", "balance")}
    assert found["onlyonce.last_batch"] == {("shop", "receive"): 1, ("shop", "per_shop"): 0}
    assert found["onlyonce.batches.waiting"] == {
        ("shop", "receive"): 0,
        ("shop", "per_shop"): 1,
        ("shop", "balance"): 2,
    }
    assert found["onlyonce.batches.not_conserved"] == {("shop", "receive"): 0, ("shop", "per_shop"): 0}
    max_event_time, watermark = found["onlyonce.max_event_time"], found["onlyonce.watermark.time"]
    assert max_event_time["shop", "receive"] == at(90).timestamp()
    assert watermark == {("shop", "per_shop"): at(89).timestamp()}
    assert found["onlyonce.lookups.spared"] == {("shop",): 7}
    assert found["onlyonce.lookups.false_positives"] == {("shop",): 2}
    assert found["onlyonce.catalog.ids"] == {("shop",): 3}
    assert found["onlyonce.catalog.size"]["shop",] == 48 + found["onlyonce.catalog.filters.size"]["shop",]


def test_time_to_catch_up_of_an_output(shop: Shop) -> None:
    """Its records that wait, at the rate of its last batches; null for an output that has read none.

    A record may be in several windows: it counts once.
    """
    shop.receive(("a", at(0)))
    shop.output(opens=(at(0), at(1)))
    shop.receive(("b", at(1)), ("c", at(90)))
    shop.output(opens=(at(0), at(1), at(90)))
    shop.log.rows(
        "UPDATE onlyonce_private.batches SET begun_at = committed_at - interval '3 s' WHERE incarnation = 'shop/per_shop/1'"
    )
    nothing_waits = collected(Figures(reader(shop.log)))["onlyonce.catch_up"]
    shop.receive(("d", at(91)), ("e", at(92)))
    rows = {row["stage"]: row["catch_up_seconds"] for row in Views(reader(shop.log)).rows("lag")}

    assert nothing_waits == {("shop", "per_shop"): 0}
    assert collected(Figures(reader(shop.log)))["onlyonce.catch_up"] == {("shop", "per_shop"): 4}
    assert rows == {"receive": None, "per_shop": 4, "balance": None}


def test_a_log_that_is_away_is_told_and_breaks_nothing() -> None:
    """`up` is 0, and no figure of before stands as one of now."""
    found = collected(Figures(Database("postgresql+psycopg2://nobody@127.0.0.1:1/none")))

    assert found.pop(UP) == {(): 0}
    assert [name for name, points in found.items() if points] == []


def test_the_dashboard_asks_for_metrics_that_exist_and_for_all_of_them() -> None:
    """Every name in it is one of ours; what is measured is shown."""
    asked = set(re.findall(r"\bonlyonce_\w+", DASHBOARD.read_text())) - {"onlyonce_"}

    current = {metric.prometheus for metric in METRICS if not metric.description.startswith("Deprecated")}
    assert asked == current | {"onlyonce_up"}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        assert panel["targets"], panel["title"]


@pytest.fixture
def served(worked: Shop) -> Iterator[str]:
    """The URL of the metrics of the shop, as Prometheus reads them."""
    pytest.importorskip("opentelemetry.exporter.prometheus")
    port = free_port()
    end = metrics.serve(Figures(reader(worked.log)), "127.0.0.1", port)
    yield f"http://127.0.0.1:{port}/metrics"
    end()


def test_prometheus_gets_them_under_the_names_of_the_dashboard(served: str) -> None:
    """What the exporter makes of a name is what `prometheus` says it makes."""
    text = httpx.get(served, trust_env=False).text
    names = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line.startswith("onlyonce_")}

    empty = {"onlyonce_rows_written_again_total", "onlyonce_alerts"}  # of an exactly-once pipeline without alerts
    empty |= {metric.prometheus for metric in METRICS if metric.query == "backlog"}  # no source was asked
    assert names == {metric.prometheus for metric in METRICS} - empty | {"onlyonce_up"}
    assert re.search(r'onlyonce_records_total\{[^}]*fate="duplicate"[^}]*stage="receive"[^}]*\} 1\.0', text)


def test_a_port_that_is_taken_is_refused(worked: Shop) -> None:
    """With the way out; nothing of the exporter stays registered."""
    pytest.importorskip("opentelemetry.exporter.prometheus")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for _ in range(2):
            with pytest.raises(Refused, match="can't be listened on"):
                metrics.serve(Figures(reader(worked.log)), "127.0.0.1", taken.getsockname()[1])


def test_the_command_shows_them_once(worked: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """As JSON for scripts, under Prometheus' names."""
    monkeypatch.setenv("ONLYONCE_READER_URL", worked.log.server.url("reader", worked.log.name))

    result = CliRunner().invoke(app, ["metrics", "--json"])

    shown: list[dict[str, Any]] = json.loads(result.stdout)
    kept = [
        row["value"]
        for row in shown
        if (row["metric"], row["fate"], row["stage"]) == ("onlyonce_records_total", "kept", "receive")
    ]
    assert kept == [3]


def test_serving_and_sending_at_once_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One command for each."""
    result = CliRunner().invoke(app, ["metrics", "--serve", "1", "--push"])

    assert result.exit_code == Refused.exit_code
