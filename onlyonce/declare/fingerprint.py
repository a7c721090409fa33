"""A declaration in readable parts. The log keeps them, and two versions of a declaration are compared by them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from onlyonce.declare import ddl
from onlyonce.declare.outputs import newest
from onlyonce.declare.pipeline import FileSink, Kafka, Lookup, Output, Pipeline, PubSub, target
from onlyonce.declare.sources.sources import Source
from onlyonce.model.batch import BY_POSITION
from onlyonce.model.operate.plan import PLACE

DEFAULT = "the default"
NONE = "none"


def receive_parts(pipeline: Pipeline) -> dict[str, Any]:
    """What decides the fate of a record, in text."""
    return {
        "columns": ddl.types(pipeline.schema),
        "record_id": ", ".join(pipeline.record_id) or PLACE,
        "event_time": pipeline.event_time,
        "max_ahead": str(pipeline.max_ahead),
        "mode": BY_POSITION if pipeline.by_position else pipeline.mode,
        **(_sources(pipeline) if pipeline.sources else _read(pipeline.source)),
    }


def _sources(pipeline: Pipeline) -> dict[str, Any]:
    """Of several sources; `inputs` has for each what `_read` has for one."""
    inputs = {
        name: {
            **_read(one.source), "kind": type(one.source).__name__, "schema": one.schema or DEFAULT,
            "columns": ", ".join(f"{column}: {made}" for column, made in sorted(one.columns.items())) or NONE,
            "idle_after": str(one.idle_after),
        }
        for name, one in pipeline.inputs.items()
    }  # fmt: skip
    return {"inputs": inputs, "id_space": pipeline.id_space or PLACE}


def _read(source: Source) -> dict[str, str]:
    return {"format": source.layout(), "max_record_bytes": str(source.max_record_bytes), **_source_parts(source)}


def _source_parts(source: Source) -> dict[str, str]:
    if isinstance(source, Kafka):
        # No inbox: kept as text all the same, since two versions are compared part by part.
        beside = ", ".join(f"{name} of {source.origin(name)}" for name in source.beside)
        return {
            "inbox": NONE, "max_files_a_batch": NONE, "topic": source.topic, "beside": beside or NONE,
            "isolation": source.isolation,
        }  # fmt: skip
    subscription = {"subscription": source.subscription} if isinstance(source, PubSub) else {}
    return {"inbox": source.inbox or DEFAULT, "max_files_a_batch": str(source.max_files_a_batch), **subscription}


def output_parts(
    pipeline: Pipeline, query: str, sources: Mapping[str, str], rejects: str = "", upstream: str = "", state: str = ""
) -> dict[str, Any]:
    """What decides the results of an output and of those made from it; `sources` has each one's function as text, `rejects` the one of the
    output itself that rejects rows, `upstream` the functions of those from whose closed windows it is made, `state` the schema of its
    processor's state."""
    root = pipeline.output(query)
    parts = {o.name: _output(pipeline, o, sources[o.name]) for o in [root, *pipeline.made_from(root)]}
    if root.reject:
        parts[query]["reject"] = f"{root.reject}\n{rejects}"
    if upstream:
        parts[query]["upstream"] = upstream
    if root.stateful:
        parts[query] |= {"stateful": described(root.stateful), "state": state}
    return {"outputs": parts}


def _output(pipeline: Pipeline, output: Output, source: str) -> dict[str, str]:
    sink = output.sink
    return {
        "transform": output.transform, "source": source, "window": described(output.window),
        "lateness": str(output.lateness), "panes": described(output.trigger) if output.trigger else str(output.panes), "from_output": output.from_output or "events",
        "target": target(pipeline, output), "write": described(sink) if isinstance(sink, FileSink) else sink.write,
        "keys": ", ".join(sink.keys),
        "stable_input": str(output.stable_input), "late": output.late, "on_backfill": output.on_backfill,
        "lookups": "; ".join(map(_lookup, output.lookups)) or NONE,
        **({"join": described(output.join)} if output.join else {}), **newest.parts(sink),
    }  # fmt: skip


def _lookup(lookup: Lookup) -> str:
    return f"{lookup.name}: {described(lookup.table)} by {', '.join(lookup.keys)}"


def described(value: Any) -> str:
    """A declared value without what it has by default, so that an option that is added later changes nothing."""
    if value is None:
        return "none"
    told = []
    for field in fields(value):
        has = getattr(value, field.name)
        if field.default is MISSING or has != field.default:
            told.append(f"{field.name}={has}")
    return f"{type(value).__name__}({', '.join(told)})"
