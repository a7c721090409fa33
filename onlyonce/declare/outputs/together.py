"""What the outputs of one pipeline can't be beside each other, and beside what the pipeline itself says. Pure.

Who calls it: `Pipeline`, when it is made. Errors: Refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onlyonce.declare.declaration import declared_at
from onlyonce.declare.outputs import chain, newest
from onlyonce.declare.outputs.output import Output
from onlyonce.declare.outputs.sent import Sent
from onlyonce.declare.sources import debezium
from onlyonce.model.batch import AT_LEAST_ONCE
from onlyonce.model.errors import Refused
from onlyonce.model.windows import Session

if TYPE_CHECKING:
    from onlyonce.declare.pipeline import Pipeline


def check(pipeline: Pipeline) -> None:
    """Raise Refused for outputs that can't be in one pipeline."""
    if not pipeline.outputs:
        raise Refused(f"pipeline {pipeline.name}: no outputs", hint="declare at least one Output")
    names = [o.name for o in pipeline.outputs]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise Refused(f"pipeline {pipeline.name}: two outputs are named {twice[0]!r}", hint="rename one of them")
    if {"receive", "close"} & set(names):
        raise Refused(f"pipeline {pipeline.name}: 'receive' and 'close' are the platform's own", hint="rename it")
    for adding in (o for o in pipeline.outputs if o.sink.write == "increment" and pipeline.mode == "at_least_once"):
        raise Refused(
            f"pipeline {pipeline.name} is at_least_once, and output {adding.name} increments: a batch that is written "
            "twice would be added twice",
            hint="mode='exactly_once'; or let the output write totals as an upsert (panes='early')",
        )
    for sending in (o for o in pipeline.outputs if isinstance(o.sink, Sent) and pipeline.mode == "at_least_once"):
        raise Refused(
            f"pipeline {pipeline.name} is at_least_once, and output {sending.name} sends its rows: a batch that is "
            "written "
            "twice would be sent twice, under two keys",
            hint="mode='exactly_once'",
        )
    for output in pipeline.outputs:
        for key in output.stateful.keys if output.stateful else ():
            if key not in pipeline.columns():
                raise Refused(
                    f"output {output.name}: the key {key!r} is not a declared column",
                    hint=f"schema has: {', '.join(pipeline.columns())}",
                )
    for made in (o for o in pipeline.outputs if o.from_output):
        _check_made_from(pipeline, made) if made.made_beside else chain.check(
            made, pipeline.output(str(made.from_output))
        )
    _check_newest(pipeline)
    targets = [o.sink.target(f"{pipeline.name}/{o.name}") for o in pipeline.outputs]
    if shared := sorted({t for t in targets if targets.count(t) > 1}):
        raise Refused(f"pipeline {pipeline.name}: two outputs write to {shared[0]}", hint="give each its own target")


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
    if made.lateness:
        raise Refused(f"{where}: has the lateness of {root.name}", hint="leave it out here")
    if made.late == "recompute":
        raise Refused(f"{where}: its late records are those of {root.name}", hint="leave late out here")


def _check_result(root: Output, made: Output, where: str) -> None:
    if made.stable_input:
        raise Refused(
            f"{where}: its rows are stored with those of {root.name}", hint=f"set stable_input on {root.name}"
        )
    if made.on_backfill == "correct" and root.window is None:
        raise Refused(f"{where}: {root.name} has no windows, so nothing is recomputed", hint="leave on_backfill out")


def _check_newest(pipeline: Pipeline) -> None:
    """Refuse outputs whose newest rows could not be told."""
    for output in pipeline.outputs:
        if not newest.newest_by(output.sink):
            continue
        where = f"{declared_at(output)}output {output.name}"
        if pipeline.root_of(output).has_windows:
            raise Refused(
                f"{where}: newest_by and a window",
                data="a change that comes too late for its window would be left out, and the row of its key stay "
                "an old one",
                hint="leave the window out: without one nothing is late. Without newest_by the row of the later "
                "window stays",
            )
        if pipeline.mode == AT_LEAST_ONCE and (newest.deletes(output.sink) or output.sink.write == newest.HISTORY):
            raise Refused(
                f"{where}: {'a history' if output.sink.write == newest.HISTORY else 'deletes'} in mode='at_least_once'",
                data="two attempts at a batch may write at once there: a deleted row could come back, a version "
                "end at the wrong time",
                hint="mode='exactly_once'",
            )


def check_changes(pipeline: Pipeline) -> None:
    """Refuse a pipeline of changes that would take a later change for an earlier one, or lose deletes."""
    value = getattr(pipeline.source, "value", None) if not pipeline.sources else None
    if not isinstance(value, debezium.Debezium):
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
