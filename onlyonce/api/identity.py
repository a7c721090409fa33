"""The identity of a declaration: all that decides a query's results, as plain parts under literal keys. Pure.

The log keeps these parts, `onlyonce plan` compares two declarations by them, and the hash of a batch is computed from
them. They are strings, numbers, booleans, lists and mappings only, as in JSON. Each key and kind is a literal here, so
no class, attribute or default of the code can change what is stored. An option whose value is its default is left out,
so a later version can add an option without changing an identity.

An option that decides no result is not part of the identity (how often a row is sent, where a source begins). It may
change under a begun batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from functools import singledispatch
from pathlib import PurePath
from typing import Any
from uuid import UUID

from onlyonce.api import ddl
from onlyonce.api.joins_and_state import Join, Lookup, Stateful
from onlyonce.api.messages import PLACEHOLDER, Avro, Debezium, JsonSchema, Kafka, Protobuf
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.api.sinks import Delta, FileSink, Postgres
from onlyonce.api.sources import MEGABYTE, PARTS_A_BATCH, Custom, DeltaSource, Files, Growing, PubSub
from onlyonce.core import records
from onlyonce.core.batch import BY_POSITION
from onlyonce.core.changes import PLACE
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.shards import NAMING
from onlyonce.core.triggers import AfterAny, AfterRecords, AfterTime
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Sliding, Timed

VERSION = 1
"""The version of the parts. Another version changes the identity of each declaration, so it changes only with the
platform's format."""
ZERO = timedelta(0)
Parts = dict[str, Any]
NO_NAMES: Mapping[str, str] = {}


def digest(parts: Mapping[str, Any]) -> str:
    """Return the short hash by which a batch names its declaration."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def receive_parts(pipeline: Pipeline) -> Parts:
    """Return what decides the fate of a record.

    The mode is left out: a batch ends in the mode in which it began, which its row has.
    """
    return {
        "version": VERSION,
        "columns": _columns(pipeline),
        "record_id": list(pipeline.record_id) or PLACE,
        "event_time": pipeline.event_time,
        "max_ahead": str(pipeline.max_ahead),
        **_given(aliases=dict(pipeline.aliases) or None, formats=dict(pipeline.formats) or None),
        **(_several(pipeline) if pipeline.sources else {"source": of(pipeline.source)}),
    }


def mode(pipeline: Pipeline) -> str:
    """Return the mode in which the pipeline's next batch begins, as stored in a batch row."""
    return BY_POSITION if pipeline.by_position else pipeline.mode


def output_parts(
    pipeline: Pipeline,
    query: str,
    sources: Mapping[str, str],
    rejects: str = "",
    upstream: str = "",
    state: str = "",
    names: Mapping[str, str] = NO_NAMES,
) -> Parts:
    """Return what decides the results of an output and of the outputs made from it.

    sources   the text of each output's functions
    rejects   the text of the function by which the output rejects rows
    upstream  the text of the functions from whose closed windows the output is made
    state     the schema of its processor's state
    names     the text of the functions that name the files of outputs
    """
    root = pipeline.output(query)
    outputs = {
        one.name: _output(pipeline, one, sources[one.name], names.get(one.name, ""))
        for one in [root, *pipeline.made_from(root)]
    }
    outputs[query] |= _given(
        reject=f"{root.reject}\n{rejects}" if root.reject else None, upstream=upstream or None, state=state or None
    )
    events = {"columns": _columns(pipeline), "event_time": pipeline.event_time}
    return {"version": VERSION, "events": events, "outputs": outputs}


def _output(pipeline: Pipeline, output: Output, source: str, names: str) -> Parts:
    sink = output.sink
    return _given(
        transform=output.transform,
        source=source,
        window=_of(output.window),
        watermark_delay=str(output.watermark_delay),
        panes=of(output.trigger) if output.trigger else output.panes,
        pane_column=output.pane_column,
        from_output=output.from_output or "events",
        target=target(pipeline, output),
        write=sink.write,
        keys=list(sink.keys),
        sequence_by=list(sink.sequence_by) or None,
        delete_when=sink.delete_when,
        files=of(sink) if sink.writes_files else None,
        names=f"{sink.names}\n{names}" if sink.names else None,
        order_by=list(sink.order_by) or None,
        headers=list(sink.headers) or None,
        late=output.late if isinstance(output.late, str) else of(output.late),
        on_backfill=output.on_backfill,
        lookups=[of(one) for one in output.lookups] or None,
        join=_of(output.join),
        stateful=_of(output.stateful),
    )


