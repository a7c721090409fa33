"""Several sources of one pipeline: how each is declared, and each as if it were the pipeline's only one.

Pure data, checked when it is made.

A source is parsed by its own columns. Its records get the pipeline's columns before they are judged, so all that
follows knows one schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onlyonce import settings
from onlyonce.declare import ddl
from onlyonce.declare.declaration import check_name, check_one_of, declaration, unknown
from onlyonce.declare.sources import aliases
from onlyonce.declare.sources.ranges import Custom, Growing
from onlyonce.declare.sources.sources import Files, Kafka, PubSub, Source
from onlyonce.declare.sources.tables import DeltaSource
from onlyonce.model.batch import AT_LEAST_ONCE
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location, is_url

if TYPE_CHECKING:
    from onlyonce.declare.pipeline import Pipeline

SHARED, BY_SOURCE = "shared", "by_source"


@declaration
class Input:
    """One of several sources of a pipeline, and how its records come to the pipeline's columns.

    source      where its records come from: Files, Growing, Kafka, DeltaSource or Custom. An inbox that is not named is
                <home>/inbox/<pipeline>/<source>
    schema      its own columns, in Spark's DDL; None: the pipeline's
    columns     a column of the pipeline → what makes it of the source's columns, in Spark's SQL: {'at': 'created',
                'amount': 'cents / 100.0', 'shop': "'berlin'"}. One that is not named is the source's column of that
                name, else null. The record id and the event time are columns of the source, of the same type: {'id':
                'order_no'}
    aliases     a column of its schema → its name in the source, as of a Pipeline
    formats     the form of a time, as of a Pipeline
    idle_after  it holds the pipeline's watermark back until nothing has come from it for this long; None: always
    """

    source: Source
    schema: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    idle_after: timedelta | None = None

    def __post_init__(self) -> None:
        if self.schema is not None:
            ddl.check("Input", ddl.split(self.schema))
            aliases.check_names("Input", ddl.split(self.schema))
        if self.columns and self.schema is None:
            raise Refused(
                "Input: columns without a schema", hint="schema has the source's own columns, of which they are made"
            )
        if self.idle_after is not None and self.idle_after <= timedelta(0):
            raise Refused(
                f"Input: idle_after {self.idle_after} is no length of time",
                hint="timedelta(minutes=10), for example; or leave it out",
            )


@dataclass(frozen=True)
class Part:
    """What a pipeline that stands for one of several sources is of.

    salt     before the values of each record id: ids of another source are others; empty: they are the same
    columns  (column of the pipeline, its type, what makes it) in order; empty: the source's are the pipeline's
    """

    name: str
    salt: str
    columns: tuple[tuple[str, str, str], ...]


class OneOfSeveral:
    """In the place of a pipeline's source when it has several.

    Whoever asks it for anything takes one source only, and says so.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Refused(
            "this pipeline has several sources, and what was asked for is made for one",
            data="nothing was read or written",
            hint="docs/how-to/several-sources.md says what works with several sources",
        )

    def __repr__(self) -> str:
        return "one of several"


def of(sources: Mapping[str, Any]) -> dict[str, Input]:
    """The declared sources; one without a mapping may be given alone."""
    return {name: one if isinstance(one, Input) else Input(source=one) for name, one in sources.items()}


def views(pipeline: Pipeline) -> dict[str, Pipeline]:
    """Each source as if it were the pipeline's only one: with its own columns, record id and event time.

    Raises Refused.
    """
    found = {name: _view(pipeline, name, one) for name, one in pipeline.inputs.items()}
    _check(pipeline)
    return found


def in_store(pipeline: Pipeline) -> bool:
    """Whether its inbox is a prefix of an object store."""
    source = pipeline.source
    return isinstance(source, Files) and source.inbox is not None and is_url(source.inbox)


def folder(pipeline: Pipeline) -> Location | None:
    """The inbox of a pipeline with one source, or of one of several as `of_source` gives it; None where no files come
    in."""
    source = pipeline.source
    if isinstance(source, Kafka):
        return None
    return settings.inbox_location(
        f"{pipeline.name}/{pipeline.part.name}" if pipeline.part else pipeline.name, source.inbox
    )


def each(pipeline: Pipeline) -> list[Pipeline]:
    """Return each source of a pipeline as if it were its only one."""
    return [pipeline.of_source(name) for name in pipeline.sources] if pipeline.sources else [pipeline]


