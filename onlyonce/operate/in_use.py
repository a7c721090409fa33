"""Find what is still in use: batches under way over `events`, staged rows, and files that an instance has read.

A reader that began a while ago may want files that were in the table then. A query that was killed may begin its batch
again at any time. So both hold the files and the log of the table. No Spark. A checkpoint that can't be read raises
OSError.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import ceil

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from deltalake.exceptions import DeltaError

from onlyonce import settings
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.cuts import Compactions, LiveIncarnation
from onlyonce.commitlog.removals import Settled
from onlyonce.core import stored_names
from onlyonce.core.batch import is_part, read_upto
from onlyonce.core.locations import Location
from onlyonce.core.stored_names import BATCH_NO, OO_BATCH, OO_INCARNATION
from onlyonce.database.connect import Database, Scope
from onlyonce.sources import record_id
from onlyonce.tables import checkpoint, opening, stores, table_files

log = structlog.get_logger()


def hours_under_way(database: Database, instance: str) -> float:
    """Return for how many hours work has been under way: a reader of that age may want files of the table of then."""
    oldest = Batches(database).oldest_begun()
    ages = [oldest / 3600, *_planned(database, instance), *_begun(database, instance)]
    return float(ceil(max(ages)) + 1) if max(ages) > 0 else 0.0


def first_batches(database: Database, instance: str) -> Iterator[tuple[str, int]]:
    """Yield the queries whose first batch has not ended, each with the version from which Spark may
    read the whole table."""
    for one, folder in _incarnations(database, instance):
        if checkpoint.last(folder, "commits") < 0 <= checkpoint.last(folder, "offsets"):
            yield one.query, read_upto(checkpoint.offsets(folder, 0)[0])


def _planned(database: Database, instance: str) -> Iterator[float]:
    """Yield the ages, in hours, of batches that Spark has planned and not ended."""
    for _, folder in _incarnations(database, instance):
        planned = checkpoint.last(folder, "offsets")
        if planned > checkpoint.last(folder, "commits"):
            yield _age(folder / "offsets" / str(planned))


def _begun(database: Database, instance: str) -> Iterator[float]:
    """Yield the ages, in hours, of incarnations that read a table in parts, as it was when they began.

    Spark opens files of that time for each part.
    """
    for one, folder in _incarnations(database, instance):
        if is_part(one.source_from) or is_part(one.source_to):
            yield _age(folder / "metadata")


def _age(file: Location) -> float:
    there = stores.of(file).look(file)
    if there is None:
        raise FileNotFoundError(str(file))
    return (time.time() - there.modified) / 3600


def _incarnations(database: Database, instance: str) -> list[tuple[LiveIncarnation, Location]]:
    known = Compactions(database).queries(instance)
    home = settings.data_location(instance) / stored_names.CHECKPOINTS_FOLDER
    return [(one, home / one.query / str(one.ordinal)) for one in known if one.query != "receive"]


# Staged rows (stable input) are read only by a replay of their batch, and a committed batch is not replayed. They stay
# for one more day, for people who want to look at them. The table's log keeps its transaction numbers; the files are
# removed after Delta's own week for old readers. If another writer is running on a table, the table is left for the
# next time, with a warning.


def remove(settled: list[Settled], *, at_once: bool = False) -> int:
    """Remove the staged rows of these incarnations up to their batches; return the number of data files removed.

    With `at_once`, delete the files from the disk too, though another process may read them. Raise DeltaError if that
    fails.
    """
    of_output: dict[tuple[str, str], list[Settled]] = {}
    for one in settled:
        of_output.setdefault((one.instance, one.output), []).append(one)
    return sum(_remove(some, path, at_once=at_once) for output, some in of_output.items() for path in tables(*output))


def tables(instance: str, output: str) -> list[Location]:
    """Return the tables of an output's staged rows: one for each declaration under which it has staged rows."""
    folder = settings.data_location(instance) / stored_names.STAGED_FOLDER / output
    return [folder / name for name in sorted(stores.of(folder).names(folder)) if opening.any_in(folder / name)]


def _remove(settled: list[Settled], path: Location, *, at_once: bool) -> int:
    table = opening.table(path)
    there = sorted(((int(part[OO_BATCH]), part[OO_INCARNATION]) for part in table.partitions()), reverse=True)
    oldest = {incarnation: batch for batch, incarnation in there}
    going = [one for one in settled if one.incarnation in oldest and oldest[one.incarnation] <= one.upto]
    if not going:
        return 0
    each = [(one.incarnation.replace("'", "''"), one.upto) for one in going]
    try:
        done = table.delete(
            " OR ".join(f"({OO_INCARNATION} = '{whose}' AND {OO_BATCH} <= {upto})" for whose, upto in each)
        )
        table.vacuum(0 if at_once else None, dry_run=False, enforce_retention_duration=not at_once)
    except DeltaError as error:
        if at_once:
            raise
        # Mostly another writer's commit, and then the next gc removes them. The type of the error does not say it.
        log.warning("staged rows were not removed, and stay until the next gc", table=str(path), problem=str(error))
        return 0
    return int(done["num_removed_files"])


# Files of an inbox that an instance has read, by the manifest of its source and by the log. Only the files that
# still exist are looked up, however many have come and gone.


Mark = tuple[int, int]
"""Size and time of change, as in the manifest."""


@dataclass(frozen=True)
class Entry:
    """A file as it was registered, with its present path.

    committed   its batch is committed
    was_read    its batch is committed and the file was readable; an unreadable file counts as one invalid record
    passed_by   no batch reads it: it was there before the first batch and was not wanted
    """

    path: str
    mark: Mark
    committed: bool
    was_read: bool
    passed_by: bool


def entries_taken_in(
    scope: Scope, instance: str, there: Collection[Location], source: str | None = None
) -> list[Entry]:
    """Return the manifest's entries of these files; a file that was replaced or registered by a later incarnation has
    several.

    `source`: the source that reads them, if there are several.
    """
    data = settings.data_location(instance)
    table = (data / stored_names.SOURCES_FOLDER / source if source else data) / stored_names.FILES_MANIFEST
    if not there or not opening.any_in(table):
        return []
    moved, wanted = record_id.moved_inboxes_of(instance.partition("@")[0]), {str(path) for path in there}
    named = pc.is_in(
        pc.replace_substring_regex(pc.field("path"), pattern="^.*/", replacement=""),
        value_set=pa.array(sorted({path.name for path in there})),
    )
    columns = ["path", "size", "modified_ns", BATCH_NO, "refusal"]
    rows = table_files.dataset_of_events(table).filter(named).to_table(columns=columns).to_pylist()
    committed = Collector(scope).committed_cuts(instance, sorted({row[BATCH_NO] for row in rows}), source)
    found = []
    for row in rows:
        unreadable = committed.get(row[BATCH_NO])
        was_read = unreadable is not None and row["path"] not in unreadable and row["refusal"] is None
        mark = (row["size"], row["modified_ns"])
        place = record_id.place_in_inbox(row["path"], moved)
        found.append(Entry(place, mark, unreadable is not None, was_read, row[BATCH_NO] < 0))
    return [entry for entry in found if entry.path in wanted]