def _several(pipeline: Pipeline) -> Parts:
    inputs = {
        name: _given(
            source=of(one.source), schema=one.schema and _typed(one.schema), columns=dict(one.columns) or None,
            aliases=dict(one.aliases) or None, formats=dict(one.formats) or None,
            idle_after=_text(one.idle_after),
        )
        for name, one in pipeline.inputs.items()
    }  # fmt: skip
    return {"inputs": inputs, "id_space": pipeline.id_space or PLACE}


def _columns(pipeline: Pipeline) -> list[list[str]]:
    return _typed(pipeline.schema)


def _typed(schema: str) -> list[list[str]]:
    # A list, since a CSV file has its columns in the declared order.
    return [[name, kind] for name, kind in ddl.types(schema).items()]


@singledispatch
def of(value: object) -> Parts:
    """Return one declared value as its kind and its options.

    Each class that a declaration may hold has its kind below.
    """
    raise InvariantBroken(
        f"{type(value)} has no identity", hint="onlyonce/api/identity.py gives each declared class a kind and keys"
    )


def _of(value: object) -> Parts | None:
    return None if value is None else of(value)


# --- windows and panes
# --------------------------------------------------------------------------------------------------


@of.register
def _(window: Fixed) -> Parts:
    return _given(kind="fixed", **_fixed(window))


@of.register
def _(window: Joined) -> Parts:
    return _given(kind="join", **_fixed(window), within=_text(_unless(window.within, ZERO)))


@of.register
def _(window: Timed) -> Parts:
    return _given(kind="timed", **_fixed(window), within=_text(_unless(window.within, ZERO)))


@of.register
def _(window: Chained) -> Parts:
    return _given(
        kind="chained",
        **_fixed(window),
        upstream=of(window.upstream),
        waits_before=_text(_unless(window.waits_before, ZERO)),
        leaves_late_out=_unless(window.leaves_late_out, True),
    )


@of.register
def _(window: Sliding) -> Parts:
    return _given(
        kind="sliding", size=str(window.size), slide=str(window.slide), offset=_text(_unless(window.offset, ZERO))
    )


@of.register
def _(window: Session) -> Parts:
    return _given(kind="session", gap=str(window.gap))


@of.register
def _(trigger: AfterRecords) -> Parts:
    return _given(kind="after_records", records=trigger.records)


@of.register
def _(trigger: AfterTime) -> Parts:
    return _given(kind="after_time", time=str(trigger.time))


@of.register
def _(trigger: AfterAny) -> Parts:
    return _given(kind="after_any", records=trigger.records, time=str(trigger.time))


def _fixed(window: Fixed) -> Parts:
    return {
        "size": str(window.size),
        "offset": _text(_unless(window.offset, ZERO)),
        "timezone": _unless(window.timezone, "UTC"),
    }


# --- outputs
# ------------------------------------------------------------------------------------------------------------


@of.register
def _(join: Join) -> Parts:
    return _given(
        kind="join", left=join.left, right=join.right, on=list(join.on), within=str(join.within), rows=join.kind
    )


@of.register
def _(stateful: Stateful) -> Parts:
    return _given(
        kind="stateful", processor=stateful.processor, keys=list(stateful.keys), columns=_typed(stateful.schema),
        timers_within=str(stateful.timers_within), state_version=_unless(stateful.state_version, 1),
    )  # fmt: skip


@of.register
def _(lookup: Lookup) -> Parts:
    return _given(kind="lookup", name=lookup.name, table=of(lookup.table), keys=list(lookup.keys))


@of.register
def _(table: Delta) -> Parts:
    return _given(kind="delta", path=table.path)


@of.register
def _(table: Postgres) -> Parts:
    return _given(kind="postgres", table=table.table, connection=table.connection)


@of.register
def _(files: FileSink) -> Parts:
    return _given(
        kind="files",
        format=files.format,
        shards=files.shards,
        naming=_unless(files.naming, NAMING),
        prefix=files.prefix,
        extension=files.extension,
        skip_empty=_unless(files.skip_empty, False),
    )


