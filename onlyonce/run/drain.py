"""Runs through a pipeline once: receive to its end, then the closes that are due, then each output.

An output that fails does not stop the others. If receive fails no output begins, since the log does not vouch for what an
unfinished batch has left in `events`.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model.errors import Superseded
from onlyonce.model.run.isolation import ends_with
from onlyonce.outputs import outputs
from onlyonce.outputs.recompute import recompute as backfill
from onlyonce.receive import receive
from onlyonce.session.failures import translate

log = structlog.get_logger()


def once(context: RunContext, *, ended: bool) -> None:
    """Drain what is there. `ended` declares that the input has ended: all windows with data close.

    Raises, after all outputs have had their turn, the error of the first that failed; it names the others.
    """
    receive.drain(context)
    receive.close(context, ended=ended)

    def drain(root: Output) -> None:
        outputs.drain(context, root)
        backfill.fold_late(context, root)

    _each(context, drain)


def bounded(context: RunContext) -> None:
    """All input as one, where nothing is late. Raises as `once`."""
    receive.drain(context)
    _each(context, lambda root: outputs.drain_bounded(context, root))


def _each(context: RunContext, work: Callable[[Output], None]) -> None:
    failures: dict[str, BaseException] = {}
    for root in context.pipeline.roots():
        try:
            work(root)
        except Superseded:
            raise  # to go on would be to take the next output away from the driver that is at work
        except Exception as error:
            failures[root.name] = translate(error)
            log.error("output stands still", output=root.name, kind=type(failures[root.name]).__name__, what=str(error))
    if failures:
        raise ends_with(failures)
