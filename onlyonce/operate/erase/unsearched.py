"""Name what a receipt says of places that the search does not read, each with a reason and with when it goes.

A place is named only if the pipeline has it: a topic if it is a source, pages of a table if rows of it were replaced.
Errors: DatabaseAway.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from onlyonce import settings
from onlyonce.commitlog.operate.erasures import Erasure, Erasures
from onlyonce.commitlog.subscriptions import Subscriptions
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.model.operate import lasting
from onlyonce.model.operate.erasing import Condition
from onlyonce.model.operate.left import NOT_SEARCHED, Left
from onlyonce.operate.erase import input_files, search, topic_messages, windows
from onlyonce.sinks import stored_targets

PUBSUB_GOES = (
    "gone 31 days after they were published at the latest, and once acknowledged unless it or its topic retains them"
)
UNKNOWN = (
    Left(
        "backups of the database and of files",
        f"{NOT_SEARCHED}: onlyonce does not know where they are",
        "delete them, or let them expire",
    ),
    Left(
        "Airflow's database (tables xcom, rendered_task_instance_fields, dag_run)",
        f"{NOT_SEARCHED}: onlyonce has no permission to read it",
        "onlyonce writes no record there; if a DAG of yours does: airflow db clean",
    ),
    Left(
        "logs outside the home (of a cluster, of executors, of a PostgreSQL or an Airflow of your own)",
        f"{NOT_SEARCHED}: onlyonce does not know where they are",
        "delete them, or let them expire",
    ),
    Left("copies that people have made", f"{NOT_SEARCHED}: onlyonce does not know of them", "delete them"),
)
"""What may have a value in every installation. The receipt says in one line each why it can't know."""


def of(
    database: Database, pipeline: Pipeline, condition: Condition, erasure: Erasure, kept: int, master: str | None
) -> Iterator[Left]:
    """Yield each place of an erasure that has removed `kept` records from `events`."""
    if erasure.without_line:
        yield Left(
            f"input of {erasure.without_line} records",
            "no line of them was found",
            "look in the compressed files that this receipt names, and in files that were deleted or moved",
        )
    yield from windows.left(database, pipeline, erasure.spans, kept)
    yield from topic_messages.left(pipeline, master)
    for name in Subscriptions(database).of_pipeline(pipeline.name):
        yield Left(f"messages of the Pub/Sub subscription {name}", NOT_SEARCHED, PUBSUB_GOES)
    yield from input_files.left(pipeline, condition)
    for bucket in _buckets(database, pipeline):
        yield Left(
            f"objects that were deleted from {bucket} or replaced, and uploads that were not ended",
            NOT_SEARCHED,
            lasting.of_bucket(bucket),
        )
    for name in Erasures(database).bounded_runs(pipeline.name):
        yield Left(f"bounded run {name}", f"{NOT_SEARCHED}: it has data of its own", f"onlyonce drop {name}")
    wal = Erasures(database).wal()
    lasts = lasting.of_write_ahead_log(
        wal.checkpoint_timeout, wal.max_wal_size, recycled=wal.recycled, archived=wal.archived, slots=wal.slots
    )
    yield Left("write-ahead log of PostgreSQL", NOT_SEARCHED, lasts)
    yield from UNKNOWN


def _buckets(database: Database, pipeline: Pipeline) -> list[str]:
    """Return the buckets of object stores in which files of a pipeline are."""
    places = [*search.own(pipeline), *inputs.folders(pipeline), settings.archive()]
    roots = (stored_targets.of(database, pipeline, output).root() for output in pipeline.outputs)
    urls = (urlsplit(str(place)) for place in (*places, *roots) if place is not None)
    return sorted({f"{url.scheme}://{url.netloc}" for url in urls if url.netloc})
