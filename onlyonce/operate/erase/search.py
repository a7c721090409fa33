"""Search all that the platform stores for what mentions a condition, each format decoded: files, tables and logs of a pipeline, and what databases have.

Who calls it: `forget`, before anything is erased and at the end; the receipt names each place that is found then. Errors: those of the stores and databases. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onlyonce import settings
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Delta, FileSink, Pipeline, target
from onlyonce.declare.sources import inputs
from onlyonce.model.operate.mentions import Mentions
from onlyonce.model.storage.location import Location
from onlyonce.operate.erase import decoders, stored_rows
from onlyonce.sinks.files import stores as file_stores
from onlyonce.storage import stores
from onlyonce.storage.beside import beside
from onlyonce.storage.state_tables import NotDecoded

NOT_ALL = ("postgres", "data", "files", "inbox", "tables")
"""Folders of the home of which other pipelines have a part. `stored_rows` reads what the embedded server has."""


@dataclass(frozen=True)
class Place:
    """Something that mentions the condition, or may: `unread` names a format that is not decoded."""

    at: str
    parts: int
    unread: str | None = None

    def left(self, pipeline: Pipeline) -> str:
        """Return what the receipt says of it: the place, how much it is, and when it goes."""
        much = f"{self.unread}, which is not decoded" if self.unread else f"{self.parts} part(s) with these values"
        return f"{self.at}: {much}; {_gone(pipeline, self.at)}"


def _gone(pipeline: Pipeline, at: str) -> str:
    """How a place that an erasure does not clean gets rid of the values."""
    data = str(settings.data_location(pipeline.name))
    ends = {
        f"{data}/checkpoints/": "Spark deletes it once 100 later batches of this output have ended",
        f"{data}/events/": "the records are of other persons, or are in files of an attempt that may still be committed, which onlyonce collect deletes",
        f"{data}/": "onlyonce collect deletes it once it is older than ONLYONCE_KEEP_TEMPORARIES_HOURS",
        f"{settings.home() / 'tmp'}/": "the next driver that starts deletes it once its own driver has ended",
        "table onlyonce": f"onlyonce collect deletes these rows after {settings.keep_units_days()} days (ONLYONCE_KEEP_UNITS_DAYS)",
        "table ": "delete these rows in your table",
        **{f"{place}/": "a pane that was delivered: once onlyonce finalize has named it, delete it there" for place in _file_places(pipeline)},
        **{f"{inbox}/": "this input is not ours to change: delete it" for inbox in inputs.folders(pipeline)},
    }
    return next((when for begins, when in ends.items() if at.startswith(begins)), "delete it: no later run needs it")


def everything(database: Database, pipeline: Pipeline, mentions: Mentions) -> list[Place]:
    """Return each file, object and table with parts that mention the condition."""
    tables = [Place(at, parts) for at, parts in stored_rows.found(database, pipeline, mentions)]
    return sorted([*files(pipeline, mentions), *tables], key=lambda one: one.at)


def files(pipeline: Pipeline, mentions: Mentions) -> Iterator[Place]:
    """Yield each file or object with parts that mention the condition."""
    for root in roots(pipeline):
        for entry in stores.of(root).entries(root):
            if place := of_file(entry.at, mentions):
                yield place


def of_file(at: Location, mentions: Mentions) -> Place | None:
    """Return what a file mentions; None for nothing, and for a file that is gone by now."""
    try:
        parts = decoders.count(stores.of(at).read(at), mentions)
    except FileNotFoundError:
        return None
    except NotDecoded as error:
        return Place(str(at), 0, str(error))
    return Place(str(at), parts) if parts else None


def roots(pipeline: Pipeline) -> list[Location]:
    """Return the folders and prefixes in which a pipeline's records may be, none within another."""
    home = settings.home()
    found: list[Location] = [home / name for name in stores.of(home).names(home) if name not in NOT_ALL]
    found += [settings.data_location(pipeline.name), settings.blocks_dir(pipeline.name), *inputs.folders(pipeline)]
    archive = settings.archive()
    if archive is not None:
        found.append(archive / pipeline.name)
    for output in pipeline.outputs:
        where = target(pipeline, output)
        if isinstance(output.sink, Delta):
            table = settings.table_location(where.partition(":")[2])
            found += [table, beside(table)]
    found += _file_places(pipeline)
    unique = {str(one): one for one in found}
    return [one for name, one in sorted(unique.items()) if not any(name.startswith(f"{other}/") for other in unique)]


def _file_places(pipeline: Pipeline) -> list[Location]:
    """Return the folders of the files that outputs write. Of those in a store nothing is searched."""
    places = [output.sink.place(target(pipeline, output), "") for output in pipeline.outputs if isinstance(output.sink, FileSink)]
    return [file_stores.folder_of(place) for place in places if "://" not in place]
