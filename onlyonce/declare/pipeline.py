"""What a user declares: a pipeline, its sources, its outputs and their sinks. Pure data, checked when it is made.

A file with declarations defines PIPELINES, a sequence of `Pipeline`. The docstring of each class says what its options
mean. An unknown option, or a value that can't work, raises Refused, which says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from typing import Any, Literal

from onlyonce.declare import ddl
from onlyonce.declare.declaration import check_name, check_one_of, declaration, unknown
from onlyonce.declare.outputs import chain, together
from onlyonce.declare.outputs.join import Join
from onlyonce.declare.outputs.lookup import Lookup
from onlyonce.declare.outputs.output import Output
from onlyonce.declare.outputs.sent import BigQuery, BigQueryStream, CustomSink, KafkaSink, Sent, UnitSink, Webhook
from onlyonce.declare.outputs.sinks import Delta, FileSink, Iceberg, MySQL, Postgres, Sink
from onlyonce.declare.outputs.stateful import Stateful
from onlyonce.declare.several import Several
from onlyonce.declare.sources import aliases, debezium, inputs, time_forms
from onlyonce.declare.sources.inputs import Input, OneOfSeveral, Part
from onlyonce.declare.sources.ranges import Custom, Growing
from onlyonce.declare.sources.sources import Files, Kafka, PubSub, Source
from onlyonce.declare.sources.tables import DeltaSource
from onlyonce.model import stored_names
from onlyonce.model.batch import AT_LEAST_ONCE, EXACTLY_ONCE
from onlyonce.model.errors import Refused
from onlyonce.model.outputs.chained import Chained
from onlyonce.model.values import id_strings

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
    """A source, the fate of each of its records, and the outputs made from those that are kept.

    name           unique; a word in lower case
    source         where records come from
    sources        in its place several, by name: {"web": Kafka(…), "shop": Input(source=Files(…), schema=…, columns=…,
                   idle_after=…)}. They are taken in one batch after the other; the watermark is the least of those that
                   are not idle (docs/how-to/several-sources.md)
    id_space       of several sources, 'shared': the same record id from two of them is one record; 'by_source': it is
                   two
    schema         the declared columns, in Spark's DDL: 'id string, at timestamp, amount double'
    aliases        a declared column → its name in the source, if that differs: {'total_amount': 'Total Amount'}. A
                   declared name has no space and none of the characters , ; = and brackets, which a Delta table can't
                   hold; a name in the source may have any
    formats        the form of a time in JSON or CSV, if it is not ISO 8601: {'paid': 'epoch_ms', 'born': '%d/%m/%Y',
                   'order.sent': '%d.%m.%Y %H:%M'} (docs/reference/values.md). A count since 1970 (epoch_s, epoch_ms,
                   epoch_us, epoch_ns), or a pattern
    record_id      the columns that identify a record: a second one with the same values is a duplicate. (): a record is
                   its place, the file and the byte at which it begins; then no catalog is needed, and what is delivered
                   again in another file is another record. Of PubSub ('message_id',), or its record_id_attribute: a
                   declared column of type string
    event_time     the column (a timestamp) that says when it happened
    outputs        what is made of it
    idle_after     close windows when the source has been silent for this long; None: never by silence
    max_ahead      an event time further ahead of the system time than this is invalid
    partitions     in how many partitions a batch is cut, if it shall be the same for all; None: each batch by its size
                   and the cores, up to ONLYONCE_MOST_PARTITIONS. Fixed by the batch row for its replay
    dedup_horizon  how long a re-delivery is recognised, in time in which batches were committed: outages and
                   silence of over an hour count as one hour. A day, because producers retry for minutes, an
                   operator who sends a file again does so the same or the next working hours, and a day of ids
                   (18 bytes each) is small; longer for sources that are replayed by hand
    keep_events    how long records stay in `events`, by their event time; None: for ever. Older days go once all their
                   windows are closed (docs/reference/retention.md#keep-events). What went can't be had by a backfill or
                   a new output
    keep_log       how long the log has each batch of an output by itself; None: for ever. Of older ones it has the sums
                   by life and by window (docs/reference/retention.md#keep-log)
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
        ddl.check(f"pipeline {self.name}", split_ddl(self.schema))
        aliases.check_names(f"pipeline {self.name}", split_ddl(self.schema))
        columns = self.columns()
        for column in (*self.record_id, self.event_time):
            if column not in columns:
                raise Refused(
                    f"pipeline {self.name}: {column!r} is not a declared column",
                    hint=f"schema has: {', '.join(columns)}",
                )
        kinds = ddl.types(self.schema)
        for column in self.record_id:
            if id_strings.named(kinds[column]) not in id_strings.FORMS:
                raise Refused(
                    f"pipeline {self.name}: record_id={column!r} is of type {kinds[column]}, and an id is made of "
                    "plain values",
                    hint=f"declare it as one of {', '.join(id_strings.FORMS)}, or name other columns; a string "
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
        if self.dedup_horizon <= timedelta(0):
            raise Refused(
                f"pipeline {self.name}: dedup_horizon {self.dedup_horizon} recognises no re-delivery",
                hint="give a length of time; timedelta(days=1) is the default",
            )
        if self.keep_events is not None and self.keep_events < timedelta(days=1):
            raise Refused(
                f"pipeline {self.name}: keep_events {self.keep_events} is less than a day",
                hint="whole days go: give at least timedelta(days=1); leave it out to keep all records",
            )
        if self.keep_log is not None and self.keep_log < timedelta(days=1):
            raise Refused(
                f"pipeline {self.name}: keep_log {self.keep_log} is less than a day",
                hint="batches of the last day are compared with their units and windows: give at least "
                "timedelta(days=1), or leave it out",
            )
        if reserved := [c for c in columns if c.lower().startswith(PREFIX)]:
            raise Refused(f"pipeline {self.name}: {', '.join(reserved)}: {PREFIX!r} is the platform's prefix")
        plain = [c.lower() for c in columns]
        if twice := [c for n, c in enumerate(columns) if c.lower() in plain[:n]]:
            raise Refused(
                f"pipeline {self.name}: column {twice[0]!r} is declared twice",
                hint="rename one of them; Spark takes capitals and small letters for the same",
            )
        if isinstance(self.source, OneOfSeveral) != bool(self.sources):
            raise Refused(
                f"pipeline {self.name}: one of source and sources says where its records come from",
                hint="source=Files(…), or sources={'web': …, 'shop': …}",
            )
        if self.sources:
            for option in ("aliases", "formats"):
                if getattr(self, option):
                    raise Refused(
                        f"pipeline {self.name}: {option} with several sources",
                        hint=f"each source has its own: Input(source=…, schema=…, {option}=…)",
                    )
            object.__setattr__(self, "_views", inputs.views(self))
        else:
            self.source.check(self.name, self.record_id, split_ddl(self.schema))
            aliases.check(f"pipeline {self.name}", columns, self.aliases, self.source)
            time_forms.check(f"pipeline {self.name}", self.schema, self.formats, self.source)
            debezium.check(self)
        object.__setattr__(self, "outputs", chain.with_windows(self.name, self.outputs))
        together.check(self)

    @property
    def inputs(self) -> dict[str, Input]:
        """Its several sources by name, in the order of the declaration; none where it has one source."""
        return inputs.of(self.sources)

    @property
    def part(self) -> Part | None:
        """Of a pipeline that stands for one of several sources of another (`of_source`): which."""
        found: Part | None = getattr(self, "_part", None)
        return found

    def of_source(self, name: str | None) -> Pipeline:
        """Itself; of several sources the one of that name, as if it were the only one.

        Raises Refused for one that is not declared.
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
        """Whether a record is its place in the source, and not the values of columns."""
        return not self.record_id

    def columns(self) -> list[str]:
        """The names of the declared columns, in order."""
        return [ddl.named(part)[0] for part in split_ddl(self.schema)]

    def named(self) -> dict[str, str]:
        """Return the name in the source of each declared column, in order."""
        return aliases.named(self.columns(), self.aliases)

    def output(self, name: str) -> Output:
        """The output of that name; raises Refused."""
        for output in self.outputs:
            if output.name == name:
                return output
        raise unknown("output", name, [o.name for o in self.outputs])

    def roots(self) -> list[Output]:
        """The outputs with a query of their own: one lineage each.

        Those that are made from another's closed windows come after it.
        """
        return chain.in_order([o for o in self.outputs if o.made_beside is None])

    def queries(self) -> list[str]:
        """The names of the pipeline's streaming queries, in the order in which a run drains them."""
        return ["receive", *(root.name for root in self.roots())]

    def root_of(self, output: Output) -> Output:
        """The output whose query makes the rows of this one."""
        return self.output(output.made_beside) if output.made_beside else output

    def made_from(self, root: Output) -> list[Output]:
        """The outputs made from the closed panes of `root`, and those that are results of its function."""
        return [o for o in self.outputs if o.made_beside == root.name]

    def upstream(self, output: Output) -> list[Output]:
        """The outputs from whose closed windows this one is made, the first of the chain first; none of any other
        output."""
        before = self.output(str(output.from_output)) if isinstance(output.window, Chained) else None
        return [*self.upstream(before), before] if before else []

    def downstream(self, root: Output) -> list[Output]:
        """The outputs that are made from the closed windows of this one, and of those, each after its own."""
        return [o for o in self.roots() if root in self.upstream(o)]

    def lookups(self, root: Output) -> dict[str, Lookup]:
        """The tables that the functions of `root`, and of the outputs made from it, get; by name."""
        return {lookup.name: lookup for o in [root, *self.made_from(root)] for lookup in o.lookups}


def split_ddl(schema: str) -> list[str]:
    """The column definitions of a DDL string; commas inside <> and () don't separate."""
    return ddl.split(schema)


def target(pipeline: Pipeline, output: Output) -> str:
    """Where an output's rows go, as text: the same text means the same place."""
    return output.sink.target(f"{pipeline.name}/{output.name}")