def folders(pipeline: Pipeline) -> list[Location]:
    """The inboxes of a pipeline, whatever it reads."""
    return [found for view in each(pipeline) if (found := folder(view)) is not None]


def _check(pipeline: Pipeline) -> None:
    where = f"pipeline {pipeline.name}"
    if pipeline.record_id and pipeline.id_space is None:
        raise Refused(
            f"{where}: its sources have record ids, and nothing says whether two of them may give one record",
            data="one answer drops records as duplicates, the other keeps a record twice",
            hint="id_space='shared': the same id from two sources is one record; id_space='by_source': it is two",
        )
    if pipeline.id_space is not None:
        check_one_of(where, "id_space", pipeline.id_space, (SHARED, BY_SOURCE))
    if pipeline.mode == AT_LEAST_ONCE:
        raise Refused(
            f"{where}: mode='at_least_once' is for one source",
            hint="leave mode out; without record_id no catalog is needed",
        )
    if not pipeline.record_id and pipeline.id_space == SHARED:
        raise Refused(
            f"{where}: id_space='shared', but a record is its place, and no place is in two sources",
            hint="leave id_space out",
        )
    places = list(_places(pipeline))
    if twice := [place for number, place in enumerate(places) if place in places[:number]]:
        raise Refused(
            f"{where}: two of its sources read {twice[0]}", data="each record would come twice", hint="declare it once"
        )


def _places(pipeline: Pipeline) -> Iterator[str]:
    for one in pipeline.inputs.values():
        source = one.source
        if isinstance(source, Kafka):
            yield f"the topic {source.topic} of {source.servers}"
        elif isinstance(source, DeltaSource):
            yield f"the table {source.where}"
        elif not isinstance(source, Custom) and source.inbox:
            yield f"the inbox {source.inbox}"


def _view(pipeline: Pipeline, name: str, one: Input) -> Pipeline:
    where = f"pipeline {pipeline.name}, source {name}"
    check_name("source", name)
    if isinstance(one.source, PubSub) or not isinstance(one.source, Files | Growing | Custom | Kafka | DeltaSource):
        raise Refused(
            f"{where}: {type(one.source).__name__} can't be one of several sources",
            hint="Files, Growing, Kafka, DeltaSource or Custom; or a pipeline of its own",
        )
    own, types = ddl.types(one.schema or pipeline.schema), ddl.types(pipeline.schema)
    for column in one.columns:
        if column not in types:
            raise Refused(
                f"{where}: columns: {unknown('column', column, list(types)).what}",
                hint=f"the pipeline has: {', '.join(types)}",
            )
    made = {column: one.columns.get(column, _quoted(column) if column in own else "NULL") for column in types}
    for column in types:
        if column not in one.columns and column in own and own[column] != types[column]:
            raise Refused(
                f"{where}: its column {column} is of type {own[column]}, the pipeline's of type {types[column]}",
                hint=f"say how it is made: columns={{{column!r}: 'cast({column} as {types[column]})'}}",
            )
    named = {
        column: _renamed(where, column, made[column], own, types)
        for column in (*pipeline.record_id, pipeline.event_time)
    }
    view = replace(
        pipeline,
        source=one.source,
        sources={},
        id_space=None,
        schema=one.schema or pipeline.schema,
        aliases=one.aliases,
        formats=one.formats,
        record_id=tuple(named[column] for column in pipeline.record_id),
        event_time=named[pipeline.event_time],
    )
    salt = "" if pipeline.id_space == SHARED else name
    mapped = tuple((column, kind, made[column]) for column, kind in types.items()) if one.schema is not None else ()
    object.__setattr__(view, "_part", Part(name, salt, mapped))
    return view


def _renamed(where: str, column: str, made: str, own: Mapping[str, str], types: Mapping[str, str]) -> str:
    """The column of the source that is the record id or event time of the pipeline under another name."""
    plain = made.strip().strip("`")
    if own.get(plain) != types[column]:
        raise Refused(
            f"{where}: {column!r} identifies a record or is its event time, so it is a column of the source of "
            f"type {types[column]}, and not {made!r}",
            hint=f"columns={{{column!r}: …}} with one of: "
            f"{', '.join(name for name, kind in own.items() if kind == types[column]) or 'none has that type'}",
        )
    return plain


def _quoted(column: str) -> str:
    return f"`{column}`" if not re.fullmatch(r"\w+", column) else column
