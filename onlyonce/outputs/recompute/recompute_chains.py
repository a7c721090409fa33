"""Windows of a chain computed anew: which records come through the outputs before.

docs/specification/backfill-computation.md.

An output before that leaves late records out has them only where a backfill has put them in; so their windows and
versions of `events` are asked of the log.

Who calls it: `recompute`. No errors of its own.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model.outputs import backfill as model
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.outputs.chained import Chained
from onlyonce.outputs.recompute.recomputed import starts_in
from onlyonce.outputs.windows import chaining
from onlyonce.receive import past_rows


def comes_through(context: RunContext, root: Output, span: Span) -> Column:
    """Whether a record is in the rows of the output before, as they are now: in time there, or put in by a backfill;
    and so on up the chain."""
    assert isinstance(root.window, Chained)
    outputs = reversed(context.pipeline.upstream(root))
    reading = Span(*model.rows_of(root.window, span))
    there = [
        ~F.col(f"{at}.late") | _put_in(context, before, F.col(f"{at}.window.start"), reading)
        for at, before in zip(chaining.leaving(root.window), outputs, strict=False)
    ]
    return reduce(Column.__and__, there, F.lit(True))


def _put_in(context: RunContext, before: Output, start: Column, span: Span) -> Column:
    found = F.lit(False)
    for part, version in Backfills(context.database).done(context.instance, before.name, span):
        last = Compactions(context.database).last_in(context.instance, version)  # type: ignore[misc]
        found = found | (starts_in(start, part) & past_rows.in_batches(last))
    return found
