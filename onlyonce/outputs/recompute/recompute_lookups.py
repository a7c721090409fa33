"""Which versions of its lookups a backfill sees: those that each window saw when it was last written ('then'), or the
newest ('now').

The log keeps the versions with each window (`panes`). Windows with the same ones, one after the other, are a part: the
functions are applied to the rows of each part with its tables. A window without a result belongs to the part before it.

Who calls it: `recompute`. Errors: Refused for a version that is gone, for sessions that saw several, for more parts
than Spark plans well.
"""

from __future__ import annotations

from typing import Literal

from onlyonce.commitlog.outputs.lookups import SeenLookups
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.lookups import tables
from onlyonce.lookups.seen import NOTHING, Versions
from onlyonce.model.batch import to_micros
from onlyonce.model.errors import Refused
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.windows import Micros, Session
from onlyonce.outputs.recompute.recomputed import Part, Parts

Which = Literal["then", "now"]
MOST = 50
"""Parts of a backfill: each is a plan of its own, which Spark puts together."""


def parts_of(context: RunContext, root: Output, span: Span, which: Which) -> Parts:
    """The windows of a backfill by what they see. Raises Refused."""
    lookups = context.pipeline.lookups(root)
    if not lookups:
        return Parts((Part(span, NOTHING),))
    newest = tables.newest(lookups)
    found = [] if which == "now" else _written(context, root, span)
    cut = _cut(span, found, newest) if found else [(span, newest)]
    _refuse_many(context, root, span, [versions for _, versions in cut])
    parts = []
    for part, versions in cut:
        tables.refuse_gone(
            {n: lookups[n] for n in lookups if versions[n] != newest[n]}, versions, _hint(context, root, span)
        )
        parts.append(Part(part, tables.as_of(context.spark, lookups, versions)))
    if newest in [versions for _, versions in cut]:
        tables.check_keys(lookups, tables.as_of(context.spark, lookups, newest))
    return Parts(tuple(parts))


def _written(context: RunContext, root: Output, span: Span) -> list[tuple[Micros, Versions]]:
    """What the windows of a span saw when they were last written, in the order of their start."""
    seen = SeenLookups(context.database).of_windows(context.instance, root.name, span)
    return [(to_micros(start) or 0, versions) for start, versions in seen]


def _cut(span: Span, found: list[tuple[Micros, Versions]], newest: Versions) -> list[tuple[Span, Versions]]:
    """The span cut where the versions change; a lookup that a window has not seen then is as it is now."""
    cut: list[tuple[Micros, Versions]] = []
    for start, versions in found:
        known = {name: versions.get(name, newest[name]) for name in newest}
        if not cut or cut[-1][1] != known:
            cut.append((start if cut else span.start, known))
    ends = [start for start, _ in cut[1:]] + [span.stop]
    return [(Span(start, end), versions) for (start, versions), end in zip(cut, ends, strict=True)]


def _refuse_many(context: RunContext, root: Output, span: Span, seen: list[Versions]) -> None:
    if len(seen) > 1 and isinstance(root.window, Session):
        what = "sessions saw different versions of its lookups, and late rows may merge them"
    elif len(seen) > MOST:
        what = (
            f"windows saw {len(seen)} versions of its lookups one after the other, and a backfill takes {MOST} at most"
        )
    else:
        return
    raise Refused(
        f"output {root.name}: its {what}",
        data="nothing was written",
        hint=f"backfill shorter intervals; or with today's tables: {_now(context, root, span)}",
    )


def _hint(context: RunContext, root: Output, span: Span) -> str:
    return (
        "windows that are made again with lookups as of then need it: bring that version of the table back; or "
        "make them with today's: "
        f"{_now(context, root, span)}"
    )


def _now(context: RunContext, root: Output, span: Span) -> str:
    start, stop = (f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in span.times)
    return f"onlyonce backfill {context.instance} --output {root.name} --from {start} --to {stop} --lookups now"
