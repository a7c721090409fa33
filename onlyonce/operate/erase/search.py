"""Search all that the platform stores for what mentions a condition, each format decoded: files, tables and logs of a
pipeline, and what databases have.

Who calls it: `forget`, before anything is erased and at the end; the receipt names each place that is found then.
Errors: those of the stores and databases. Nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path

from onlyonce import settings
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.lookups import copies
from onlyonce.model.operate.left import Left
from onlyonce.model.operate.mentions import Mentions
from onlyonce.model.storage.location import Location
from onlyonce.operate.erase import decoders, stored_rows, windows
from onlyonce.sinks import stored_targets
from onlyonce.sinks.stored import File, below, file_at
from onlyonce.storage import stores
from onlyonce.storage.state_tables import NotDecoded

NOT_ALL = ("postgres", "data", "files", "inbox", "tables")
"""Folders of the home of which other pipelines have a part. `stored_rows` reads what the embedded server has."""
NO_RUN = "delete it: no later run needs it"
NEXT_DRIVER = "the next driver that starts deletes it once its own driver has ended"
TEMPORARY = "onlyonce collect deletes it once it is older than ONLYONCE_KEEP_TEMPORARIES_HOURS"
COPY = "delete the row in the table that is looked up: onlyonce collect deletes its copies once no batch asks for them"
NOT_OURS = "this input is not ours to change: delete it"
NAME = (
    "a name is not ours to change, since the log of batches knows the file by it: rename or delete the file or folder"
)
OURS = {
    "checkpoints": "Spark deletes it once 100 later batches of this output have ended",
    "events": "the records are of other persons, or are in files of an attempt that may still be committed, which "
    "onlyonce collect deletes",
}
"""When a file in a folder of a pipeline's data is gone."""


@dataclass(frozen=True)
class Place:
    """Something that mentions the condition, or may: `unread` names a format that is not decoded.

    `goes`: when it is gone.
    """

    at: str
    parts: int
    goes: str
    unread: str | None = None

    def left(self) -> Left:
        """Return what the receipt says of it: the place, how much it is, and when it goes."""
        return Left(
            self.at,
            f"{self.unread}, which is not decoded" if self.unread else f"{self.parts} part(s) with these values",
            self.goes,
        )


def everything(database: Database, pipeline: Pipeline, mentions: Mentions) -> list[Place]:
    """Return each file, object and table with parts that mention the condition, and each file and folder whose name
    does."""
    targets = [
        (stored_targets.of(database, pipeline, output), windows.goes(pipeline, output)) for output in pipeline.outputs
    ]
    targets += [
        (stored_targets.of_lookup(database, lookup), None) for output in pipeline.outputs for lookup in output.lookups
    ]
    results = (replace(file, goes=goes or file.goes) for one, goes in targets for file in one.files())
    files = {file.at: file for file in (*_files(pipeline), *results)}
    in_tables = (replace(rows, goes=goes or rows.goes) for one, goes in targets for rows in one.rows(mentions))
    rows = chain(stored_rows.found(database, pipeline, mentions), in_tables)
    places = [
        *(place for file in files.values() if (place := of_file(file, mentions))),
        *(Place(one.at, one.count, one.goes) for one in rows),
    ]
    return sorted([*places, *_names(files, mentions)], key=lambda one: one.at)


def _names(files: Iterable[str], mentions: Mentions) -> Iterator[Place]:
    """Yield each file and folder whose own name mentions the condition, with the number of files in it."""
    own, known, counted = f"{settings.home()}/", dict[str, bool](), Counter[str]()
    for at in files:
        for path in accumulate(at.split("/"), "{}/{}".format):
            name = path.rpartition("/")[2]
            if name not in known:
                known[name] = mentions.in_string(name)
            if known[name] and not own.startswith(f"{path}/"):
                counted[path] += 1
    yield from (Place(f"the name of {path}", count, NAME) for path, count in counted.items())


def of_file(file: File, mentions: Mentions) -> Place | None:
    """Return what a file mentions; None for nothing, and for a file that is gone by now."""
    try:
        parts = decoders.count(file.read(), mentions)
    except FileNotFoundError:
        return None
    except NotDecoded as error:
        return Place(file.at, 0, file.goes, str(error))
    return Place(file.at, parts, file.goes) if parts else None


def own(pipeline: Pipeline) -> list[Location]:
    """Return the folders and prefixes below which only this pipeline's runs write."""
    return [settings.data_location(pipeline.name), settings.blocks_dir(pipeline.name)]


def _files(pipeline: Pipeline) -> Iterator[File]:
    """Yield the files of the platform, of input and of logs in which a pipeline's records may be, and those that killed
    writers have left."""
    for root in (*own(pipeline), *inputs.folders(pipeline)):
        for at in stores.of(root).unfinished(root):
            yield file_at(at, TEMPORARY) if Path(str(at)).is_file() else File(str(at), bytes, NAME)
    home = settings.home()
    for name in stores.of(home).names(home):
        if name not in NOT_ALL:
            yield from below(home / name, NEXT_DRIVER if name == "tmp" else NO_RUN)
    data = settings.data_location(pipeline.name)
    for file in below(data, TEMPORARY):
        yield replace(
            file,
            goes=next((goes for folder, goes in OURS.items() if file.at.startswith(f"{data}/{folder}/")), TEMPORARY),
        )
    yield from below(settings.blocks_dir(pipeline.name), TEMPORARY)
    yield from below(copies.home(), COPY)
    for inbox in inputs.folders(pipeline):
        yield from below(inbox, NOT_OURS)
    archive = settings.archive()
    if archive is not None:
        yield from below(archive / pipeline.name, NO_RUN)
