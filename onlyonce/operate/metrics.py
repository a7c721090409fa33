"""Export the figures of the views as OpenTelemetry metrics.

Each collection reads them in one snapshot, as the role that may only read. Correctness does not depend on them. While
the log is unreachable `onlyonce.up` is 0 and the other metrics are missing. Totals may fall: dropped pipelines and
earlier incarnations are no longer counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from sqlalchemy.exc import DBAPIError

from onlyonce.commitlog.health import Views
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.database.connect import Database, ask

log = structlog.get_logger()
COMPARED = 100
"""How many of the last batches of each stage are compared with their units. The DAG `onlyonce_audit` compares all."""
FRESH_SECONDS = 2.0
"""All instruments of one collection of metrics share a snapshot, which is at most this old."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Metric:
    """An instrument, and the columns of a query of `sql/statements/metrics.sql` that are its values.

    Label each value with the LABELS columns of its row.

    columns    column → the attributes that it adds to the row's labels
    """

    name: str
    kind: Literal["gauge", "counter"]
    unit: str
    query: str
    columns: Mapping[str, Mapping[str, str]]
    description: str

    @property
    def prometheus(self) -> str:
        """Return its name in Prometheus's form: with the unit, and `_total` if it counts."""
        unit = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        return self.name.replace(".", "_") + unit + ("_total" if self.kind == "counter" else "")


def _one(column: str) -> dict[str, dict[str, str]]:
    return {column: {}}


FATES = {fate: {"fate": fate} for fate in ("kept", "duplicate", "invalid", "expired", "in_time", "late", "rejected")}
METRICS = [
    Metric("onlyonce.records.read", "counter", "", "records", _one("in"), "Records in the input of committed batches"),
    Metric("onlyonce.records", "counter", "", "records", FATES, "Records by fate; of an output (record, window) pairs"),
    Metric("onlyonce.batches", "counter", "", "records", _one("batches"), "Committed batches"),
    Metric(
        "onlyonce.rows.written_again",
        "counter",
        "",
        "records",
        _one("written_again"),
        "At least once: rows written once more",
    ),
    Metric(
        "onlyonce.state", "gauge", "", "stages", _one("state"), "1 with the state of the incarnation: live, damaged"
    ),
    Metric("onlyonce.epoch", "gauge", "", "stages", _one("epoch"), "The driver that may commit; counts the starts"),
    Metric("onlyonce.last_batch", "gauge", "", "stages", _one("last_batch"), "The highest committed batch id"),
    Metric(
        "onlyonce.last_commit.time", "gauge", "s", "stages", _one("last_commit"), "When it was committed, since 1970"
    ),
    Metric(
        "onlyonce.max_event_time",
        "gauge",
        "s",
        "stages",
        _one("max_event_time"),
        "The largest event time of what is committed",
    ),
    Metric(
        "onlyonce.watermark.time",
        "gauge",
        "s",
        "stages",
        _one("watermark"),
        "The max event time less the output's watermark delay",
    ),
    Metric("onlyonce.freshness", "gauge", "s", "stages", _one("freshness"), "The age of the max event time"),
    Metric("onlyonce.system_lag", "gauge", "s", "stages", _one("system_lag"), "The age of the oldest input that waits"),
    Metric(
        "onlyonce.batches.waiting", "gauge", "", "stages", _one("batches_waiting"), "Batches that wait for this stage"
    ),
    Metric("onlyonce.records.waiting", "gauge", "", "stages", _one("records_waiting"), "The records in them"),
    Metric(
        "onlyonce.catch_up",
        "gauge",
        "s",
        "stages",
        _one("catch_up"),
        "How long they take at the rate of the output's last batches",
    ),
    Metric("onlyonce.batches.begun", "gauge", "", "stages", _one("batches_begun"), "Batches begun and not committed"),
    Metric(
        "onlyonce.backlog.size",
        "gauge",
        "By",
        "backlog",
        _one("backlog_bytes"),
        "Bytes of the source that no batch has read, by its last answer",
    ),
    Metric("onlyonce.backlog.records", "gauge", "", "backlog", _one("backlog_records"), "The records in them"),
    Metric("onlyonce.backlog.age", "gauge", "s", "backlog", _one("age"), "The age of the oldest of them"),
    Metric(
        "onlyonce.backlog.catch_up",
        "gauge",
        "s",
        "backlog",
        _one("catch_up"),
        "How long they take at the rate of the last batches",
    ),
    Metric(
        "onlyonce.backlog.answered",
        "gauge",
        "",
        "backlog",
        _one("answered"),
        "1: the source has answered; 0: it did not; missing: it was not asked for three intervals",
    ),
    Metric(
        "onlyonce.batches.not_conserved",
        "gauge",
        "",
        "not_conserved",
        _one("not_conserved"),
        f"Batches among the last {COMPARED} of each query whose records do not add up: must be 0",
    ),
    Metric(
        "onlyonce.duplicates.near_horizon",
        "gauge",
        "",
        "look_ups",
        _one("near_horizon"),
        f"Duplicates in the last {COMPARED} batches that gc would soon have forgotten: lengthen dedup_horizon",
    ),
    Metric(
        "onlyonce.lookups.spared",
        "gauge",
        "",
        "look_ups",
        _one("lookups_spared"),
        f"Of the last {COMPARED} batches: (id, chunk) pairs that a Bloom filter ruled out",
    ),
    Metric(
        "onlyonce.lookups.false_positives",
        "gauge",
        "",
        "look_ups",
        _one("false_positives"),
        f"Of the last {COMPARED} batches: pairs that it let through although the chunk does not hold the id",
    ),
    Metric("onlyonce.catalog.ids", "gauge", "", "catalog", _one("ids"), "Record ids in the catalog"),
    Metric(
        "onlyonce.catalog.chunks",
        "gauge",
        "",
        "catalog",
        _one("chunks"),
        "Chunks of record ids in the catalog, each with a filter",
    ),
    Metric("onlyonce.catalog.size", "gauge", "By", "catalog", _one("bytes"), "Bytes of the catalog: ids and filters"),
    Metric(
        "onlyonce.catalog.filters.size",
        "gauge",
        "By",
        "catalog",
        _one("filter_bytes"),
        "Bytes of the catalog that are Bloom filters",
    ),
    Metric("onlyonce.alerts", "gauge", "", "alerts", _one("alerts"), "Causes of alerts that have not cleared"),
]
UP = "onlyonce.up"
LABELS = ("pipeline", "stage", "kind")


