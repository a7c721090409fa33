"""Each place in which a value of a record may be, and what an erasure does there.

`tests/unit/operate/test_erasure_places.py` compares the table with the product.

A test that plants a value in some of these places is marked with `plants`. It finds the value there by the decoding
search, erases, and compares what is left with `after`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from onlyonce.api.pipeline import (
    BigQuery,
    BigQueryStream,
    Custom,
    CustomSink,
    Delta,
    DeltaSource,
    Files,
    FileSink,
    Growing,
    Iceberg,
    Kafka,
    KafkaSink,
    MySQL,
    Postgres,
    PubSub,
    Webhook,
)

T = TypeVar("T", bound=Callable[..., object])
After = Literal["cleaned", "named", "said"]


@dataclass(frozen=True)
class Place:
    """One kind of place.

    after   cleaned: the search finds nothing; named: it finds the value, and the receipt has the path; said: it can't
            be searched, and the receipt says when it is gone
    of      the sources or sinks whose place it is
    below   how its name begins, below the home or as the name of a table
    """

    after: After
    of: tuple[type, ...] = ()
    below: str = ""


PLACES: dict[str, Place] = {
    # Of the platform
    "events": Place("cleaned", below="data/shop/events/"),
    "state": Place("cleaned", below="data/shop/checkpoints/per_shop/1/state/"),
    "state of files": Place("cleaned", below="data/shop/checkpoints/filed/1/state/"),
    "state of a join": Place("named", below="data/shop/checkpoints/pairs/1/state/"),
    "state of a processor": Place("cleaned"),
    "blocks and trials": Place("cleaned"),
    "file of a killed writer": Place("cleaned"),
    "outbox": Place("cleaned", (Webhook,), below="table onlyonce_private.outbox"),
    "rejected": Place("cleaned", below="table onlyonce_private.rejected"),
    "error of a batch": Place("cleaned"),
    "error of a run": Place("named"),
    "error of a long run": Place("named"),
    "finding of the doctor": Place("named"),
    "alert": Place("named"),
    "statements that PostgreSQL counts": Place("named"),
    "write-ahead log": Place("said"),
    "run log": Place("cleaned", below="logs/stream.log"),
    "JSON log": Place("cleaned", below="logs/json.log"),
    "access log": Place("cleaned", below="logs/airflow.log"),
    "log of Airflow": Place("cleaned"),
    "kept sample": Place("cleaned"),
    "Airflow's database": Place("said"),
    "backups": Place("said"),
    # Input
    "inbox": Place("cleaned", (Files,), below="inbox/shop/0.jsonl"),
    "compressed inbox": Place("named", below="inbox/shop/packed.jsonl.gz"),
    "archive": Place("cleaned", below="archive/shop/0.jsonl"),
    "name of an input file": Place("named"),
    "name of an empty folder": Place("named"),
    "object of an inbox": Place("named"),
    "growing file": Place("named", (Growing,)),
    "messages of a source": Place("said", (Kafka,)),
    "messages of a subscription": Place("said", (PubSub,)),
    "table that is a source": Place("said", (DeltaSource,)),
    "what a reader of a team reads": Place("said", (Custom,)),
    # Results
    "statistics": Place("cleaned", below="tables/shop/per_shop/_delta_log/"),
    "rows of Delta": Place("cleaned", (Delta,), below="tables/shop/per_shop/"),
    "rows of a join": Place("cleaned", below="tables/shop/pairs/"),
    "change data of Delta": Place("cleaned"),
    "change data of a commit under way": Place("named"),
    "folder of a partition": Place("cleaned"),
    "row behind a deletion vector": Place("named"),
    "pending": Place("named", (FileSink,), below="files/shop/filed/.pending/"),
    "object of a table": Place("cleaned", (Delta,)),
    "upload that was not ended": Place("said"),
    "object of a file sink": Place("named"),
    "rows without windows": Place("named", below="tables/shop/owned/"),
    "copies of a lookup": Place("named", below="data/@lookups/"),
    "table of a lookup": Place("named", below="table public.owners"),
    "rows of PostgreSQL": Place("named", (Postgres,), below="table results.each"),
    "statistics of PostgreSQL": Place("cleaned"),
    "rows of MySQL": Place("named", (MySQL,)),
    "statistics of MySQL": Place("said", (MySQL,)),
    "snapshots of Iceberg": Place("named", (Iceberg,)),
    "file without a snapshot": Place("named", (Iceberg,)),
    "messages of a sink": Place("said", (KafkaSink,)),
    "messages of a transaction that was undone": Place("said"),
    "rows that were sent": Place("said", (BigQuery, BigQueryStream, CustomSink)),
}


def plants(*names: str) -> Callable[[T], T]:
    """Mark a test that plants a value in these places."""

    assert names
    assert PLACES.keys() >= {*names}
    return lambda test: test


def by_path() -> dict[str, Place]:
    """Return the places that are known by the beginning of their names, which one run of a pipeline brings about."""
    return {name: place for name, place in PLACES.items() if place.below}
