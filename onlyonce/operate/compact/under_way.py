"""What is under way over `events`: batches that Spark has planned or the log has begun, and backfills. No Spark.

A reader that began a while ago may want files that were in the table then, and a query that was killed may begin its
batch again at any time: so both hold the files and the log of the table. Who calls it: `compaction`, `collect`. Errors:
OSError for a checkpoint that can't be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import ceil

from onlyonce import settings
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.operate.compaction import Compactions, Life
from onlyonce.database.connect import Database
from onlyonce.model import stored_names
from onlyonce.model.batch import is_part, read_upto
from onlyonce.model.storage.location import Location
from onlyonce.storage import checkpoint, stores


def hours(database: Database, instance: str) -> float:
    """For how long what is under way has been: a reader of that age may want files that were in the table when it
    began."""
    oldest = Batches(database).oldest_begun()
    ages = [oldest / 3600, *_planned(database, instance), *_begun(database, instance)]
    return float(ceil(max(ages)) + 1) if max(ages) > 0 else 0.0


def first_batches(database: Database, instance: str) -> Iterator[tuple[str, int]]:
    """The queries whose first batch their checkpoints have not ended, each with the version of which Spark may read the
    whole table again."""
    for one, folder in _lives(database, instance):
        if checkpoint.last(folder, "commits") < 0 <= checkpoint.last(folder, "offsets"):
            yield one.query, read_upto(checkpoint.offsets(folder, 0)[0])


def _planned(database: Database, instance: str) -> Iterator[float]:
    """The ages, in hours, of batches that Spark has planned and not ended."""
    for _, folder in _lives(database, instance):
        planned = checkpoint.last(folder, "offsets")
        if planned > checkpoint.last(folder, "commits"):
            yield _age(folder / "offsets" / str(planned))


def _begun(database: Database, instance: str) -> Iterator[float]:
    """The ages, in hours, of lives that read in parts what there was when they began: of each part Spark opens a file
    of then."""
    for one, folder in _lives(database, instance):
        if is_part(one.source_from) or is_part(one.source_to):
            yield _age(folder / "metadata")


def _age(file: Location) -> float:
    there = stores.of(file).look(file)
    if there is None:
        raise FileNotFoundError(str(file))
    return (time.time() - there.modified) / 3600


def _lives(database: Database, instance: str) -> list[tuple[Life, Location]]:
    known = Compactions(database).queries(instance)
    home = settings.data_location(instance) / stored_names.CHECKPOINTS_FOLDER
    return [(one, home / one.query / str(one.life)) for one in known if one.query != "receive"]
