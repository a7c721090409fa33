"""A Delta table as a target: whether it exists, who owns it, how many rows it has, its removal. No Spark."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from deltalake.exceptions import DeltaError

from onlyonce import settings
from onlyonce.core import ownership
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.core.ownership import Place
from onlyonce.sinks import target_kinds
from onlyonce.sinks.target_kinds import Windows
from onlyonce.tables import opening, removal, stores
from onlyonce.tables.table_files import beside, is_ours


def is_there(place: Place) -> bool:
    """Return whether there is a Delta table."""
    return opening.any_in(_at(place))


def table_id(place: Place) -> str | None:
    """Return the table's id; None without a table."""
    return str(opening.table(_at(place)).metadata().id) if is_there(place) else None


def note(place: Place) -> str | None:
    """Return the note in a property of the table."""
    return opening.table(_at(place)).metadata().configuration.get(ownership.PROPERTY) if is_there(place) else None


def put_note(place: Place, note: str) -> None:
    """Put the note into a property of the table."""
    with suppress(DeltaError):  # a feature that deltalake does not write: the table's transaction ids name the platform
        opening.set_property(_at(place), ownership.PROPERTY, note)


def rows_by_window(place: Place, windowed: bool) -> Windows:
    """Return the rows by window, read file by file. Raise Refused if only Spark can read the table."""
    path = _at(place)
    if not opening.any_in(path):
        return Counter()
    table = opening.table(path)
    if on := opening.unreadable(table):
        raise Refused(
            f"{path} has {', '.join(on)}: only Spark can count its rows; "
            f"compare by hand with onlyonce.windows, or switch it off there"
        )
    rows = table.to_pyarrow_dataset()
    if not windowed:
        return Counter({(None, None): rows.count_rows()})
    target_kinds.check_windows(rows.schema.names, path)
    return target_kinds.count_windows(rows.to_batches(columns=target_kinds.WINDOW))


def drop(place: Place) -> None:
    """Remove the table and the table of its deleted keys, including what a killed removal has left behind."""
    folder = removal.folder_of(place, settings.tables_location())
    if not stores.anything(beside(folder)) or is_ours(beside(folder)):  # not a table that another program has made
        removal.remove(beside(folder))
    removal.remove(folder)


def _at(place: Place) -> Location:
    return settings.table_location(place.where)