# --- sources
# ------------------------------------------------------------------------------------------------------------


@of.register
def _(source: Files) -> Parts:
    return _given(
        kind="files",
        format=source.layout(),
        inbox=source.inbox,
        max_files_a_batch=source.max_files_a_batch,
        **_record(source),
    )


@of.register
def _(source: Growing) -> Parts:
    return _given(
        kind="growing",
        format=source.layout(),
        inbox=source.inbox,
        max_files_a_batch=source.max_files_a_batch,
        max_bytes_a_batch=_unless(source.max_bytes_a_batch, 256 * MEGABYTE),
        compressed=_unless(source.compressed, False),
        **_record(source),
    )


@of.register
def _(source: PubSub) -> Parts:
    return _given(
        kind="pubsub",
        format="json",
        inbox=source.inbox,
        max_files_a_batch=source.max_files_a_batch,
        subscription=source.subscription,
        record_id_attribute=source.record_id_attribute,
        max_messages=_unless(source.max_messages, 1000),
        max_bytes=_unless(source.max_bytes, 64 * MEGABYTE),
        drained_after=_text(_unless(source.drained_after, timedelta(seconds=5))),
        pull_for=_text(_unless(source.pull_for, timedelta(minutes=5))),
        **_record(source),
    )


@of.register
def _(source: Custom) -> Parts:
    return _given(
        kind="custom", format={"kind": "columns", "reader": source.reader}, needs_dedup=source.needs_dedup,
        max_files_a_batch=PARTS_A_BATCH, options=_options(source) or None,
        max_records_a_batch=_unless(source.max_records_a_batch, 1_000_000), **_record(source),
    )  # fmt: skip


@of.register
def _(source: DeltaSource) -> Parts:
    layout = "the changes of a delta table" if source.changes else "a delta table"
    return _given(
        kind="delta",
        format=layout,
        path=source.path,
        table=source.table,
        max_files_a_batch=source.max_files_a_batch,
        **_record(source),
    )


@of.register
def _(source: Kafka) -> Parts:
    value, key = source.value, source.key
    return _given(
        kind="kafka",
        format="json" if value is None else of(value) | _given(schema_id=source.schema_ids.get("value")),
        topic=source.topic,
        key=key if key is None or isinstance(key, str) else of(key) | _given(schema_id=source.schema_ids.get("key")),
        headers=list(source.headers) or None,
        envelope=_envelope(value) if isinstance(value, Debezium) else None,
        isolation=source.isolation,
        **_record(source),
    )


@of.register
def _(value: Avro) -> Parts:
    return _given(kind="avro", schema_id=value.schema_id, columns=list(value.columns) or None)


@of.register
def _(value: Protobuf) -> Parts:
    return _given(kind="protobuf", schema_id=value.schema_id, columns=list(value.columns) or None)


@of.register
def _(value: JsonSchema) -> Parts:
    return _given(kind="json_schema", schema_id=value.schema_id, validate=_unless(value.validate, True))


@of.register
def _(value: Debezium) -> Parts:
    return _given(kind="debezium", format=_of(value.format), unavailable=_unless(value.unavailable, PLACEHOLDER))


def _envelope(value: Debezium) -> Parts:
    return {"op": value.op, "position": value.position, "time": value.time}


def _record(source: Any) -> Parts:
    return {"max_record_bytes": _unless(source.max_record_bytes, records.DEFAULT)}


def _options(source: Custom) -> Parts:
    return {name: _plain(f"Custom: options[{name!r}]", value) for name, value in source.options.items()}


def _plain(where: str, value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(where, one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(where, one) for one in value]
    if isinstance(value, date | timedelta | Decimal | PurePath | UUID):
        return str(value)
    raise Refused(
        f"{where} is not a plain value: it can't be compared with that of an earlier run",
        data="nothing was read or written",
        hint="give strings, numbers, times, lists or mappings, and let the reader's class make the object of them",
    )


def _given(**parts: Any) -> Parts:
    """Return the parts that are not None; None means that an option has its default."""
    return {key: value for key, value in parts.items() if value is not None}


def _unless(value: Any, absent: Any) -> Any:
    return None if value == absent else value


def _text(value: timedelta | None) -> str | None:
    return None if value is None else str(value)
