"""The queries of a long run: each is started once and stays up, receive and the outputs beside each other.
docs/specification/long-run.md.

Receive and an output may work at the same time. A drain does things in order; here three rules take the place of that
order:
- a batch of an output begins when the log says that the batches are ended whose versions of `events` it reads;
- a close happens between two batches of receive (`receive.close`);
- late rows are folded in between two batches of their output, by the output's own thread.

An output that fails does not stop the others. It stands still until it is tried again, and the run's row names it
(`down`).

Who calls it: `onlyonce.run.stream`. Errors: the first error of receive, of the search for new input, or of the last
output that was up; the other queries then end before their next batch. At a stop: the error of an output that stands
still. Not promised: that a query which hangs is noticed; `turns` then stops growing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from pyspark import InheritableThread
from pyspark.sql.streaming.query import StreamingQuery

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.context.query import LOOK_SECONDS, Query
from onlyonce.context.run_context import RunContext
from onlyonce.declare.pipeline import Output
from onlyonce.model import stored_names
from onlyonce.model.errors import Retryable, Superseded
from onlyonce.model.outputs.backfill import OpenWindows
from onlyonce.model.run.isolation import cause_of
from onlyonce.model.run.long_run import Stopped, first_cause
from onlyonce.outputs import outputs
from onlyonce.outputs.events import late_windows, replayed
from onlyonce.outputs.recompute import recompute as backfill
from onlyonce.receive import receive
from onlyonce.run import upstream
from onlyonce.run.failed_outputs import Down
from onlyonce.session.failures import translate
from onlyonce.spark import state
from onlyonce.storage import log_entries

log = structlog.get_logger()

LEAST_SECONDS, MOST_SECONDS = 0.1, 1.0
"""How long a query waits until it looks again whether its table has a new version."""

THREAD = "query of a long run"

VOUCHED_FOR = tuple(stored_names.transaction("", by) for by in (stored_names.EVENTS_BY, stored_names.MARKER_BY))
"""How the transaction ids of receive's commits to `events` end that the log vouches for."""


def trigger(every: timedelta) -> Mapping[str, Any]:
    """The trigger of a query that stays up: twice as often as the driver looks, since a record waits for receive's and
    then for an output's."""
    seconds = min(max(every.total_seconds() / 2, LEAST_SECONDS), MOST_SECONDS)
    return {"processingTime": f"{round(seconds * 1000)} milliseconds"}


@contextmanager
def up(
    context: RunContext, ask_stop: Callable[[], None], tell: Callable[[Mapping[str, str]], None]
) -> Iterator[Callable[[], bool]]:
    """Keep receive and all outputs up; gives what looks once for something new.

    Whatever ends the block ends them all, each between two of its batches; then it raises what ended the first.
    `ask_stop` makes the run's `between_batches` raise; `tell` is told of the outputs that stand still, whenever these
    are others."""
    context.spark.conf.set(state.UNLOAD, "false")  # its stores stay open from batch to batch
    receive.begin(context)
    roots = context.pipeline.roots()
    down = Down([root.name for root in roots], tell)
    work: list[Callable[[], None]] = [partial(_take_in, context)]
    work += [partial(_stay_up, context, root, down) for root in roots]
    receive.register(context)
    failures: list[BaseException] = []
    threads = [
        InheritableThread(target=_kept, args=(step, failures, ask_stop), name=THREAD, daemon=True) for step in work
    ]
    for thread in threads:
        thread.start()
    try:
        yield _Looks(context, down).look
    except Exception as error:
        failures.append(error)
    finally:
        ask_stop()  # by Ctrl-C twice the block ends at once, and nobody waits for them
    for thread in threads:
        thread.join()
    if down.found and all(isinstance(error, Stopped) for error in failures):
        failures.insert(0, cause_of(down.found))
    _raise(failures)


def _kept(step: Callable[[], None], failures: list[BaseException], ask_stop: Callable[[], None]) -> None:
    try:
        step()
    except BaseException as error:
        failures.append(error)
        ask_stop()


