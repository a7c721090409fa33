"""A pipeline as a user declares it, with its sources and outputs, and the checks that concern several of them.

Pure data, checked when it is made. A file with declarations defines PIPELINES, a sequence of `Pipeline`. The docstring
of each class explains its options. An unknown option, or a value that can't work, raises Refused with what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from onlyonce import settings
from onlyonce.api import chain, ddl, messages, sinks
from onlyonce.api import columns as api_columns
from onlyonce.api.declaration import (
    Several,
    at_option,
    check_name,
    check_one_of,
    declaration,
    declared_at,
    unknown,
)
from onlyonce.api.declared_source import DeclaredSource
from onlyonce.api.joins_and_state import Join, Lookup, Stateful
from onlyonce.api.outputs import Output
from onlyonce.api.sinks import (
    BigQuery,
    BigQueryStream,
    CustomSink,
    Delta,
    FileSink,
    Iceberg,
    KafkaSink,
    MySQL,
    Postgres,
    Sent,
    Sink,
    UnitSink,
    Webhook,
)
from onlyonce.api.sources import Custom, DeltaSource, Files, Growing, Kafka, PubSub, Source
from onlyonce.core import line_values, stored_names
from onlyonce.core.batch import AT_LEAST_ONCE, EXACTLY_ONCE
from onlyonce.core.durations import in_words
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location
from onlyonce.core.near_names import choose
from onlyonce.core.windows import Chained, Session

SHARED, BY_SOURCE = "shared", "by_source"


@declaration
class Input:
    """One of several sources of a pipeline, and how its records come to the pipeline's columns.

    source      where its records come from: Files, Growing, Kafka, DeltaSource or Custom. An inbox that is not named is
                <home>/inbox/<pipeline>/<source>
    schema      its own columns, in Spark's DDL; None: the pipeline's
    columns     a column of the pipeline → the SQL that makes it from the source's columns: {'at': 'created',
                'amount': 'cents / 100.0', 'shop': "'berlin'"}. A column that is not named is the source's column of
                that name, else null. The record id and the event time are columns of the source, of the same type:
                {'id': 'order_no'}
    aliases     a column of its schema → its name in the source, as in a Pipeline
    formats     the form of a time, as in a Pipeline
    idle_after  it holds the pipeline's watermark back until no record has come from it for this long; None: always
    """

    source: Source
    schema: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    idle_after: timedelta | None = None

    def __post_init__(self) -> None:
        if self.schema is not None:
            _check_schema("Input", self, self.schema)
        if self.columns and self.schema is None:
            raise Refused(
                "Input: columns without a schema", hint="schema has the source's own columns, of which they are made"
            )
        if self.idle_after is not None and self.idle_after <= timedelta(0):
            raise Refused(
                f"Input: idle_after {in_words(self.idle_after)} is not a length of time",
                hint="timedelta(minutes=10), for example; or leave it out",
            )


@dataclass(frozen=True)
class Part:
    """Which source a pipeline view stands for.

    salt     comes before the values of each record id, so ids of different sources differ; empty: they are shared
    columns  (column of the pipeline, its type, the SQL that makes it) in order; empty: the source's columns are used
    """

    name: str
    salt: str
    columns: tuple[tuple[str, str, str], ...]


class OneOfSeveral:
    """Takes the place of `source` in a pipeline that has several sources.

    Code that asks it for anything supports one source only, so it is refused.
    """

    is_topic = is_table = is_own = is_pulled = has_inbox = in_ranges = in_store = False  # as in DeclaredSource

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Refused(
            "this works only for a pipeline with one source, and this pipeline has several",
            data="nothing was read or written",
            hint="docs/how-to/several-sources.md says what works with several sources",
        )

    def __repr__(self) -> str:
        return "one of several"


def input_of(sources: Mapping[str, Any]) -> dict[str, Input]:
    """Return the declared sources as inputs; a source without options may be given alone."""
    return {name: one if isinstance(one, Input) else Input(source=one) for name, one in sources.items()}


def input_views(pipeline: Pipeline) -> dict[str, Pipeline]:
    """Return each source as if it were the pipeline's only one: with its own columns, record id and event time.

    A source is parsed by its own columns. Its records get the pipeline's columns before they are judged, so all later
    steps know one schema. Raise Refused.
    """
    found = {name: _view(pipeline, name, one) for name, one in pipeline.inputs.items()}
    _check(pipeline)
    return found


def folder(pipeline: Pipeline) -> Location | None:
    """Return the inbox of a pipeline with one source, or of one that `of_source` returned; None if no files come in."""
    source = pipeline.source
    if source.is_topic:
        return None
    return settings.inbox_location(
        f"{pipeline.name}/{pipeline.part.name}" if pipeline.part else pipeline.name, source.inbox
    )


def each_input(pipeline: Pipeline) -> list[Pipeline]:
    """Return each source of a pipeline as if it were the only one."""
    return [pipeline.of_source(name) for name in pipeline.sources] if pipeline.sources else [pipeline]


def folders(pipeline: Pipeline) -> list[Location]:
    """Return the inboxes of all sources of a pipeline."""
    return [found for view in each_input(pipeline) if (found := folder(view)) is not None]


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
    places = [found for one in pipeline.inputs.values() if (found := one.source.reads)]
    if twice := [place for number, place in enumerate(places) if place in places[:number]]:
        raise Refused(
            f"{where}: two of its sources read {twice[0]}", data="each record would come twice", hint="declare it once"
        )


def _view(pipeline: Pipeline, name: str, one: Input) -> Pipeline:
    where = f"pipeline {pipeline.name}, source {name}"
    check_name("source", name)
    if not isinstance(one.source, DeclaredSource) or not one.source.in_several:
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
    """Return the source's column that is the record id or event time under another name. Raise Refused."""
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


