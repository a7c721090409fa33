"""Which pipelines read the output tables of others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onlyonce.declare.declaration import declared_at
from onlyonce.declare.pipeline import DeltaSource, Pipeline, target
from onlyonce.model.errors import Refused

Followed = tuple[str, str]
"""(pipeline, output)."""


def followed(pipeline: Pipeline, all_pipelines: Iterable[Pipeline]) -> list[Followed]:
    """The outputs whose tables a pipeline reads, by the path as both name it."""
    read = _tables(pipeline)
    return [
        (other.name, output.name)
        for other in all_pipelines
        for output in other.outputs
        if target(other, output).rstrip("/") in read
    ]


def check(pipelines: Sequence[Pipeline]) -> None:
    """Refuse pipelines that read, by way of others or at once, what they write: each run would start the next for ever.

    And those that read the appends of a table whose rows are replaced."""
    by_name = {one.name: one for one in pipelines}
    before = {one.name: [name for name, _ in followed(one, pipelines)] for one in pipelines}
    for one in pipelines:
        for name, output in followed(one, pipelines):
            _check_appends(one, by_name[name], output)
    for one in pipelines:
        seen, behind = set[str](), list(before[one.name])
        while behind:
            name = behind.pop()
            if name == one.name:
                raise Refused(
                    f"{declared_at(one)}pipeline {one.name} reads what it writes, by way of "
                    f"{', '.join(sorted(seen)) or 'nobody else'}",
                    data="nothing was read or written",
                    hint="each of its runs would be the reason of the next: let one of them write elsewhere",
                )
            behind += [] if name in seen else before.get(name, [])
            seen.add(name)


def _tables(pipeline: Pipeline) -> dict[str, DeltaSource]:
    """The sources that are tables, by the target that an output which writes them has."""
    sources = [one.source for one in pipeline.inputs.values()] or [pipeline.source]
    return {
        f"delta:{source.path.rstrip('/')}": source
        for source in sources
        if isinstance(source, DeltaSource) and source.path
    }


def _check_appends(pipeline: Pipeline, other: Pipeline, output: str) -> None:
    written = other.output(output)
    source = _tables(pipeline)[target(other, written).rstrip("/")]
    replaced = (
        str(written.sink.write)
        if written.sink.write != "append"
        else "late='recompute'"
        if other.root_of(written).late == "recompute"
        else None
    )
    if replaced and not source.changes:
        raise Refused(
            f"{declared_at(source)}pipeline {pipeline.name} reads what is appended to the table of "
            f"{other.name}/{output}, whose rows are replaced ({replaced})",
            data="nothing was read or written; its first version that replaces a row could not be read",
            hint="DeltaSource(changes=True), with the table's property delta.enableChangeDataFeed; or let the "
            "output append, and count what is late",
        )
