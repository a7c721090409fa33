"""Runs through a pipeline once: receive to its end, then the closes that are due, then the outputs, some side by side.

An output that fails does not stop the others. If receive fails no output begins, since the log does not vouch for what
an unfinished batch has left in `events`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any

import structlog
from pyspark import InheritableThread
from pyspark.sql.streaming.query import StreamingQuery

from onlyonce import settings
from onlyonce.api.pipeline import Output
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.cuts import Compactions
from onlyonce.context import LOOK_SECONDS, Query, RunContext
from onlyonce.core import stored_names
from onlyonce.core.backfill import OpenWindows
from onlyonce.core.errors import Retryable, Superseded
from onlyonce.core.frontier import closed_until
from onlyonce.core.runs import Stopped, cause_of, ends_with, first_cause, first_line, for_good
from onlyonce.core.windows import Session, micros, own
from onlyonce.database.connect import Database
from onlyonce.engine import state
from onlyonce.engine.failures import translate
from onlyonce.outputs import events, query, results
from onlyonce.outputs import recompute as backfill
from onlyonce.receive import loop
from onlyonce.tables import opening

log = structlog.get_logger()


def once(context: RunContext, *, ended: bool) -> None:
    """Drain what is there. `ended` declares that the input has ended: all windows with data close.

    Raises, after all outputs have had their turn, the error of the first that failed; it names the others.
    """
    context.spark.conf.set(state.UNLOAD, "true")
    loop.drain(context)
    loop.idle(context)
    loop.close(context, ended=ended)

    def drain(root: Output) -> None:
        query.drain(context, root)
        backfill.fold_late(context, root)

    _each(context, drain)


def bounded(context: RunContext) -> None:
    """All input as one, where nothing is late. Raises as `once`."""
    loop.drain(context)
    _each(context, lambda root: query.drain_bounded(context, root))


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


# What an output of a chain waits for in a long run: that the output before it has read and written as far as its batch
# reads. docs/specification/long-run.md.
#
# In a drain an output has its turn behind the one before it, so there is nothing to wait for. Who calls it:
# `continuous`. Errors: Retryable where the one before stands still; what `between_batches` raises.


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


# The outputs of a long run that stand still.
#
# The threads of the outputs and the thread that watches them share it. docs/specification/long-run.md.
#
# Who calls it: `onlyonce.run.queries`. Errors: the error that the run ends with when every output stands still.


FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until an output that failed is tried again: twice as long each time in a row."""


class Down:
    """Which outputs stand still, and by what error, in the order in which that was found."""

    def __init__(self, outputs: Sequence[str], tell: Callable[[Mapping[str, str]], None]) -> None:
        self.found: dict[str, BaseException] = {}
        self._outputs, self._tell, self._lock = outputs, tell, Lock()
        self._pauses: dict[str, float] = {}

    @property
    def up(self) -> list[str]:
        """The outputs that do not stand still."""
        return [name for name in self._outputs if name not in self.found]

    def add(self, name: str, error: BaseException) -> float | None:
        """An output failed.

        Gives after how many seconds to try it again; None: that would not help. Raises what the run ends with if no
        other is up."""
        log.error("output stands still", output=name, kind=type(error).__name__, what=str(error))
        with self._lock:
            self.found[name] = error
            self._told()
            if not self.up:
                raise cause_of(self.found)
            if for_good(error):
                return None
            pause = self._pauses.get(name, FIRST_PAUSE)
            self._pauses[name] = min(2 * pause, LONGEST_PAUSE)
            return pause

    def mended(self, name: str) -> None:
        """An output is up again."""
        with self._lock:
            if self.found.pop(name, None):
                self._pauses.pop(name, None)
                self._told()
                log.info("output is up again", output=name)

    def wait(self, seconds: float, between_batches: Callable[[], None]) -> None:
        """Let a pause pass. Raises what `between_batches` does."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            between_batches()
            time.sleep(min(seconds, LOOK_SECONDS))

    def _told(self) -> None:
        self._tell({name: first_line(error) for name, error in self.found.items()})


# The queries of a long run: each is started once and stays up, receive and the outputs beside each other.
# docs/specification/long-run.md.
#
# Receive and an output may work at the same time. A drain does things in order; here three rules take the place of that
# order:
# - a batch of an output begins when the log says that the batches are ended whose versions of `events` it reads;
# - a close happens between two batches of receive (`receive.close`);
# - late rows are folded in between two batches of their output, by the output's own thread.
#
# An output that fails does not stop the others. It stands still until it is tried again, and the run's row names it
# (`down`).
#
# Who calls it: `onlyonce.run.stream`. Errors: the first error of receive, of the search for new input, or of the last
# output that was up; the other queries then end before their next batch. At a stop: the error of an output that stands
# still. Not promised: that a query which hangs is noticed; `turns` then stops growing.


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
    loop.begin(context)
    roots = context.pipeline.roots()
    down = Down([root.name for root in roots], tell)
    work: list[Callable[[], None]] = [partial(_take_in, context)]
    work += [partial(_stay_up, context, root, down) for root in roots]
    loop.register(context)
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
    loop.take_in(context)
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
        if not loop.something_waits(self._context):
            loop.register(self._context)
        loop.idle(self._context)
        loop.close(self._context, ended=False)
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

    def before(query: Query, versions: results.Versions) -> None:
        _await_receive(context, query, versions)
        await_written(context, root, query, versions.upto, down.found)

    query.drain(context, root, query.Beside(before, fold))


def _await_receive(context: RunContext, query: Query, versions: results.Versions) -> None:
    """Wait until the log vouches for what a batch reads. Raises what `between_batches` does: it has not begun."""
    while not _vouched(context, versions):
        query.between_batches()
        with context.receiving:  # held by a batch of receive as long as it is at work
            if not _vouched(context, versions):
                context.receiving.wait(LOOK_SECONDS)


def _vouched(context: RunContext, versions: results.Versions) -> bool:
    after, upto = versions.after, versions.upto
    ended = Batches(context.database).ended_versions(context.instance, after, upto)
    compacted = Compactions(context.database).compacted(context.instance)
    # Versions that are none of receive's batches or closes, such as new columns, have no end to wait for; of those that
    # are compacted each has ended, and Delta may have forgotten them.
    return not any(
        str(opening.noted(context.events, version).get(stored_names.NOTE_APP_ID)).endswith(VOUCHED_FOR)
        for version in range(max(after, compacted) + 1, upto + 1)
        if version not in ended
    )


def _fold_late(context: RunContext, root: Output) -> None:
    for span in events.late_windows_of_stream(context.database, context.pipeline, context.instance, root):
        # What is asked to stop, and windows that are not written yet, are for later: after the next batch, or by the
        # next run.
        with suppress(Stopped, OpenWindows):
            context.between_batches()
            backfill.recompute(context, root, span, "late rows")
