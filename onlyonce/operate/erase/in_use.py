"""What is there of the records that are to be forgotten, and who may still use them.

Who calls it: `forget`. Errors: Refused while a driver is at work, Retryable while records are on their way.
"""

from __future__ import annotations

from dataclasses import dataclass

from onlyonce.commitlog.operate.erasures import Erasures, SentRow
from onlyonce.database.connect import Database
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.storage.location import Location, Url
from onlyonce.operate import taken_in
from onlyonce.operate.erase import input_files
from onlyonce.operate.erase.input_files import Lines
from onlyonce.operate.erase.records import Records


@dataclass(frozen=True)
class Found:
    """What there is of the records now."""

    records: Records
    files: list[Lines]
    objects: list[Url]
    outbox: list[SentRow]

    @property
    def lines(self) -> int:
        """Lines of input files."""
        return sum(len(one.places) for one in self.files)

    @property
    def records_without_line(self) -> int:
        """How many records of `events` have no line among the lines found.

        A copy in the archive is not counted twice.
        """
        by_name: dict[tuple[str, str], int] = {}
        for one in self.files:
            name = (one.source, one.path.name)
            by_name[name] = max(by_name.get(name, 0), len(one.places))
        return max(0, sum(self.records.fates.values()) - sum(by_name.values()))


def refuse(database: Database, pipeline: Pipeline, found: Found) -> None:
    """Raise where somebody is at work with the records, or is still to take them in or send them."""
    busy = Erasures(database).at_work(pipeline.name)
    if busy:
        raise Refused(
            f"{pipeline.name}: {busy[0]} may read records while they are erased",
            data="nothing was changed",
            hint=f"stop it (onlyonce stop {pipeline.name}), or let it end; unfinished work is ended by running the "
            "same command again",
        )
    new = _not_taken_in(database, pipeline, found)
    unsent = [row for row in found.outbox if row.state not in ("delivered", "dead", "invalid")]
    if new or unsent:
        what = f"{new[0]} is not taken in yet" if new else f"output {unsent[0].output} has not sent them yet"
        raise Retryable(
            f"{pipeline.name}: records that are to be forgotten are still on their way: {what}",
            data="nothing was changed",
            hint=f"onlyonce run {pipeline.name} (and deliver), then run the same command again",
        )


def _not_taken_in(database: Database, pipeline: Pipeline, found: Found) -> list[Location]:
    """Files and objects with such lines whose batch is not committed, by this pipeline and by others that read the
    inbox.

    What is in the archive is.
    """
    everything: list[Location] = [*(one.path for one in found.files), *found.objects]
    declared = declarations.load()
    readers = [
        source
        for name in (pipeline.name, *input_files.sharing(pipeline))
        for source in inputs.each(declared.get(name, pipeline))
    ]
    new: set[Location] = set()
    for reader in readers:
        inbox = inputs.folder(reader)
        there = [at for at in everything if inbox and is_below(at, inbox)]
        known = _taken_in(database, reader, there)
        new |= {at for at in there if str(at) not in known}
    return sorted(new, key=str)


def _taken_in(database: Database, reader: Pipeline, there: list[Location]) -> set[str]:
    source = reader.part.name if reader.part else None
    found = taken_in.entries(database, reader.name, there, source)
    return {entry.path for entry in found if entry.committed or entry.passed_by}


def is_below(at: Location, inbox: Location) -> bool:
    """Return whether a file or object is in an inbox."""
    return str(at).startswith(f"{inbox}/")
