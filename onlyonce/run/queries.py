"""Run a pipeline's queries: once (receive, due watermark markers, the outputs), or as a continuous run, where all stay
up.

An output that fails does not stop the others. If receive fails, no output begins, since the log does not vouch for what
an unfinished batch has left behind in `events`.
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
from onlyonce.core.errors import Retryable, Superseded
from onlyonce.core.frontier import closed_until
from onlyonce.core.runs import Stopped, cause_of, ends_with, first_cause, first_line, for_good
from onlyonce.core.windows import Session, micros, own
from onlyonce.database.connect import Database
from onlyonce.engine import state
from onlyonce.engine.failures import translate
from onlyonce.outputs import backfill_windows as backfill
from onlyonce.outputs import events, query, results
from onlyonce.receive import loop
from onlyonce.tables import commit, opening

log = structlog.get_logger()


def once(context: RunContext, *, ended: bool) -> None:
    """Process the available input once. `ended` declares that the input has ended: all windows with data close.

    After all outputs have had their turn, raise the error of the first output that failed; it names the others.
    """
    context.spark.conf.set(state.UNLOAD, "true")
    loop.run_once(context)
    loop.idle(context)
    loop.close(context, ended=ended)

    def run(root: Output) -> None:
        context.between_batches()
        query.run_once(context, root)
        context.between_batches()
        backfill.include_late(context, root)

    _each(context, run)


def bounded(context: RunContext) -> None:
    """Process all input as one batch, where nothing is late. Raise like `once`.

    Once an output has begun, a retry takes in nothing more, so that all outputs are made from the same input.
    """
    loop.begin(context)
    begun = {root.name: query.begun_upto(context, root) for root in context.pipeline.roots()}
    upto = max((version for version in begun.values() if version is not None), default=None)
    if upto is None or context.pipeline.source.is_topic:  # a topic registers nothing again, and refuses other times
        loop.register(context)
    if upto is None:
        loop.take_in(context)
        upto = commit.latest(context.events)

    def run(root: Output) -> None:
        own = begun[root.name]
        query.run_bounded(context, root, upto if own is None else own)

    _each(context, run)


def _each(context: RunContext, work: Callable[[Output], None]) -> None:
    """Give each output its turn, in the order of declaration, as many at the same time as the settings allow.

    An output made from another's closed windows has its turn after that one, which has written the windows by then. If
    that output fails, this one has no turn.
    """
    pipeline, roots = context.pipeline, context.pipeline.roots()
    waiting, found = deque(root for root in roots if not pipeline.upstream(root)), _Failures()

    def take_turns() -> None:
        while waiting and not found.last_word:
            first = waiting.popleft()
            for root in (first, *pipeline.downstream(first)):
                if found.stands(*(before.name for before in pipeline.upstream(root))):
                    log.warning("output waits for its upstream output, which stands still", output=root.name)
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
    """The errors of the outputs. `last_word` is an error that ends the run before the next output begins."""

    def __init__(self) -> None:
        self.last_word: BaseException | None = None
        self._by_output: dict[str, BaseException] = {}

    def add(self, output: str, error: BaseException) -> None:
        # Superseded: to continue would take the next output away from the driver that is live. Stopped: by a person.
        if isinstance(error, Superseded | Stopped) or not isinstance(error, Exception):
            self.last_word = self.last_word or error
            return
        self._by_output[output] = known = translate(error)
        log.error("output stands still", output=output, kind=type(known).__name__, what=str(error))

    def stands(self, *outputs: str) -> bool:
        """Return whether one of these outputs has failed."""
        return any(output in self._by_output for output in outputs)

    def tell(self, order: list[str]) -> None:
        if self.last_word:
            raise self.last_word
        if self._by_output:
            raise ends_with({name: self._by_output[name] for name in order if name in self._by_output})


# The wait of a chained output in a continuous run: its upstream output must have read and written all that its batch
# needs. docs/specification/long-run.md. In a run that ends, outputs have their turns in order and need not wait.


def await_written(context: RunContext, root: Output, query: Query, upto: int, down: Container[str]) -> None:
    """Wait until the upstream outputs have written all windows that are closed at a version of `events`.

    `down`: the outputs that stand still. Raise Retryable if an upstream output is one of them, and what
    `between_batches` raises.
    """
    for before in context.pipeline.upstream(root):
        while not _has_written(context.database, context.instance, before, upto):
            if before.name in down:
                raise Retryable(
                    f"output {root.name}: {before.name}, from whose windows it is made, stands still",
                    hint=f"fix {before.name}; this continues by itself",
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
    wanted = closed_until(
        Backfills(database).frontier_at(instance, upto), before.window, micros(before.watermark_delay)
    )
    there = reach.closed_until(before)
    if wanted is None or there is None:
        return wanted is None
    # Spark writes when a window ends, not at each moment.
    first_open = (own(before.window).assign(moment)[0][0] for moment in (there, wanted))
    return next(first_open) >= next(first_open)


# The outputs of a continuous run that stand still. docs/specification/long-run.md.


FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until an output that failed is tried again. The pause doubles with each failure in a row."""


