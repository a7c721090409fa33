"""A pipeline whose rows go on as they come, to Delta and to PostgreSQL, and what its users would write without it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed
from tests.benchmarks import ways

SCHEMA = "id long, user long, at timestamp, amount long"
TABLE, CLOSING, AT_CLOSE = "bench.arrivals", "bench.closing", "bench.at_close"
BARE_TABLE = "bare_arrivals"
A_SECOND = 2
"""Files a second: their records are half a second of event time apart."""
START = datetime(2026, 1, 1, tzinfo=UTC)


Owed = Callable[[int], int]
"""How many rows a sink is to have once a file, by its number, and all before are through."""


def as_it_is(rows: DataFrame) -> DataFrame:
    """Each record a row."""
    return rows.select("id", "user", "at", "amount")


def per_second(rows: DataFrame) -> DataFrame:
    """One row of each second."""
    return rows.groupBy("oo_window").agg(F.count(F.lit(1)).alias("rows"), F.sum("amount").alias("amount"))


def _pipeline(name: str, transform: str, table: str, **windows: Any) -> Pipeline:
    outputs = (
        Output(name="delta", transform=transform, sink=Delta(), **windows),
        Output(name="postgres", transform=transform, sink=Postgres(table=table), **windows),
    )
    return Pipeline(
        name=name,
        source=Files(),
        schema=SCHEMA,
        record_id=("id",),
        event_time="at",
        max_ahead=timedelta(days=36500),
        outputs=outputs,
    )


PIPELINES = [
    _pipeline("arrivals", "tests.benchmarks.arrivals:as_it_is", TABLE),
    _pipeline("closing", "tests.benchmarks.arrivals:per_second", CLOSING, window=Fixed(timedelta(seconds=1))),
    _pipeline(
        "at_close",
        "tests.benchmarks.arrivals:per_second",
        AT_CLOSE,
        window=Fixed(timedelta(seconds=1)),
        panes="at_close",
    ),
]


def put(inbox: Path, number: int, records: int) -> float:
    """The next file comes in; gives the time when it was there."""
    inbox.mkdir(parents=True, exist_ok=True)
    first = number * records
    at = f"{START + timedelta(seconds=number / A_SECOND):%Y-%m-%dT%H:%M:%S.%fZ}"
    lines = [json.dumps({"id": first + n, "user": n, "at": at, "amount": n}) for n in range(records)]
    partial = inbox / f".{number:06d}"
    partial.write_text("\n".join(lines) + "\n")
    partial.rename(inbox / f"{number:06d}.jsonl")
    return time.time()


@dataclass
class Watch:
    """When how many rows were in a sink. `count` is asked every few milliseconds, from the first to the last file."""

    count: Callable[[], int]
    seen: list[tuple[float, int]] = field(default_factory=list)

    def look(self) -> int:
        """Look once."""
        rows = self.count()
        if not self.seen or self.seen[-1][1] < rows:
            self.seen.append((time.time(), rows))
        return rows

    def waited(self, arrivals: dict[int, float], owed: Owed) -> list[float]:
        """For each file by which a sink has more rows: the seconds from its arrival until these, and all before, were
        there."""
        return [
            next(when for when, rows in self.seen if rows >= owed(number)) - arrived
            for number, arrived in arrivals.items()
            if owed(number) > owed(number - 1)
        ]


def feed(
    inbox: Path, files: range, records: int, sinks: dict[str, Watch], owed: Owed, patience: float
) -> dict[int, float]:
    """Put in files of so many records, by number, two a second; watch the sinks until all rows are there; gives each
    file's arrival."""
    arrivals: dict[int, float] = {}
    ended = threading.Event()

    def produce() -> None:
        began = time.monotonic()
        for put_before, number in enumerate(files):
            if ended.wait(max(0.0, began + put_before / A_SECOND - time.monotonic())):
                return
            arrivals[number] = put(inbox, number, records)

    producer = threading.Thread(target=produce)
    producer.start()
    until = time.monotonic() + patience
    try:
        while min([watch.look() for watch in sinks.values()]) < owed(files.stop - 1):
            assert time.monotonic() < until, {name: watch.seen[-1:] for name, watch in sinks.items()}
            time.sleep(0.02)  # the resolution of what is measured
    finally:
        ended.set()
        producer.join()
    return arrivals


def in_delta(table: Path) -> Callable[[], int]:
    """How many rows a table's commits have added so far; each commit is read once."""
    known = {"version": -1, "rows": 0}

    def count() -> int:
        while (commit := table / "_delta_log" / f"{known['version'] + 1:020}.json").exists():
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            known["rows"] += sum(json.loads(one["add"]["stats"])["numRecords"] for one in actions if "add" in one)
            known["version"] += 1
        return known["rows"]

    return count


def in_postgres(url: str, table: str) -> Callable[[], int]:
    """How many rows a table has; none while it is not there."""
    import psycopg2

    session = psycopg2.connect(url)
    session.autocommit = True
    cursor: Any = session.cursor()

    def asked(statement: str, *values: str) -> Any:
        cursor.execute(statement, values)
        return cursor.fetchone()[0]

    def count() -> int:
        there = asked("SELECT to_regclass(%s) IS NOT NULL", table)
        return int(asked(f"SELECT count(*) FROM {table}")) if there else 0  # a name of ours

    return count


def bare(spark: SparkSession, home: Path, url: str) -> list[StreamingQuery]:
    """A query for each sink, straight from the files, each batch appended; what is tried twice is there twice."""

    def to_delta(rows: DataFrame, _: int) -> None:
        rows.write.format("delta").mode("append").save(str(home / "table"))

    def to_postgres(rows: DataFrame, _: int) -> None:
        rows.foreachPartition(ways.insert_into(url, BARE_TABLE))

    with ways.database_session(url) as session:
        session.cursor().execute(f'CREATE TABLE {BARE_TABLE} (id bigint, "user" bigint, at timestamptz, amount bigint)')
    (home / "inbox").mkdir(parents=True)
    started = []
    for name, write in (("delta", to_delta), ("postgres", to_postgres)):
        rows = spark.readStream.schema(SCHEMA).json(str(home / "inbox"))
        writer = rows.writeStream.option("checkpointLocation", str(home / name)).foreachBatch(write)
        started.append(writer.trigger(processingTime="0 seconds").start())
    return started
