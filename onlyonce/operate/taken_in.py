"""Which files of an inbox an instance has taken in, by the registry of its source and by the log. No Spark.

Only the files that are there are asked for, however many have come and gone. Who calls it: `archive`, and
`erase.in_use`. Errors: those of the connection, and DeltaError where the registry can't be read.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from onlyonce import settings
from onlyonce.catalog.collector import Collector
from onlyonce.database.transactions import Scope
from onlyonce.model import stored_names
from onlyonce.model.storage.location import Location
from onlyonce.model.stored_names import BATCH_NO
from onlyonce.sources.files import moved_inboxes
from onlyonce.storage import event_rows, log_entries

Mark = tuple[int, int]
"""Size and time of change, as the registry has them."""


@dataclass(frozen=True)
class Entry:
    """A file as it was registered, where it is now.

    committed   its batch is
    was_read    and the file could be read. What could not is counted as one invalid record; the file itself is for a
                person to look at
    passed_by   no batch reads it: it was there before the first one, and was not wanted
    """

    path: str
    mark: Mark
    committed: bool
    was_read: bool
    passed_by: bool


def entries(scope: Scope, instance: str, there: Collection[Location], source: str | None = None) -> list[Entry]:
    """The registry's entries of these files; one that was replaced or registered by a later life has several.

    `source`: which of several sources reads them.
    """
    data = settings.data_location(instance)
    table = (data / stored_names.SOURCES_FOLDER / source if source else data) / stored_names.FILES_MANIFEST
    if not there or not log_entries.any_in(table):
        return []
    moved, wanted = moved_inboxes.of(instance.partition("@")[0]), {str(path) for path in there}
    named = pc.is_in(
        pc.replace_substring_regex(pc.field("path"), pattern="^.*/", replacement=""),
        value_set=pa.array(sorted({path.name for path in there})),
    )
    columns = ["path", "size", "modified_ns", BATCH_NO, "refusal"]
    rows = event_rows.dataset(table).filter(named).to_table(columns=columns).to_pylist()
    committed = Collector(scope).committed_cuts(instance, sorted({row[BATCH_NO] for row in rows}), source)
    found = []
    for row in rows:
        unreadable = committed.get(row[BATCH_NO])
        was_read = unreadable is not None and row["path"] not in unreadable and row["refusal"] is None
        mark = (row["size"], row["modified_ns"])
        place = moved_inboxes.place(row["path"], moved)
        found.append(Entry(place, mark, unreadable is not None, was_read, row[BATCH_NO] < 0))
    return [entry for entry in found if entry.path in wanted]
