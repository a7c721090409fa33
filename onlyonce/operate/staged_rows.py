"""Removes staged rows (stable input) of batches that were committed some time ago. Without a JVM.

Only a replay reads the staged rows of its batch, and a committed batch is not replayed. They stay for one more day, for
people who want to look at them. The table's log keeps its transaction numbers; the files are removed after Delta's own
week for old readers.

Who calls it: `onlyonce.operate.collect`, an erasure. Errors: none; if another writer is at work on a table it is left
for the next time. Not promised: that everything is removed at once.
"""

from __future__ import annotations

from deltalake.exceptions import DeltaError

from onlyonce import settings
from onlyonce.commitlog.operate.retention import Settled
from onlyonce.model import stored_names
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import OO_BATCH, OO_LINEAGE
from onlyonce.storage import log_entries, opening, stores


def remove(settled: list[Settled], *, at_once: bool = False) -> int:
    """Remove the staged rows of these lineages up to their batches; gives the number of data files that were let go.

    `at_once`: from the disk too, though somebody may be reading them. Raises DeltaError then, where they can't be."""
    return sum(_remove(one, path, at_once=at_once) for one in settled for path in tables(one.instance, one.output))


def tables(instance: str, output: str) -> list[Location]:
    """Return the tables of an output's staged rows: one for each declaration under which it has staged rows."""
    folder = settings.data_location(instance) / stored_names.STAGED_FOLDER / output
    return [folder / name for name in sorted(stores.of(folder).names(folder)) if log_entries.any_in(folder / name)]


def _remove(one: Settled, path: Location, *, at_once: bool) -> int:
    table = opening.table(path)
    there = [part for part in table.partitions() if part[OO_LINEAGE] == one.lineage]
    if not any(int(part[OO_BATCH]) <= one.upto for part in there):
        return 0
    lineage = one.lineage.replace("'", "''")
    try:
        done = table.delete(f"{OO_LINEAGE} = '{lineage}' AND {OO_BATCH} <= {one.upto}")
        table.vacuum(0 if at_once else None, dry_run=False, enforce_retention_duration=not at_once)
    except DeltaError:
        if at_once:
            raise
        return 0
    return int(done["num_removed_files"])
