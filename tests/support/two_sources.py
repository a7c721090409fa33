"""A shop that sells in the web and at a till: two sources of one pipeline, each with its own columns; and the plainest
model of how far they have come.

`tills` is what a test may change: which sources are declared, and how.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce import Delta, Files, Fixed, Input, Kafka, Output, Pipeline, Postgres

MINUTE = timedelta(minutes=1)
IDLE = timedelta(minutes=10)
START = datetime(2026, 1, 1, 10, tzinfo=UTC)


def per_minute(sales: DataFrame) -> DataFrame:
    """Cents and sales of each place."""
    return sales.groupBy("oo_window", "place").agg(F.sum("cents").alias("cents"), F.count(F.lit(1)).alias("sales"))


def each(sales: DataFrame) -> DataFrame:
    """Each sale."""
    return sales.select("id", "place", "cents")


WEB = Input(source=Files(max_files_a_batch=1), idle_after=IDLE)
TILL = Input(
    source=Files(max_files_a_batch=1, format="csv"),
    schema="receipt string, rung_at timestamp, euros int",
    columns={"id": "receipt", "at": "rung_at", "cents": "cast(euros * 100 as bigint)", "place": "'till'"},
    idle_after=IDLE,
)
KIOSK = Input(
    source=Files(max_files_a_batch=1),
    idle_after=timedelta(seconds=float(os.environ.get("KIOSK_IDLE_SECONDS", IDLE.total_seconds()))),
)
TOPIC = Kafka(
    topic=os.environ.get("TEST_TOPIC", "web"),
    servers=os.environ.get("TEST_SERVERS", "localhost:9092"),
    max_offsets_a_batch=10,
)
DECLARED = {"web": WEB, "till": TILL, "kiosk": KIOSK, "topic": Input(source=TOPIC, idle_after=timedelta(seconds=1))}


def pipeline(**changed: Any) -> Pipeline:
    """The shop with the sources that the test names."""
    names = os.environ.get("TEST_SOURCES", "web,till").split(",")
    by_place = "TEST_BY_PLACE" in os.environ
    options: dict[str, Any] = {
        "name": "shop",
        "sources": {name: DECLARED[name] for name in names},
        "id_space": None if by_place else os.environ.get("TEST_ID_SPACE", "by_source"),
        "schema": "id string, at timestamp, cents bigint, place string",
        "record_id": () if by_place else "id",
        "event_time": "at",
        "outputs": (
            Output(
                name="per_minute", transform="tests.support.two_sources:per_minute", window=Fixed(MINUTE), sink=Delta()
            ),
            Output(name="each", transform="tests.support.two_sources:each", sink=Postgres(table="results.each")),
        ),
    }
    return Pipeline(**(options | changed))


PIPELINES = [pipeline()]


@dataclass(frozen=True)
class Sale:
    """A record of either source."""

    source: str
    id: str
    second: int
    euros: int

    @property
    def at(self) -> datetime:
        """Its event time."""
        return START + timedelta(seconds=self.second)

    @property
    def line(self) -> Any:
        """As its source writes it."""
        if self.source == "till":
            return f"{self.id},{self.at.isoformat()},{self.euros}"
        return {"id": self.id, "at": self.at.isoformat(), "cents": self.euros * 100, "place": self.source}

    @property
    def row(self) -> tuple[Any, ...]:
        """As `each` has it."""
        return self.id, self.source, self.euros * 100


@dataclass
class Model:
    """What is in time and what is late, by the rule said once more: a batch is judged by the max event time before it, and the
    max event time is the least of the sources that are not idle, or of all that have ever been the furthest if all are.

    It never moves back."""

    sources: list[str]
    shared: bool = False
    by_place: bool = False
    max_event_time: int | None = None
    progress: dict[str, int | None] = field(default_factory=dict)
    last: dict[str, datetime] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)
    known: set[tuple[str, str]] = field(default_factory=set)
    in_time: list[Sale] = field(default_factory=list)
    late: list[Sale] = field(default_factory=list)

    def run(self, files: dict[str, list[list[Sale]]], clock: datetime) -> None:
        """One run: the files of the sources take turns, then the look for idle ones."""
        rounds = max((len(files.get(name, [])) for name in self.sources), default=0)
        for number in range(rounds):
            for name in self.sources:
                if number < len(files.get(name, [])):
                    self._batch(name, files[name][number], clock)
        if not self.last:
            return
        for name in self.sources:
            self.last.setdefault(name, clock)
            if clock - self.last[name] >= IDLE:
                self.idle.add(name)
        self._move()

    def _batch(self, name: str, sales: list[Sale], clock: datetime) -> None:
        for other in self.sources:
            self.last.setdefault(other, clock)
        for sale in sales:
            identity = ("" if self.shared else sale.source, sale.id)
            if identity in self.known and not self.by_place:
                continue
            self.known.add(identity)
            end = sale.second // 60 * 60 + 60
            (self.late if self.max_event_time is not None and end <= self.max_event_time else self.in_time).append(sale)
            seen = self.progress.get(name)
            self.progress[name] = sale.second if seen is None else max(seen, sale.second)
        self.last[name] = clock
        self.idle.discard(name)
        self._move()

    def _move(self) -> None:
        awake = [self.progress.get(name) for name in self.sources if name not in self.idle]
        if not awake:
            awake = (
                [max(max_event_time for max_event_time in self.progress.values() if max_event_time is not None)]
                if any(t is not None for t in self.progress.values())
                else [None]
            )
        if None not in awake:
            least = min(max_event_time for max_event_time in awake if max_event_time is not None)
            self.max_event_time = least if self.max_event_time is None else max(self.max_event_time, least)

    def windows(self, sales: list[Sale]) -> Counter[Any]:
        """(window's start, place, cents, sales) by a batch over these."""
        groups: dict[Any, list[int]] = {}
        for sale in sales:
            start = START + timedelta(seconds=sale.second // 60 * 60)
            groups.setdefault((start, sale.source), []).append(sale.euros * 100)
        return Counter((start, place, sum(cents), len(cents)) for (start, place), cents in groups.items())