def _raise(failures: list[BaseException]) -> None:
    cause = first_cause(failures)
    for error in failures:
        if str(error) != str(cause) and not isinstance(error, Stopped):
            log.error("failed too", kind=type(error).__name__, what=str(error))
    raise cause


def _take_in(context: RunContext) -> None:
    receive.take_in(context)
    raise Retryable("the query of receive ended without an error message", hint="run the same command again")


def _stay_up(context: RunContext, root: Output, down: Down) -> None:
    """Keep an output up until the run ends. One that fails is tried again after a pause, where that can help."""
    while True:
        try:
            _stay(context, root, down)
            raise Retryable("a query of the long run ended without an error message", hint="run the same command again")
        except (Stopped, Superseded):
            raise
        except Exception as error:
            pause = down.add(root.name, translate(error))
        if pause is None:
            return
        down.wait(pause, context.between_batches)


class _Looks:
    """Looks for what is new, and whether the queries have got on since."""

    def __init__(self, context: RunContext, down: Down) -> None:
        self._context, self._down = context, down
        self._done: dict[str, int] = {}

    def look(self) -> bool:
        """Register what is new once all before it is taken in, and close what is due.

        Gives whether each query has got on since that was last so, or has nothing to do. What stands still is not
        waited for."""
        # Not beside a batch that waits or is at work: what comes meanwhile is one batch, and no queue of small ones.
        if not receive.something_waits(self._context):
            receive.register(self._context)
        receive.idle(self._context)
        receive.close(self._context, ended=False)
        lineages = self._context.lineages()
        active = {query.name: query for query in self._context.spark.streams.active}
        queries = {name: active[lineage] for name, lineage in lineages.items() if lineage in active}
        done = {name: _last_batch(query) for name, query in queries.items()}
        for name in [name for name in list(self._down.found) if done.get(name, -1) >= 0 or _rests(queries.get(name))]:
            self._down.mended(name)
        got_on = [name for name in done if done[name] != self._done.get(name, -1) or _rests(queries[name])]
        if {"receive", *self._down.up} - set(got_on):
            return False
        self._done = done
        return True


def _last_batch(query: StreamingQuery) -> int:
    progress = query._jsq.lastProgress()
    return progress.batchId() if progress else -1


def _rests(query: StreamingQuery | None) -> bool:
    if query is None:
        return False
    status = query.status
    return not (status["isTriggerActive"] or status["isDataAvailable"] or status["message"].startswith("Initializing"))


def _stay(context: RunContext, root: Output, down: Down) -> None:
    context.open_query(root.name)
    fold = partial(_fold_late, context, root)
    fold()

    def before(query: Query, versions: replayed.Versions) -> None:
        _await_receive(context, query, versions)
        upstream.await_written(context, root, query, versions.upto, down.found)

    outputs.drain(context, root, outputs.Beside(before, fold))


def _await_receive(context: RunContext, query: Query, versions: replayed.Versions) -> None:
    """Wait until the log vouches for what a batch reads. Raises what `between_batches` does: it has not begun."""
    while not _vouched(context, versions):
        query.between_batches()
        with context.receiving:  # held by a batch of receive as long as it is at work
            if not _vouched(context, versions):
                context.receiving.wait(LOOK_SECONDS)


def _vouched(context: RunContext, versions: replayed.Versions) -> bool:
    after, upto = versions.after, versions.upto
    ended = Batches(context.database).ended_versions(context.instance, after, upto)
    compacted = Compactions(context.database).compacted(context.instance)
    # Versions that are none of receive's batches or closes, such as new columns, have no end to wait for; of those that
    # are compacted each has ended, and Delta may have forgotten them.
    return not any(
        str(log_entries.noted(context.events, version).get(stored_names.NOTE_APP_ID)).endswith(VOUCHED_FOR)
        for version in range(max(after, compacted) + 1, upto + 1)
        if version not in ended
    )


def _fold_late(context: RunContext, root: Output) -> None:
    for span in late_windows.of_stream(context.database, context.pipeline, context.instance, root):
        # What is asked to stop, and windows that are not written yet, are for later: after the next batch, or by the
        # next run.
        with suppress(Stopped, OpenWindows):
            context.between_batches()
            backfill.recompute(context, root, span, "late rows")
