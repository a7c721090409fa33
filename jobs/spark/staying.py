"""The queries of a long run: each is started once and stays up, receive and the outputs beside each other. Protocol step 13.

Receive and an output may be at work at the same time, so three things that a drain has by its order are kept here:
- a batch of an output begins when the log says that the versions of `events` which it reads are ended;
- a close falls between two batches of receive (`receive.close`);
- late rows are folded in between two batches of their output, by its own thread.

Who calls it: `jobs.stream`. Errors: the first that one of the queries, or the look for what is new, has ended with; the
others then end before their next batch. Not promised: that a query which hangs is found; `turns` no longer grow then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any

import structlog
from pyspark import InheritableThread
from pyspark.sql.streaming.query import StreamingQuery

from jobs.commitlog import batches
from jobs.commitlog.connect import run
from jobs.model.backfill import OpenWindows
from jobs.model.declare import Output
from jobs.model.errors import Retryable
from jobs.model.long_run import Stopped, first_cause
from jobs.spark import backfill, delta, outputs, receive
from jobs.spark.query import LOOK_SECONDS, Query
from jobs.spark.run_context import RunContext

log = structlog.get_logger()

LEAST_SECONDS, MOST_SECONDS = 0.1, 1.0
"""How long a query waits until it looks again whether its table has a new version."""

VOUCHED_FOR = ("/events", "/close")
"""How the transaction ids of receive's commits to `events` end that the log vouches for."""


def trigger(every: timedelta) -> Mapping[str, Any]:
    """The trigger of a query that stays up."""
    seconds = min(max(every.total_seconds(), LEAST_SECONDS), MOST_SECONDS)
    return {"processingTime": f"{round(seconds * 1000)} milliseconds"}


@contextmanager
def up(context: RunContext, ask_stop: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Keep receive and all outputs up; gives what looks once for something new. Whatever ends the block ends them all, each
    between two of its batches; then it raises what ended the first. `ask_stop` makes the run's `between_batches` raise."""
    receive.begin(context)
    work: dict[str, Callable[[], None]] = {"receive": partial(receive.take_in, context)}
    folding = Lock()
    work |= {root.name: partial(_stay, context, root, folding) for root in context.pipeline.roots()}
    queries = [context.open_query(name) for name in work]  # here, so that no two threads open one
    receive.register(context)
    failures: list[BaseException] = []
    threads = [InheritableThread(target=_kept, args=(step, failures, ask_stop), daemon=True) for step in work.values()]
    for thread in threads:
        thread.start()
    try:
        yield _Looks(context, queries).look
    except Exception as error:
        failures.append(error)
    ask_stop()
    for thread in threads:
        thread.join()
    _raise(failures)


def _kept(step: Callable[[], None], failures: list[BaseException], ask_stop: Callable[[], None]) -> None:
    try:
        step()
        raise Retryable("a query of the long run ended without a word", hint="run the same command again")
    except BaseException as error:
        failures.append(error)
    ask_stop()


def _raise(failures: list[BaseException]) -> None:
    cause = first_cause(failures)
    for error in failures:
        if str(error) != str(cause) and not isinstance(error, Stopped):
            log.error("failed too", kind=type(error).__name__, what=str(error))
    raise cause


class _Looks:
    """Looks for what is new, and whether the queries have got on since."""

    def __init__(self, context: RunContext, queries: list[Query]) -> None:
        self._context, self._lineages = context, {query.lineage for query in queries}
        self._done: dict[str, int] = {}

    def look(self) -> bool:
        """Register what is new once all before it is taken in, and close what is due. Gives whether each query has got on since that was last so, or has
        nothing to do."""
        # Not beside a batch that waits or is at work: what comes meanwhile is one batch, and no queue of small ones.
        if not receive.something_waits(self._context):
            receive.register(self._context)
        receive.close(self._context, ended=False)
        active = {query.name: query for query in self._context.spark.streams.active if query.name in self._lineages}
        done = {str(name): _last_batch(query) for name, query in active.items()}
        got_on = [name for name in done if done[name] != self._done.get(name, -1) or _at_rest(active[name])]
        if self._lineages - set(got_on):
            return False
        self._done = done
        return True


def _last_batch(query: StreamingQuery) -> int:
    progress = query._jsq.lastProgress()
    return progress.batchId() if progress else -1


def _at_rest(query: StreamingQuery) -> bool:
    status = query.status
    return not (status["isTriggerActive"] or status["isDataAvailable"] or status["message"].startswith("Initializing"))


def _stay(context: RunContext, root: Output, folding: Lock) -> None:
    fold = partial(_fold_late, context, root, folding)
    fold()
    outputs.drain(context, root, outputs.Beside(partial(_await_receive, context), fold))


def _await_receive(context: RunContext, query: Query, versions: outputs.Versions) -> None:
    """Wait until the log vouches for what a batch reads. Raises what `between_batches` does: it has not begun."""
    while not _vouched(context, versions):
        query.between_batches()
        with context.receiving:  # held by a batch of receive as long as it is at work
            if not _vouched(context, versions):
                context.receiving.wait(LOOK_SECONDS)


def _vouched(context: RunContext, versions: outputs.Versions) -> bool:
    after, upto = versions.after, versions.upto
    ended = run(context.database, lambda conn: batches.ended_versions(conn, context.instance, after, upto))
    # Versions that are none of receive's batches or closes, such as new columns, have no end to wait for.
    return not any(
        str(delta.noted(context.events, version).get("app_id")).endswith(VOUCHED_FOR)
        for version in range(after + 1, upto + 1)
        if version not in ended
    )


def _fold_late(context: RunContext, root: Output, folding: Lock) -> None:
    for span in backfill.late_spans(context, root):
        # One at a time: a MERGE sets its transaction in the session, and this one is the run's. What is asked to stop, and
        # windows that are not written yet, are for later: after the next batch, or by the next run.
        with folding, suppress(Stopped, OpenWindows):
            context.between_batches()
            backfill.recompute(context, root, span, "late rows")