# The checks of a pipeline's outputs against each other and against the pipeline's options.


def check_together(pipeline: Pipeline) -> None:
    """Raise Refused for outputs that can't be in one pipeline."""
    if not pipeline.outputs:
        raise Refused(f"pipeline {pipeline.name}: no outputs", hint="declare at least one Output")
    names = [o.name for o in pipeline.outputs]
    if {"receive", stored_names.MARKER_BY} & set(names):
        raise Refused(f"pipeline {pipeline.name}: 'receive' and 'marker' are the platform's names", hint="rename it")
    for adding in (o for o in pipeline.outputs if o.sink.write == "increment" and pipeline.mode == "at_least_once"):
        raise Refused(
            f"pipeline {pipeline.name} is at_least_once, and output {adding.name} increments: a batch that is written "
            "twice would be added twice",
            hint="mode='exactly_once'; or let the output write totals as an upsert (panes='early')",
        )
    for sending in (o for o in pipeline.outputs if o.sink.is_external and pipeline.mode == "at_least_once"):
        raise Refused(
            f"pipeline {pipeline.name} is at_least_once, and output {sending.name} sends its rows: a batch that is "
            "written twice would be sent twice, under two keys",
            hint="mode='exactly_once'",
        )
    for early in (o for o in pipeline.outputs if o.has_early_sessions and not o.sink.writes_files):
        if pipeline.mode == AT_LEAST_ONCE:
            raise Refused(
                f"pipeline {pipeline.name} is at_least_once, and output {early.name} has early panes of sessions: two "
                "attempts at a batch may replace the open sessions at once, and leave rows of both",
                hint="mode='exactly_once'; or leave panes out",
            )
    for output in pipeline.outputs:
        for key in output.stateful.keys if output.stateful else ():
            if key not in pipeline.columns():
                raise Refused(
                    f"output {output.name}: the key {key!r} is not a declared column",
                    hint=choose(key.lower(), pipeline.columns()),
                )
    for made in (o for o in pipeline.outputs if o.from_output):
        _check_made_from(pipeline, made) if made.made_beside else chain.check_chain(
            made, pipeline.output(str(made.from_output))
        )
    _check_newest(pipeline)
    targets = [o.sink.target(f"{pipeline.name}/{o.name}") for o in pipeline.outputs]
    _refuse_repeated(pipeline, "sink", targets, "write to {}", "give each its own target")


