"""What is made from the closed windows of a backfill's outputs: it is computed anew with them. No Spark.

Who calls it: `backfill`, `recompute`. Errors: OpenWindows where windows further down could not have what the backfill
puts in.
"""

from __future__ import annotations

from collections.abc import Iterator

from onlyonce.commitlog.outputs import backfills
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.outputs import backfill as model
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.outputs.chained import Chained


def spans(pipeline: Pipeline, root: Output, span: Span) -> Iterator[tuple[Output, Span]]:
    """The windows that are made from those of a span, by output, each after the one that it is made from."""
    known = {root.name: span}
    for output in pipeline.downstream(root):
        assert isinstance(output.window, Chained)
        before = known.get(str(output.from_output))
        made = output.window.made_of(before.start, before.stop) if before else None
        if made:
            known[output.name] = Span(*made)
            yield output, known[output.name]


def check(database: Database, pipeline: Pipeline, root: Output, span: Span) -> None:
    """Raise OpenWindows for windows further down that are open, where late records never come by themselves: when such
    a window closes it has the records in time, and not what a backfill has put in before."""
    for output, made in spans(pipeline, root, span):
        assert isinstance(output.window, Chained)
        if output.window.leaves_late_out:
            backfills.closed_reach(database, pipeline.name, output, made)


def closed_part(database: Database, instance: str, output: Output, span: Span) -> Span | None:
    """The part of a span whose windows an output has closed; the others are made when they close.

    None where none has.
    """
    assert output.window is not None
    closed = Backfills(database).reach(instance, output.name).closed_until(output)
    try:
        return model.closed_part(output.name, output.window, span, closed, open_rows=False)
    except model.OpenWindows:
        return None