class Figures:
    """Cache the rows of the views, and read them again once they are older than FRESH_SECONDS.

    Raises nothing: `up` returns whether the log answered.
    """

    def __init__(self, database: Database) -> None:
        self._database, self._turn = database, threading.Lock()
        self._rows: dict[str, list[Row]] = {}
        self._asked_at = float("-inf")

    def rows(self, query: str) -> list[Row]:
        """Return the rows of one query; none if the log did not answer."""
        with self._turn:
            if time.monotonic() - self._asked_at > FRESH_SECONDS:
                self._rows, self._asked_at = self._ask(), time.monotonic()
            return self._rows.get(query, [])

    def up(self) -> bool:
        """Return whether the log answered the last time."""
        self.rows("stages")
        return bool(self._rows)

    def _ask(self) -> dict[str, list[Row]]:
        try:
            return read(self._database)
        except (OnlyonceError, DBAPIError) as error:
            log.warning("the log did not answer", problem=str(error).splitlines()[0])
            return {}


def read(database: Database) -> dict[str, list[Row]]:
    """Return all figures by query, read in one snapshot. Raise Retryable if the log does not answer."""
    with Views.at_one_moment(database) as views:
        connection = views.connection
        return {
            "stages": _rows(ask(connection, "metrics", "stages")),
            "records": _rows(ask(connection, "metrics", "records")),
            "not_conserved": _rows(ask(connection, "metrics", "not_conserved", n=COMPARED)),
            "look_ups": _rows(ask(connection, "metrics", "look_ups", n=COMPARED)),
            "catalog": _rows(ask(connection, "metrics", "catalog")),
            "backlog": _rows(ask(connection, "metrics", "backlog")),
            "alerts": _rows(ask(connection, "metrics", "alerts")),
        }


def table(figures: Figures) -> list[dict[str, Any]]:
    """Return all metrics with their present values, under their names in Prometheus. For `onlyonce metrics`."""
    empty = dict.fromkeys((*LABELS, "fate", "state"))
    found: list[dict[str, Any]] = [{"metric": UP.replace(".", "_"), "value": int(figures.up()), **empty}]
    for metric in METRICS:
        for value, of in samples(metric, figures.rows(metric.query)):
            found.append({"metric": metric.prometheus, "value": value, **empty, **of})
    return found


def samples(metric: Metric, rows: Iterable[Row]) -> Iterator[tuple[float, dict[str, str]]]:
    """Yield (value, attributes) of each value that is not null.

    A string becomes an attribute, with the value 1. Pure.
    """
    for row in rows:
        of = {label: str(row[label]) for label in LABELS if label in row}
        for column, more in metric.columns.items():
            value = row[column]
            if isinstance(value, str):
                yield 1, {**of, **more, column: value}
            elif value is not None:
                yield value, {**of, **more}


def provider(figures: Figures, reader: MetricReader) -> MeterProvider:
    """Return a provider whose instruments read the log whenever `reader` collects."""
    made = MeterProvider([reader], Resource.create({"service.name": "onlyonce"}))
    meter = made.get_meter("onlyonce")
    meter.create_observable_gauge(
        UP, [lambda _: [Observation(int(figures.up()))]], description="Whether the log answers"
    )
    for metric in METRICS:
        make = meter.create_observable_gauge if metric.kind == "gauge" else meter.create_observable_counter
        make(metric.name, [_callback(figures, metric)], unit=metric.unit, description=metric.description)
    return made


def serve(figures: Figures, host: str, port: int) -> Callable[[], None]:
    """Serve Prometheus' format at http://host:port/metrics; return the function that ends it.

    Raise Refused if the exporter is not installed or the port is taken.
    """
    try:
        import prometheus_client
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
    except ImportError as error:
        raise Refused(
            f"metrics can't be served: {error.name} is not installed",
            hint="pip install 'onlyonce-pipelines[prometheus]'; `--push` needs no more than what is there",
        ) from error
    made = provider(figures, PrometheusMetricReader())
    try:
        server, _ = prometheus_client.start_http_server(port, host)
    except OSError as error:
        made.shutdown()
        raise Refused(f"{host}:{port} can't be listened on: {error.strerror}", hint="choose another port") from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        made.shutdown()

    return end


def push(figures: Figures, every_seconds: float) -> MeterProvider:
    """Send to an OpenTelemetry collector by OTLP/HTTP at intervals, until `shutdown` of the result sends a last time.

    OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT and the like) name the collector.
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return provider(figures, PeriodicExportingMetricReader(OTLPMetricExporter(), every_seconds * 1000))


def _callback(figures: Figures, metric: Metric) -> Callable[[CallbackOptions], list[Observation]]:
    return lambda _: [Observation(value, of) for value, of in samples(metric, figures.rows(metric.query))]


def _rows(found: list[Any]) -> list[Row]:
    return [dict(row._mapping) for row in found]
