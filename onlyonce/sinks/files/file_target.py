"""A folder of files as a target: who owns it, and its removal. No Spark.

Its rows are not counted here: `finalize.disagreements` compares each file with the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from onlyonce import settings
from onlyonce.api.target_identity import declared_identity
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.ownership import Place
from onlyonce.sinks.files.file_stores import store_of
from onlyonce.sinks.target_kinds import Windows
from onlyonce.tables import removal


def is_there(place: Place) -> bool:
    """Return True: each window has files of its own, which the log names."""
    return True


def table_id(place: Place) -> str | None:
    """Return None: a folder has no id."""
    return None


def note(place: Place) -> str | None:
    """Return the note in a file of the folder."""
    with _reached(place):
        return store_of(place.where).note()


def put_note(place: Place, note: str) -> None:
    """Put the note into a file of the folder."""
    with _reached(place):
        store_of(place.where).put_note(note)


def rows_by_window(place: Place, windowed: bool) -> Windows:
    """Raise Refused: the log says which files count."""
    raise Refused(f"{place.where}: the rows of files are counted by the log's list of files")


def drop(place: Place) -> None:
    """Remove the folder, or the objects below the prefix."""
    removal.remove(removal.folder_of(place, settings.files_dir()))


def spellings(places: Iterable[str]) -> list[list[str]]:
    """Return the places, with all spellings of one place together."""
    found: dict[str, list[str]] = {}
    for place in sorted(places):
        found.setdefault(declared_identity(f"files:{place}"), []).append(place)
    return [*found.values()]


@contextmanager
def _reached(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Retryable(
            f"{place.where}: {error}", data="nothing was written there",
            hint="see that the folder or store can be reached and written, then run the same command again",
        ) from error  # fmt: skip