def _refuse_repeated(pipeline: Pipeline, option: str, values: list[str], what: str, hint: str) -> None:
    """Raise Refused for the first output with the name or target of one before. `values`: those of all, in order."""
    for at, output in enumerate(pipeline.outputs):
        if values[at] in values[:at]:
            with at_option(output, option):
                raise Refused(f"pipeline {pipeline.name}: two outputs {what.format(values[at])}", hint=hint)


def _check_made_from(pipeline: Pipeline, made: Output) -> None:
    root = pipeline.output(str(made.from_output))
    where = f"output {made.name} (from_output={root.name})"
    if root.made_beside:
        raise Refused(f"{where}: {root.name} is itself made from {root.from_output}", hint="make it from that one")
    chain.refuse_as_they_come(where, root)
    if root.is_early or made.is_early:
        raise Refused(f"{where}: early panes change; a second output could not follow", hint="use on_time panes")
    if made.is_result:
        _check_result(root, made, where)
    elif root.window is None or isinstance(root.window, Session):
        raise Refused(f"{where}: needs closed panes of fixed or sliding windows", hint="give it an output of its own")
    for lookup in made.lookups:
        if lookup not in root.lookups and lookup.name in [one.name for one in root.lookups]:
            raise Refused(
                f"{where}: its lookup {lookup.name!r} is another table than that of {root.name}",
                hint="a batch sees one table by one name: rename one of them",
            )
    if made.watermark_delay:
        raise Refused(f"{where}: has the watermark delay of {root.name}", hint="leave it out here")
    if made.late_trigger:
        raise Refused(f"{where}: its late records are those of {root.name}", hint="leave late out here")


def _check_result(root: Output, made: Output, where: str) -> None:
    if made.on_backfill == "correct" and root.window is None:
        raise Refused(f"{where}: {root.name} has no windows, so nothing is recomputed", hint="leave on_backfill out")


def _check_newest(pipeline: Pipeline) -> None:
    """Raise Refused for outputs whose newest rows could not be determined."""
    for output in pipeline.outputs:
        if not output.sink.sequence_by:
            continue
        where = f"{declared_at(output)}output {output.name}"
        if pipeline.root_of(output).has_windows:
            raise Refused(
                f"{where}: sequence_by and a window",
                data="a change that comes too late for its window would be left out, and the row of its key stay "
                "an old one",
                hint="leave the window out: without one nothing is late. Without sequence_by the row of the later "
                "window stays",
            )
        if pipeline.mode == AT_LEAST_ONCE and (output.sink.delete_when or output.sink.write == sinks.HISTORY):
            raise Refused(
                f"{where}: {'a history' if output.sink.write == sinks.HISTORY else 'delete_when'} in "
                "mode='at_least_once'",
                data="two attempts at a batch may write at once there: a deleted row could come back, a version "
                "end at the wrong time",
                hint="mode='exactly_once'",
            )


def check_changes(pipeline: Pipeline) -> None:
    """Raise Refused for a pipeline of changes that could mistake a later change for an earlier one, or lose deletes."""
    value = getattr(pipeline.source, "value", None) if not pipeline.sources else None
    if not isinstance(value, messages.Debezium):
        return
    where = f"pipeline {pipeline.name}"
    if pipeline.record_id and value.position not in pipeline.record_id:
        raise Refused(
            f"{where}: record_id={pipeline.record_id!r} without {value.position!r}",
            data="the second change of a row would be a duplicate of the first, and be dropped",
            hint=f"record_id=(<the keys of the table>, {value.position!r}): what is delivered again is a duplicate "
            "then, and nothing else",
        )
    if pipeline.event_time != value.time:
        raise Refused(
            f"{where}: event_time={pipeline.event_time!r}, and the changes have theirs in {value.time!r}",
            data="of a deleted row the log may have the keys only, and a change without an event time is invalid",
            hint=f"event_time={value.time!r}",
        )


# The pipeline.


