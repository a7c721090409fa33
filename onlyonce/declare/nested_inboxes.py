"""Refuses a recursive inbox above another inbox, the archive, or a table or folder that onlyonce writes: what is there
would be read as its input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onlyonce import settings
from onlyonce.declare.declaration import declared_at
from onlyonce.declare.pipeline import Custom, DeltaSource, Pipeline, target
from onlyonce.declare.sources import inputs
from onlyonce.declare.sources.sources import Files
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.operate.dropping import Place
from onlyonce.model.storage.location import Location, Url


def refuse(pipelines: Iterable[Pipeline]) -> None:
    """Raise Refused for the first recursive inbox with such a location below it."""
    declared = list(pipelines)
    recursive = [
        view
        for pipeline in declared
        for view in inputs.each(pipeline)
        if isinstance(view.source, Files) and view.source.recursive
    ]
    if not recursive:
        return
    others = [*_inboxes(declared), *_written(declared)]
    for view in recursive:
        inbox = _whole(inputs.folder(view))
        for what, other in others:
            if inbox is not None and other is not None and other != inbox and _is_below(other, inbox):
                raise Refused(
                    f"{declared_at(view.source)}pipeline {view.name} reads {inbox} with all folders below it, and "
                    f"{what} is below it: {other}",
                    data="nothing was read or written; what is there would be read as input of this pipeline",
                    hint="move one of them, or leave recursive=True out",
                )


def _inboxes(pipelines: Iterable[Pipeline]) -> Iterator[tuple[str, Location | None]]:
    for pipeline in pipelines:
        for view in (one for one in inputs.each(pipeline) if not isinstance(one.source, Custom | DeltaSource)):
            name = f"{pipeline.name}, source {view.part.name}" if view.part else pipeline.name
            yield f"the inbox of {name}", _whole(inputs.folder(view))


def _written(pipelines: Iterable[Pipeline]) -> Iterator[tuple[str, Location | None]]:
    yield "the archive", _whole(settings.archive())
    yield "the data of all pipelines", _whole(settings.data_root() / stored_names.DATA_FOLDER)
    for pipeline in pipelines:
        for output in pipeline.outputs:
            place = Place(target(pipeline, output))
            if place.kind == "delta":
                yield f"the table of {pipeline.name}/{output.name}", _whole(settings.table_location(place.where))
            elif place.kind == "files" and "://" not in place.where:
                yield f"the folder of {pipeline.name}/{output.name}", _whole(settings.files_dir() / place.where)


def _whole(at: Location | None) -> Location | None:
    return at if at is None or isinstance(at, Url) else at.resolve()


def _is_below(at: Location, above: Location) -> bool:
    return str(at).startswith(f"{str(above).rstrip('/')}/")
