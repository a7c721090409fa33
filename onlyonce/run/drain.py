"""Runs through a pipeline once: receive to its end, then the closes that are due, then the outputs, some side by side.

An output that fails does not stop the others. If receive fails no output begins, since the log does not vouch for what
an unfinished batch has left in `events`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog
from pyspark import InheritableThread

from onlyonce import settings
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model.errors import Superseded
from onlyonce.model.run.isolation import ends_with
from onlyonce.outputs import outputs
from onlyonce.outputs.recompute import recompute as backfill
from onlyonce.receive import receive
from onlyonce.session.failures import translate
from onlyonce.spark import state

log = structlog.get_logger()


def once(context: RunContext, *, ended: bool) -> None:
    """Drain what is there. `ended` declares that the input has ended: all windows with data close.

    Raises, after all outputs have had their turn, the error of the first that failed; it names the others.
    """
    context.spark.conf.set(state.UNLOAD, "true")
    receive.drain(context)
    receive.idle(context)
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
    """Give each output its turn, in the order of the declaration, as many at once as the settings say.

    One that is made from another's closed windows has it behind that one, which has written them then; where that one
    fails it has none."""
    pipeline, roots = context.pipeline, context.pipeline.roots()
    waiting, found = deque(root for root in roots if not pipeline.upstream(root)), _Failures()

    def take_turns() -> None:
        while waiting and not found.last_word:
            first = waiting.popleft()
            for root in (first, *pipeline.downstream(first)):
                if found.stands(*(before.name for before in pipeline.upstream(root))):
                    log.warning("output waits for one before it that stands still", output=root.name)
                    continue
                try:
                    work(root)
                except BaseException as error:
                    found.add(root.name, error)
                if found.last_word:
                    return

    threads = [InheritableThread(target=take_turns, daemon=True) for _ in roots[: settings.spark().outputs_at_once]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.tell([root.name for root in roots])


class _Failures:
    """What the outputs have failed with. `last_word` is what ends the run as it is, before the next output begins."""

    def __init__(self) -> None:
        self.last_word: BaseException | None = None
        self._by_output: dict[str, BaseException] = {}

    def add(self, output: str, error: BaseException) -> None:
        # Superseded: to go on would be to take the next output away from the driver that is at work.
        if isinstance(error, Superseded) or not isinstance(error, Exception):
            self.last_word = self.last_word or error
            return
        self._by_output[output] = known = translate(error)
        log.error("output stands still", output=output, kind=type(known).__name__, what=str(error))

    def stands(self, *outputs: str) -> bool:
        """Whether one of these has failed."""
        return any(output in self._by_output for output in outputs)

    def tell(self, order: list[str]) -> None:
        if self.last_word:
            raise self.last_word
        if self._by_output:
            raise ends_with({name: self._by_output[name] for name in order if name in self._by_output})
