"""The largest size of a record, and the name of the place at which a record was read. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from onlyonce.core.errors import Refused

DEFAULT = 1 << 24
"""In bytes. More than the largest pulled message of Pub/Sub."""
MOST = 1 << 28
"""A JVM holds several copies of a record at once."""
BEGINNING = 1 << 10
"""How many bytes of a record are kept if it is too large."""


class Damaged(ValueError):
    """A file that no reader can read to its end, or that has other columns than declared; the message says which."""


def check_record_size(whose: str, most: object) -> None:
    """Raise Refused for a value that is not a bound on the bytes of a record."""
    if type(most) is not int or not 1 <= most <= MOST:
        raise Refused(
            f"{whose}: max_record_bytes is {most!r}",
            hint=f"a whole number from 1 to {MOST}; {DEFAULT} is the default. Each core holds a record some times over",
        )


def record_too_large(what: str, size: int | str, most: int | str) -> str:
    """Return why a record is invalid: `what` names the record and its place."""
    return f"{what} has {size} bytes, and max_record_bytes is {most}; kept is how it begins"


def beginning_of_record(record: bytes) -> bytes:
    """Return how a record begins, without half a character at the end."""
    first = record[:BEGINNING]
    for cut in range(min(4, len(first)) if len(record) > BEGINNING else 0):
        whole = first[: len(first) - cut]
        try:
            whole.decode()
        except UnicodeDecodeError:
            continue
        return whole
    return first


# The place of a record in the words of its source: a file and a byte, a data file and a row, or a topic, partition and
# offset.


FORMS = {
    "byte": "{name}, byte {at}",
    "content": "{name}, byte {at} of its content",
    "row": "{name}, row {at}",
    "version": "version {first}, {rest}, row {at}",
    "offset": "topic {start}, partition {last}, offset {at}",
    "record": "part {name}, record {at}",
}
"""The forms by what a position counts. A compressed file counts the bytes of its content; a file of a Delta table is
named with its version."""
WHOLE = {
    "version": "version {first}, {rest}",
    "offset": "topic {start}, partition {last}, from offset {behind}",
    "record": "part {name}",
}
"""The form for a position below zero: a whole file, or a lost range of a topic, named by its first offset."""


class RecordPlace(NamedTuple):
    """A file, a part or 'topic/partition', the position in it, and what the position counts."""

    name: str
    position: int
    counts: str

    def __str__(self) -> str:
        form = FORMS[self.counts] if self.position >= 0 else WHOLE.get(self.counts, "{name}")
        return form.format(at=self.position, behind=-1 - self.position, **_words(self.name))


def _words(name: str) -> dict[str, str]:
    first, _, rest = name.partition("/")
    start, _, last = name.rpartition("/")
    return {"name": name, "first": first, "rest": rest, "start": start, "last": last}


@dataclass(frozen=True)
class RecordPlaces:
    """The places of a batch's records.

    names        the name of each file, part or partition, by its number in the batch (oo_file)
    counts       what a position counts, except in compressed files
    compressed   the files whose positions count bytes of their content
    """

    names: Mapping[int, str] = field(default_factory=dict)
    counts: str = "byte"
    compressed: Collection[int] = ()

    def of(self, file: int, position: int) -> RecordPlace | None:
        """Return the place of a record; None if its file is not one of the batch."""
        name = self.names.get(file)
        return (
            None if name is None else RecordPlace(name, position, "content" if file in self.compressed else self.counts)
        )

    def around(self, file: int) -> tuple[str, str] | None:
        """Return the text before and after the position in a file's places; None if the batch has no such file."""
        place = self.of(file, 0)
        if place is None:
            return None
        before, _, after = FORMS[place.counts].partition("{at}")
        return before.format(**_words(place.name)), after.format(**_words(place.name))