class Down:
    """Which outputs stand still, and their errors, in the order of failure.

    The threads of the outputs and the thread that watches them share it.
    """

    def __init__(self, outputs: Sequence[str], tell: Callable[[Mapping[str, str]], None]) -> None:
        self.found: dict[str, BaseException] = {}
        self._outputs, self._tell, self._lock = outputs, tell, Lock()
        self._pauses: dict[str, float] = {}

    @property
    def up(self) -> list[str]:
        """The outputs that do not stand still."""
        return [name for name in self._outputs if name not in self.found]

    def add(self, name: str, error: BaseException) -> float | None:
        """Add an output that failed. Return the seconds after which to try it again; None if that would not help.

        If no other output is up, raise the error that the run ends with.
        """
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

    def recovered(self, name: str) -> None:
        """Note that an output is up again."""
        with self._lock:
            if self.found.pop(name, None):
                self._pauses.pop(name, None)
                self._told()
                log.info("output is up again", output=name)

    def wait(self, seconds: float, between_batches: Callable[[], None]) -> None:
        """Let a pause pass. Raise what `between_batches` raises."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            between_batches()
            time.sleep(min(seconds, LOOK_SECONDS))

    def _told(self) -> None:
        self._tell({name: first_line(error) for name, error in self.found.items()})


# A continuous run: receive and the outputs are started once, stay up, and run at the same time.
# docs/specification/long-run.md.
#
# A run that ends does things in order. Here three rules replace that order:
# - a batch of an output begins when the log says that the batches are ended whose versions of `events` it reads;
# - a watermark marker happens between two batches of receive (`loop.close`);
# - late rows are included between two batches of their output, by the output's own thread.
#
# An output that fails does not stop the others. It stands still until it is tried again, and the run's row names it
# (`down`). A query that hangs is not noticed here, but the row's `rounds` stops growing.


LEAST_SECONDS, MOST_SECONDS = 0.1, 1.0
"""How long a query waits before it checks again whether its table has a new version."""

THREAD = "query of a continuous run"

VOUCHED_FOR = tuple(stored_names.transaction("", by) for by in (stored_names.EVENTS_BY, stored_names.MARKER_BY))
"""The endings of the transaction ids of commits to `events` for which the log vouches."""


def trigger(every: timedelta) -> Mapping[str, Any]:
    """Return the trigger of a query that stays up.

    It checks twice as often as the driver, since a record waits for receive and then for an output.
    """
    seconds = min(max(every.total_seconds() / 2, LEAST_SECONDS), MOST_SECONDS)
    return {"processingTime": f"{round(seconds * 1000)} milliseconds"}


@contextmanager
def up(
    context: RunContext, ask_stop: Callable[[], None], tell: Callable[[Mapping[str, str]], None]
) -> Iterator[Callable[[], bool]]:
    """Run receive and all outputs until the block exits. Yield a function that polls for new input once.

    On exit each query stops before its next batch, and the first error is raised: of receive, of the search for new
    input, or of the last output that was up. After a stop, raise the error of an output that stands still, if any.
    `ask_stop` makes the run's `between_batches` raise. The last argument receives the outputs that stand still,
    whenever they change.
    """
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
        ask_stop()  # if Ctrl-C is pressed twice, the block ends immediately without waiting for the queries
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
    """Keep an output up until the run ends. If it fails, try it again after a pause, unless that can't help."""
    while True:
        try:
            _stay(context, root, down)
            raise Retryable(
                "a query of the continuous run ended without an error message", hint="run the same command again"
            )
        except (Stopped, Superseded):
            raise
        except Exception as error:
            pause = down.add(root.name, translate(error))
        if pause is None:
            return
        down.wait(pause, context.between_batches)


