"""The table beside a sink's Delta table that keeps the keys of what was deleted: where it is, and whether it is the
platform's.

No Spark.

Who calls it: the Delta sink, and the withdrawal and the drop, which must know the table. Errors: those of `opening`.
"""

from __future__ import annotations

from typing import TypeVar, cast

from onlyonce.model import stored_names
from onlyonce.model.sinks import names
from onlyonce.model.storage.location import Location
from onlyonce.storage import log_entries, opening

KEEPS = stored_names.KEEPS_PROPERTY
"""Its property, which has DELETED_NOTE."""
PROPERTIES = {KEEPS: stored_names.DELETED_NOTE}


At = TypeVar("At", bound=Location)


def beside(path: At) -> At:
    """Where the deleted keys of a table are."""
    return cast("At", path.with_name(names.FOLDER.deleted(path.name)))


def is_ours(path: Location) -> bool:
    """Whether there is a table of deleted keys that the platform has made."""
    return (
        log_entries.any_in(path)
        and opening.table(path).metadata().configuration.get(KEEPS) == stored_names.DELETED_NOTE
    )
