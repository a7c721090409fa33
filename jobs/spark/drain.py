"""Once through a pipeline: receive to its end, then the closes that are due, then each output (experiments, B15)."""

from __future__ import annotations

from jobs.spark import backfill, outputs, receive
from jobs.spark.run_context import RunContext


def once(context: RunContext, *, ended: bool) -> None:
    """Drain what is there. `ended` declares that the input has ended: all windows with data close."""
    receive.drain(context)
    receive.close(context, ended=ended)
    for root in context.pipeline.roots():
        outputs.drain(context, root)
    backfill.fold_late(context)


def bounded(context: RunContext) -> None:
    """All input as one, where nothing is late."""
    receive.drain(context)
    for root in context.pipeline.roots():
        outputs.drain_bounded(context, root)