__all__ = [
    "MODES",
    "PREFIX",
    "BigQuery",
    "BigQueryStream",
    "Custom",
    "CustomSink",
    "Delta",
    "DeltaSource",
    "FileSink",
    "Files",
    "Growing",
    "Iceberg",
    "Input",
    "Join",
    "Kafka",
    "KafkaSink",
    "Lookup",
    "MySQL",
    "Output",
    "Pipeline",
    "Postgres",
    "PubSub",
    "Sent",
    "Sink",
    "Stateful",
    "UnitSink",
    "Webhook",
    "split_ddl",
    "target",
    "unknown",
]

PREFIX = stored_names.OO_PREFIX
"""The prefix of the platform's own columns. A declared column can't begin with it."""
MODES = (EXACTLY_ONCE, AT_LEAST_ONCE)
ONE_OF_SEVERAL: Any = OneOfSeveral()


@declaration
class Pipeline:
    """A source, the fate of each of its records, and the outputs made from the kept records.

    name           unique; a word in lower case
    source         where records come from
    sources        several sources in place of one, by name: {"web": Kafka(…), "shop": Input(source=Files(…), schema=…,
                   columns=…, idle_after=…)}. Their batches are read one after the other; the watermark is the minimum
                   over the sources that are not idle (docs/how-to/several-sources.md)
    id_space       for several sources, 'shared': the same record id from two of them is one record; 'by_source': it is
                   two
    schema         the declared columns, in Spark's DDL: 'id string, at timestamp, amount double'
    aliases        a declared column → its name in the source, if that differs: {'total_amount': 'Total Amount'}. A
                   declared name has no space and none of the characters , ; = and brackets, which a Delta table can't
                   hold; a name in the source may have any
    formats        the form of a time in JSON or CSV, if it is not ISO 8601: {'paid': 'epoch_ms', 'born': '%d/%m/%Y',
                   'order.sent': '%d.%m.%Y %H:%M'} (docs/reference/values.md). A count since 1970 (epoch_s, epoch_ms,
                   epoch_us, epoch_ns), or a pattern
    record_id      the columns that identify a record: a second one with the same values is a duplicate. (): a record is
                   identified by its place, the file and the byte at which it begins; then no catalog is needed, and a
                   record that is delivered again in another file is another record. For PubSub ('message_id',), or its
                   record_id_attribute: a declared column of type string
    event_time     the column (a timestamp) that says when it happened
    outputs        the results that are made from the records
    idle_after     close windows when the source has been silent for this long; None: never by silence
    max_ahead      an event time further ahead of the ingestion time than this is invalid
    partitions     in how many partitions each batch is cut; None: each batch by its size and the cores, up to
                   ONLYONCE_MOST_PARTITIONS. The batch row stores the number for a replay
    dedup_horizon  how long a re-delivery is recognised, in time in which batches were committed: outages and
                   silence of over an hour count as one hour. A day, because producers retry for minutes, an
                   operator who sends a file again does so the same or the next working hours, and a day of ids
                   (18 bytes each) is small; longer for sources that are replayed by hand
    keep_events    how long records stay in `events`, by their event time; None: for ever. Older days are removed once
                   all their windows are closed (docs/reference/retention.md#keep-events). Backfills and new outputs
                   do not get records that were removed
    keep_log       how long the log keeps each single batch of an output; None: for ever. For older batches it keeps the
                   sums by incarnation and by window (docs/reference/retention.md#keep-log)
    mode           'exactly_once'. 'at_least_once' is cheaper: nothing is lost, but a re-delivery is kept again, and a
                   PostgreSQL append has rows twice when a batch is replayed. Bounded runs and backfills are always
                   exactly once
    """

    name: str
    schema: str
    record_id: Several[str]
    event_time: str
    outputs: Several[Output]
    source: Source = ONE_OF_SEVERAL
    sources: Mapping[str, Input | Source] = field(default_factory=dict)
    id_space: Literal["shared", "by_source"] | None = None
    idle_after: timedelta | None = None
    max_ahead: timedelta = timedelta(days=1)
    partitions: int | None = None
    dedup_horizon: timedelta = timedelta(days=1)
    mode: Literal["exactly_once", "at_least_once"] = "exactly_once"
    keep_events: timedelta | None = None
    keep_log: timedelta | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("pipeline", self.name)
        check_one_of(f"pipeline {self.name}", "mode", self.mode, MODES)
        _check_schema(f"pipeline {self.name}", self, self.schema)
        columns, kinds = self.columns(), ddl.types(self.schema)
        for option, column in (*(("record_id", one) for one in self.record_id), ("event_time", self.event_time)):
            with at_option(self, option):
                if column not in columns:
                    times = [name for name, kind in kinds.items() if kind.startswith("timestamp")]
                    meant = times if option == "event_time" and times else columns
                    raise Refused(
                        f"pipeline {self.name}: {option}={column!r} is not a declared column",
                        hint=choose(column.lower(), meant),
                    )
        for column in self.record_id:
            if line_values.named_id_form(kinds[column]) not in line_values.FORMS:
                raise Refused(
                    f"pipeline {self.name}: record_id={column!r} is of type {kinds[column]}, and an id is made of "
                    "plain values",
                    hint=f"declare it as one of {', '.join(line_values.FORMS)}, or name other columns; a string "
                    "column holds an object or array as JSON",
                )
        if self.by_position and self.dedup_horizon != Pipeline.dedup_horizon:
            raise Refused(
                f"pipeline {self.name}: a dedup_horizon without record_id: a record that is identified by its "
                "place has no re-delivery",
                hint="leave dedup_horizon out, or name the columns that identify a record",
            )
        if self.partitions is not None and self.partitions < 1:
            raise Refused(f"pipeline {self.name}: partitions must be at least 1")
        for option, length in (("idle_after", self.idle_after), ("max_ahead", self.max_ahead)):
            if length is not None and length < timedelta(0):
                raise Refused(
                    f"pipeline {self.name}: {option} {in_words(length)} is negative",
                    hint="timedelta(minutes=10), for example; or leave it out",
                )
        if self.dedup_horizon <= timedelta(0):
            raise Refused(
                f"pipeline {self.name}: dedup_horizon {in_words(self.dedup_horizon)} recognises no re-delivery",
                hint="give a length of time; timedelta(days=1) is the default",
            )
        if self.keep_events is not None and self.keep_events < timedelta(days=1):
            raise Refused(
                f"pipeline {self.name}: keep_events {in_words(self.keep_events)} is less than a day",
                hint="whole days are removed: give at least timedelta(days=1); leave it out to keep all records",
            )
        if self.keep_log is not None and self.keep_log < timedelta(days=1):
            raise Refused(
                f"pipeline {self.name}: keep_log {in_words(self.keep_log)} is less than a day",
                hint="batches of the last day are compared with their units and windows: give at least "
                "timedelta(days=1), or leave it out",
            )
        if isinstance(self.source, OneOfSeveral) != bool(self.sources):
            raise Refused(
                f"pipeline {self.name}: give exactly one of source and sources",
                hint="source=Files(…), or sources={'web': …, 'shop': …}",
            )
        if self.sources:
            for option in ("aliases", "formats"):
                if getattr(self, option):
                    raise Refused(
                        f"pipeline {self.name}: {option} with several sources",
                        hint=f"each source has its own: Input(source=…, schema=…, {option}=…)",
                    )
            object.__setattr__(self, "_views", input_views(self))
        else:
            self.source.check(self.name, self.record_id, split_ddl(self.schema))
            api_columns.check_aliases(f"pipeline {self.name}", columns, self.aliases, self.source)
            api_columns.check_time_forms(f"pipeline {self.name}", self.schema, self.formats, self.source)
            check_changes(self)
        names = [output.name for output in self.outputs]
        _refuse_repeated(self, "name", names, "are named {!r}", "rename one of them")
        object.__setattr__(self, "outputs", chain.with_windows(self.name, self.outputs))
        check_together(self)

    @property
    def inputs(self) -> dict[str, Input]:
        """Return its several sources by name, in the order of the declaration; empty if it has one source."""
        return input_of(self.sources)

    @property
    def part(self) -> Part | None:
        """Return which source this pipeline stands for, if `of_source` returned it."""
        found: Part | None = getattr(self, "_part", None)
        return found

    def of_source(self, name: str | None) -> Pipeline:
        """Return the source of that name as if it were the only one; None returns the pipeline itself.

        Raise Refused for a source that is not declared.
        """
        if name is None:
            return self
        views: dict[str, Pipeline] = getattr(self, "_views", {})
        if name not in views:
            raise Refused(
                f"pipeline {self.name}: input of the source {name!r} is to be read, and no such source is declared",
                data="nothing of it was read",
                hint="declare it again and run once, so that all of it is taken in; then take it out",
            )
        return views[name]

    @property
    def by_position(self) -> bool:
        """Return whether a record is identified by its place in the source, and not by the values of columns."""
        return not self.record_id

    def columns(self) -> list[str]:
        """Return the names of the declared columns, in order."""
        return [ddl.named(part)[0] for part in split_ddl(self.schema)]

    def named(self) -> dict[str, str]:
        """Return the name in the source of each declared column, in order."""
        return api_columns.named_in_source(self.columns(), self.aliases)

    def output(self, name: str) -> Output:
        """Return the output of that name. Raise Refused."""
        for output in self.outputs:
            if output.name == name:
                return output
        raise unknown("output", name, [o.name for o in self.outputs])

    def roots(self) -> list[Output]:
        """Return the outputs with their own queries: one incarnation each.

        Outputs that are made from another one's closed windows come after it.
        """
        return chain.in_order([o for o in self.outputs if o.made_beside is None])

    def queries(self) -> list[str]:
        """Return the names of the pipeline's streaming queries, in the order in which a run starts them."""
        return ["receive", *(root.name for root in self.roots())]

    def root_of(self, output: Output) -> Output:
        """Return the output whose query makes the rows of this one."""
        return self.output(output.made_beside) if output.made_beside else output

    def made_from(self, root: Output) -> list[Output]:
        """Return the outputs made from the closed panes of `root`, and the outputs that are results of its function."""
        return [o for o in self.outputs if o.made_beside == root.name]

    def upstream(self, output: Output) -> list[Output]:
        """Return the outputs from whose closed windows this one is made, first of the chain first; empty for others."""
        before = self.output(str(output.from_output)) if isinstance(output.window, Chained) else None
        return [*self.upstream(before), before] if before else []

    def downstream(self, root: Output) -> list[Output]:
        """Return the outputs made from this one's closed windows, directly or not, each after its upstream ones."""
        return [o for o in self.roots() if root in self.upstream(o)]

    def lookups(self, root: Output) -> dict[str, Lookup]:
        """Return the tables for the functions of `root` and of the outputs made from it, by name."""
        return {lookup.name: lookup for o in [root, *self.made_from(root)] for lookup in o.lookups}


