"""Finds a record at which each attempt at a batch fails, by halving the batch, and has it refused from then on.

docs/specification/receive.md.

No such record is known, since a parser makes what it can't read `invalid`. But an unforeseen one would stop its
pipeline for good: each run would fail at the same batch.

Only an error that the platform does not know counts as a cause. The database, a broker, a vanished file and a newer
driver have errors of their own. A record is refused only if it fails alone, when it is read and written into a folder
that nobody reads.

Who calls it: `receive`. Errors: those of the batch. Not promised: anything for a record that ends the whole process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa

from onlyonce.commitlog import failures
from onlyonce.commitlog.failures import FailedAttempts
from onlyonce.context.query import Query
from onlyonce.failpoints import passing
from onlyonce.model import halves, poison
from onlyonce.model.batch import Batch
from onlyonce.model.poison import Place
from onlyonce.model.sources.record_places import RecordPlaces
from onlyonce.model.storage.location import Location
from onlyonce.session.failures import known as is_known
from onlyonce.sources.chosen import Chosen
from onlyonce.storage import stores

Done = TypeVar("Done")
Places = Callable[[], pa.Table]
"""The places of all records of a batch, as columns oo_file and oo_position."""
Attempt = Callable[[Chosen, Location], object]
Trial = Callable[[], AbstractContextManager[Location]]
"""Gives a folder that driver and executors see, for one attempt and no longer."""
REASON = "receive fails at this record by itself: {cause}. Kept is how it begins"


def written(
    query: Query,
    instance: str,
    batch: Batch,
    named: RecordPlaces,
    places: Places,
    write: Callable[[Chosen], Done],
    attempt: Attempt,
    trial: Trial,
) -> Done:
    """What `write` gives, of a batch without the records at which it fails.

    `attempt` does the same work without a trace, in a folder of `trial`. `named` has the names of the files.
    """
    known = _known(query, batch)
    looking = False
    while True:
        try:
            return write(Chosen(known.refused))
        except Exception as error:
            if is_known(error):
                raise
            cause = poison.cause_of(error)
            known = FailedAttempts(query.database).add(query.driver, batch.plan.batch_id, cause)
            passing("poison-after-count")
            looking = looking or poison.is_due(known.times)
            found = _found(places(), known.refused, attempt, trial) if looking else None
            if found is None or found in known.refused:
                raise
            refused = {**known.refused, found: REASON.format(cause=poison.told(error))}
            unit, place = f"{query.lineage}/{batch.plan.batch_id}", named.of(*found) or found
            query.log.warning("a record is refused", unit=unit, place=str(place), cause=cause)
            _refuse(query, instance, batch, refused)
            known = failures.Failures(known.times, refused)


def _known(query: Query, batch: Batch) -> failures.Failures:
    if not batch.replayed:
        return failures.Failures()
    return FailedAttempts(query.database).of_batch(query.lineage, batch.plan.batch_id)


def _refuse(query: Query, instance: str, batch: Batch, refused: dict[Place, str]) -> None:
    passing("poison-before-refuse")
    FailedAttempts(query.database).refuse(query.driver, instance, batch.plan.batch_id, refused)
    passing("poison-after-commit")


@contextmanager
def in_store(trials: Location) -> Iterator[Location]:
    """A prefix for one attempt.

    What a killed driver has left beside it goes too; nobody reads any of it, so it is nobody's loss.
    """
    store = stores.of(trials)
    store.clear(trials)
    try:
        yield trials / uuid4().hex
    finally:
        store.clear(trials)


def _found(places: pa.Table, refused: Mapping[Place, str], attempt: Attempt, trial: Trial) -> Place | None:
    """The place of the first record that fails by itself."""
    files, positions = (places.column(name).to_numpy() for name in ("oo_file", "oo_position"))
    order = np.lexsort((positions, files))

    def place(at: int) -> Place:
        return Place(int(files[order[at]]), int(positions[order[at]]))

    def fails(first: int, stop: int) -> bool:
        return _fails(Chosen(refused, place(first), place(stop) if stop < len(order) else None), attempt, trial)

    at = halves.alone(len(order), fails)
    return None if at is None else place(at)


def _fails(chosen: Chosen, attempt: Attempt, trial: Trial) -> bool:
    # Not by the cause's text: the driver and Spark's tasks tell the same one differently.
    try:
        with trial() as folder:
            attempt(chosen, folder)
    except Exception as error:
        if is_known(error):
            raise
        return True
    return False