class _Looks:
    """Polls for new input, and notes whether the queries have made progress since."""

    def __init__(self, context: RunContext, down: Down) -> None:
        self._context, self._down = context, down
        self._done: dict[str, int] = {}

    def look(self) -> bool:
        """Register new input once all earlier input is read, and close what is due.

        Return whether each query has made progress since the last call that returned True, or has nothing to do.
        Outputs that stand still don't count.
        """
        # Not while a batch waits or runs: what arrives meanwhile becomes one batch, and not a queue of small ones.
        if not loop.something_waits(self._context):
            loop.register(self._context)
        loop.idle(self._context)
        loop.close(self._context, ended=False)
        incarnations = self._context.incarnations()
        active = {incarnation: query for incarnation, query in dict(self._context.running).items() if query.isActive}
        queries = {name: active[incarnation] for name, incarnation in incarnations.items() if incarnation in active}
        done = {name: _last_batch(query) for name, query in queries.items()}
        for name in [name for name in list(self._down.found) if done.get(name, -1) >= 0 or _rests(queries.get(name))]:
            self._down.recovered(name)
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
    fold = partial(_include_late, context, root)
    fold()

    def before(query: Query, versions: results.Versions) -> None:
        _await_receive(context, query, versions)
        await_written(context, root, query, versions.upto, down.found)

    query.run_once(context, root, query.Beside(before, fold))


def _await_receive(context: RunContext, query: Query, versions: results.Versions) -> None:
    """Wait until the log vouches for what a batch reads.

    Raise what `between_batches` raises: the batch has not begun.
    """
    while not _vouched(context, versions):
        query.between_batches()
        with context.receiving:  # a batch of receive holds it while it runs
            if not _vouched(context, versions):
                context.receiving.wait(LOOK_SECONDS)


def _vouched(context: RunContext, versions: results.Versions) -> bool:
    after, upto = versions.after, versions.upto
    ended = Batches(context.database).ended_versions(context.instance, after, upto)
    compacted = Compactions(context.database).compacted(context.instance)
    # A compacted version has ended, and Delta may have forgotten it.
    return not any(
        _has_an_end(opening.noted(context.events, version))
        for version in range(max(after, compacted) + 1, upto + 1)
        if version not in ended
    )


def _has_an_end(note: Mapping[str, Any]) -> bool:
    """Return whether the log ends what a commit to `events` has written: a batch or a watermark marker of receive.

    Other commits, such as new columns or a batch that `onlyonce reset` withdraws, have no end to wait for.
    """
    by_receive = str(note.get(stored_names.NOTE_APP_ID)).endswith(VOUCHED_FOR)
    return by_receive and note.get(stored_names.NOTE_UNIT) != stored_names.WITHDRAWN


def _include_late(context: RunContext, root: Output) -> None:
    for span in events.spans_to_include(context.database, context.pipeline, context.instance, root):
        # If the run is asked to stop, backfill later: by the next run.
        with suppress(Stopped):
            context.between_batches()
            backfill.include_span(context, root, span)