def _check_schema(whose: str, made: Pipeline | Input, schema: str) -> None:
    """Raise Refused, with the line, if a column's type or name is not valid or the column is declared twice."""
    before: set[str] = set()
    if extra := ddl.extra_comma(schema):
        position, column = extra
        with at_option(made, "schema", position):
            raise Refused(f"{whose}: the schema has a comma too many behind {column!r}", hint="take out that comma")
    for position, part in ddl.placed(schema):
        with at_option(made, "schema", position):
            ddl.check(whose, [part])
            api_columns.check_names(whose, [part])
            name = ddl.named(part)[0]
            if name.lower().startswith(PREFIX):
                raise Refused(f"{whose}: {name}: {PREFIX!r} is the platform's prefix", hint="rename the column")
            if name.lower() in before:
                raise Refused(
                    f"{whose}: column {name!r} is declared twice",
                    hint="rename one of them; Spark takes capitals and small letters for the same",
                )
            before.add(name.lower())


def split_ddl(schema: str) -> list[str]:
    """Return the column definitions of a DDL string; commas inside <> and () don't separate."""
    return ddl.split(schema)


def target(pipeline: Pipeline, output: Output) -> str:
    """Return where an output's rows go, as a string: equal strings mean the same place."""
    return output.sink.target(f"{pipeline.name}/{output.name}")
