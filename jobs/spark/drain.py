"""Once through a pipeline: receive to its end, then the closes that are due, then each output (experiments, B15)."""

from __future__ import annotations

from jobs.spark import backfill, delta, outputs, receive
from jobs.spark.run_context import RunContext


def once(context: RunContext, *, ended: bool) -> None:
    """Drain what is there. `ended` declares that the input has ended: all windows with data close."""
    receive.drain(context)
    receive.close(context, ended=ended)
    _outputs(context)


def bounded(context: RunContext) -> None:
    """All input as one, where nothing is late."""
    receive.drain(context)
    for root in context.pipeline.roots():
        outputs.drain_bounded(context, root)


class Turns:
    """The turns of a long run: each is a drain, but no query starts where nothing is new, and nothing is written.

    What is new is told by the registry for receive, and by the version of `events` for the outputs: this driver is the
    only one that writes either. Its first turn takes up whatever an earlier driver has left.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._read: int | None = None

    def turn(self) -> None:
        """Take in what is new, close what is due, write what the outputs owe for it."""
        if receive.register(self._context) or self._read is None:
            receive.take_in(self._context)
        receive.close(self._context, ended=False)
        there = delta.latest(self._context.events)
        if there != self._read:
            _outputs(self._context)
            self._read = there


def _outputs(context: RunContext) -> None:
    for root in context.pipeline.roots():
        outputs.drain(context, root)
    backfill.fold_late(context)
