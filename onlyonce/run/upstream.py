"""What an output of a chain waits for in a long run: that the output before it has read and written as far as its batch
reads. docs/specification/long-run.md.

In a drain an output has its turn behind the one before it, so there is nothing to wait for. Who calls it: `continuous`.
Errors: Retryable where the one before stands still; what `between_batches` raises.
"""

from __future__ import annotations

from collections.abc import Container

from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.context.query import LOOK_SECONDS, Query
from onlyonce.context.run_context import RunContext
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import Output
from onlyonce.model.errors import Retryable
from onlyonce.model.frontier import closed_until
from onlyonce.model.windows import Session, micros, own


def await_written(context: RunContext, root: Output, query: Query, upto: int, down: Container[str]) -> None:
    """Wait until the outputs before this one have written all windows that are closed at a version of `events`.

    `down`: those that stand still.
    """
    for before in context.pipeline.upstream(root):
        while not _has_written(context.database, context.instance, before, upto):
            if before.name in down:
                raise Retryable(
                    f"output {root.name}: {before.name}, from whose windows it is made, stands still",
                    hint=f"mend {before.name}; this goes on by itself",
                )
            query.between_batches()
            with context.receiving:
                context.receiving.wait(LOOK_SECONDS)


def _has_written(database: Database, instance: str, before: Output, upto: int) -> bool:
    assert before.window is not None
    assert not isinstance(before.window, Session)
    reach = Backfills(database).reach(instance, before.name)
    if reach.consumed < upto:
        return False
    wanted = closed_until(Backfills(database).frontier_at(instance, upto), before.window, micros(before.lateness))
    there = reach.closed_until(before)
    if wanted is None or there is None:
        return wanted is None
    # Spark writes when a window ends, and not at each moment.
    first_open = (own(before.window).assign(moment)[0][0] for moment in (there, wanted))
    return next(first_open) >= next(first_open)
