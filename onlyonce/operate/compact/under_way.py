"""What is under way over `events`: batches that Spark has planned or the log has begun, and backfills. No Spark.

A reader that began a while ago may want files that were in the table then, and a query that was killed may begin its batch again at any time: so both hold the
files and the log of the table. Who calls it: `compaction`, `collect`. Errors: OSError for a checkpoint that can't be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import ceil
from pathlib import Path

from onlyonce import settings
from onlyonce.commitlog import compaction
from onlyonce.database.connect import Database, ask, run
from onlyonce.model.batch import read_upto
from onlyonce.storage import checkpoint


def hours(database: Database, instance: str) -> float:
    """For how long what is under way has been: a reader of that age may want files that were in the table when it began."""
    oldest = run(database, lambda conn: ask(conn, "batches", "oldest_begun"))[0].seconds
    ages = [oldest / 3600 if oldest else 0.0, *_planned(database, instance)]
    return float(ceil(max(ages)) + 1) if max(ages) > 0 else 0.0


def first_batches(database: Database, instance: str) -> Iterator[tuple[str, int]]:
    """The queries whose first batch their checkpoints have not ended, each with the version of which Spark may read the whole table again."""
    for query, folder in _checkpoints(database, instance):
        if checkpoint.last(folder, "commits") < 0 <= checkpoint.last(folder, "offsets"):
            yield query, read_upto(checkpoint.offsets(folder, 0)[0])


def _planned(database: Database, instance: str) -> Iterator[float]:
    """The ages, in hours, of batches that Spark has planned and not ended."""
    for _, folder in _checkpoints(database, instance):
        planned = checkpoint.last(folder, "offsets")
        if planned > checkpoint.last(folder, "commits"):
            yield (time.time() - (folder / "offsets" / str(planned)).stat().st_mtime) / 3600


def _checkpoints(database: Database, instance: str) -> list[tuple[str, Path]]:
    known = run(database, lambda conn: compaction.queries(conn, instance))
    home = settings.data_dir(instance) / "checkpoints"
    return [(one.query, home / one.query / str(one.life)) for one in known if one.query != "receive"]
