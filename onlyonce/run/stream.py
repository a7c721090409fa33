"""Entry point: run a pipeline once, bounded or as a continuous run, possibly after standing by for another driver.

The DAG `<pipeline>_stream` and `onlyonce run` run it. The report is read from the log afterwards.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import structlog

from onlyonce import check_warnings, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api import resolve
from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import Kafka, Pipeline
from onlyonce.asked import EVERY_SECONDS, parse
from onlyonce.commitlog import drivers, units
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.drivers import LongRuns
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.incarnations import Declarations, Incarnations, SourceBatches
from onlyonce.commitlog.outbox import OutboxRows
from onlyonce.commitlog.units import Authorities
from onlyonce.core import stored_names
from onlyonce.core.batch import to_time
from onlyonce.core.changes import Change
from onlyonce.core.errors import DatabaseAway, OnlyonceError, Refused, Superseded
from onlyonce.core.frontier import closed_until, newest_open
from onlyonce.core.runs import (
    Interrupted,
    Report,
    Stopped,
    first_line,
    for_good,
    refusal,
    refuse_beside,
    refuse_other_options,
    standing_by,
)
from onlyonce.core.windows import micros
from onlyonce.database import locks
from onlyonce.database.connect import Database, Session
from onlyonce.database.migrate import migrate
from onlyonce.engine import failures
from onlyonce.failpoints import passing
from onlyonce.records.left_out import (
    common_reason,
    fields_not_declared,
    other_encoding,
    other_header,
    read_otherwise,
    without_values,
)
from onlyonce.run.interrupts import Interrupts
from onlyonce.sources import folders
from onlyonce.tables import claims

if TYPE_CHECKING:
    from onlyonce.context import RunContext


log = structlog.get_logger()

LOOK_SECONDS = 0.2


class Place:
    """The exclusive right to be a pipeline's continuous run: a lock that its driver's session holds.

    By its heartbeat a driver counts as lost only after some beats. PostgreSQL releases a session lock as soon as the
    process ends, however it ends. So the next driver need not wait, and a driver that stands by has Spark started
    already. The lock decides nothing about the data: if two drivers both believe to be live, the epoch fences the older
    one.
    """

    def __init__(self, database: Database, instance: str) -> None:
        self._instance = instance
        # Not an incarnation's name: a starting driver ends the sessions with its incarnations' names.
        self._session = Session(Database(database.url, f"onlyonce-place/{instance}"))

    def ours(self) -> bool:
        """Take the lock or keep it; return whether this driver holds it.

        Return False if the database does not answer.
        """
        try:
            return self._session.ask(
                lambda connection: locks.hold(connection, stored_names.long_run_lock(self._instance))
            )
        except DatabaseAway:
            return False  # a new session is asked the next time

    def leave(self) -> None:
        """Give up the lock."""
        locks.give_up(self._session, stored_names.long_run_lock(self._instance))


def wait_for_turn(database: Database, instance: str, place: Place) -> bool:
    """Wait until the place is free; return whether to take it.

    Return False if the driver that held it was asked to stop: then this driver ends as well.
    """
    seen = LongRuns(database).look(instance)
    told = False
    while True:
        lock_is_free = place.ours()
        now = LongRuns(database).look(instance)
        what = standing_by(seen, now, lock_is_free=lock_is_free)
        if what != "wait":
            log.info("stood by", then=what)
            if what == "leave":
                place.leave()
            return what == "take"
        if not told and now:
            log.info("standing by", driver=now.driver, attempt=now.attempt)
            told = True
        time.sleep(LOOK_SECONDS)


# A continuous run: one driver that reads input until it is asked to stop. Its row in the log is kept here; its
# queries are in `onlyonce.run.queries`. It polls for new input at an interval. A round is a poll after which each query
# has made progress, or had nothing to do. docs/specification/long-run.md.


class LongRun:
    """A driver's place in the log, kept by a heartbeat in a thread of its own: a batch may take longer than a beat.

    The heartbeat does not show that a driver hangs; `onlyonce.long_runs.round_at` shows that.
    """

    def __init__(self, database: Database, taken: drivers.Taken, place: Place) -> None:
        self.taken, self._place = taken, place
        # Not an incarnation's name: a starting driver ends the sessions with its incarnations' names.
        self._database = Database(database.url, f"onlyonce-long-run/{taken.instance}")
        self._rounds = 0
        self._down: Mapping[str, str] = {}
        self._asked = threading.Event()
        self._overtaken: Superseded | None = None
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._done = threading.Event()
        self.signals = Interrupts(self.stop, signal.SIGTERM, signal.SIGINT)

    def between_batches(self) -> None:
        """Raise Stopped if the run is to stop, or Superseded if another driver took its place.

        This is called where the next batch would begin.
        """
        if self._overtaken:
            raise self._overtaken
        if self._asked.is_set():
            raise Stopped

    def stop(self) -> None:
        """Ask this driver to stop, from inside its process."""
        self._asked.set()

    def tell_down(self, down: Mapping[str, str]) -> None:
        """Note which outputs stand still, and why, for the next heartbeat."""
        self._down = down

    def rounds(self, look: Callable[[], bool], every: timedelta) -> None:
        """Poll once in each interval, until `between_batches` raises.

        `look` polls, and returns whether that completes a round.
        """
        while True:
            self.between_batches()
            self._rounds += look()
            self._asked.wait(every.total_seconds())

    def start(self) -> None:
        """Start the heartbeat."""
        self._thread.start()

    def end(self, exit_code: int, why: str | None) -> None:
        """Stop the heartbeat, and note in the log how the run ended."""
        self._done.set()
        self._thread.join()
        LongRuns(self._database).end(self.taken, self._rounds, exit_code, why)

    def _beat(self) -> None:
        while not self._done.wait(settings.heartbeat_seconds()):
            try:
                logs.rotate()
                self._place.ours()  # a session that broke has left it
                if LongRuns(self._database).beat(self.taken, self._rounds, self._down):
                    self._asked.set()
            except Superseded as error:
                self._overtaken = error
                self._asked.set()  # ends a wait between two polls
                return
            except Exception as error:  # if the heartbeat stopped by itself, the driver would look dead
                log.warning("no heartbeat", problem=first_line(error))


@contextmanager
def held_long_run(
    database: Database, instance: str, run_id: str, every: timedelta, place: Place | None = None
) -> Iterator[LongRun]:
    """Hold the pipeline's place for a continuous run. A stop, by the log or by a signal, ends the block without an
    error.

    However the block ends, its heartbeat stops. Raise Superseded if another continuous run is alive, and what the block
    raises: the log then has that error as the run's end.
    """
    name = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
    beat = timedelta(seconds=settings.heartbeat_seconds())
    place = place or Place(database, instance)
    lock_is_free = place.ours()
    taken = LongRuns(database).take(instance, run_id, name, every=every, beat=beat, lock_is_free=lock_is_free)
    mine = LongRun(database, taken, place)
    mine.start()
    log.info("long run begun", attempt=taken.attempt, driver=name)
    try:
        with suppress(Stopped), mine.signals:
            yield mine
    except BaseException as error:
        with suppress(OnlyonceError):  # if the log is unreachable, its missing heartbeat shows the same
            mine.end(error.exit_code if isinstance(error, OnlyonceError) else 1, first_line(error))
        raise
    else:
        mine.end(0, None)
        log.info("long run stopped", attempt=taken.attempt)
    finally:
        place.leave()


def main(argv: list[str]) -> Report:
    """Run one pipeline once, and return the report of what is committed.

    Raise the platform's errors, and Interrupted if Ctrl-C has ended the run.
    """
    asked = arguments(argv)
    logs.configure(pipeline=asked.pipeline, run_id=asked.run_id)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)
    database = units.database_of(None)
    migrate(database.url)
    if (asked.start or asked.end) and not (asked.bounded and pipeline.source.is_topic):
        raise Refused(
            "--from and --to are for a bounded run over a topic",
            hint="add --bounded; files have no times: put the ones that you mean into an inbox of their own",
        )
    if asked.dry_run:
        return _dry_run(pipeline, _instance(database, pipeline, asked, since=None)[0], asked)
    claims.claim(settings.data_root(), str(Authorities(database).identity()))
    if not asked.bounded and not Declarations(database).starts(pipeline.name):
        renamed = Declarations(database).renamed(pipeline, declarations.load(asked.pipelines))
        for text in (*renamed, *check_warnings.without_delay(pipeline)):
            log.warning(text)
    with drivers.noted_run(database, asked.dag_id, asked.run_id, pipeline.name) as since:
        instance, finished = _instance(database, pipeline, asked, since)
        Incarnations(database).add_instance(instance, pipeline.name)
        passing("start-instance")
        try:
            run = _run_long if asked.continuous else _drain
            ended = _Ended(()) if finished else run(pipeline, instance, database, asked)
        except (Stopped, KeyboardInterrupt):
            raise Interrupted(
                report(database, pipeline, instance, asked.run_id, stopped=_stopped("Ctrl-C", asked))
            ) from None
        stopped = _stopped(ended.stopped_by, asked) if ended.stopped_by else None
        found = report(database, pipeline, instance, asked.run_id, ended.skipped, stopped=stopped)
    if not asked.dag_id:  # a DAG has a task that delivers
        found.warnings.extend(_to_deliver(database, pipeline, instance))
    return found


class _Ended(NamedTuple):
    """How a run ended: the folders that it skipped, and by what it was stopped; empty if it ended by itself."""

    skipped: Collection[str]
    stopped_by: str = ""


class StoppedBy(NamedTuple):
    """The cause that has stopped a run, and the command that continues it."""

    what: str
    command: str


def _stopped(what: str, asked: Namespace) -> StoppedBy:
    options = [flag for flag, on in (("--continuous", asked.continuous), ("--bounded", asked.bounded)) if on]
    return StoppedBy(what, " ".join(["onlyonce run", asked.pipeline, *options]))


def stopped_in_words(stopped: StoppedBy, fates: Sequence[Mapping[str, Any]]) -> str:
    """Return what a stopped run has committed in total, and the command that continues. Pure.

    `fates`: the rows of the query `run_fates`.
    """
    batches = sum(row["batches"] for row in fates if row["query"] == "receive")
    records = sum(int(row["in"] or 0) for row in fates if row["query"] == "receive")
    outputs = [f"{row['query']} ({_count(row['batches'], 'batch')})" for row in fates if row["query"] != "receive"]
    received = f"received {_count(records, 'record')} in {_count(batches, 'batch')}" if batches else ""
    wrote = f"committed output{'s' if len(outputs) > 1 else ''} {', '.join(outputs)}" if outputs else ""
    done = " and ".join(filter(None, (received, wrote))) or "committed nothing"
    return f"stopped by {stopped.what}: in total this run {done}. `{stopped.command}` continues from there"


def _count(number: int, what: str) -> str:
    plural = "es" if what.endswith("ch") else "s"
    return f"{number:,} {what}{'' if number == 1 else plural}"


def _to_deliver(database: Database, pipeline: Pipeline, instance: str) -> list[str]:
    """Return which rows wait in the outbox, and the command that sends them."""
    if not any(output.sink.is_external for output in pipeline.outputs):
        return []
    left = OutboxRows(database).rows_about("left_over", instance)
    waiting = {row["output"]: row["rows"] for row in left if row["state"] == "waiting"}
    rows = ", ".join(f"{number:,} of {output}" for output, number in waiting.items())
    if not rows:
        return []
    lacking = check_warnings.undeliverable(pipeline)
    return [
        f"rows that wait in the outbox: {rows}. `onlyonce deliver {instance}` sends them",
        *(line for output in waiting for line in lacking.get(output, [])),
    ]


def arguments(argv: list[str]) -> Namespace:
    """Parse the arguments of a run, as of `onlyonce run` and the DAG's Params."""
    asked = parse("run", argv)
    if asked.continuous:
        refuse_other_options(close=asked.close, bounded=asked.bounded, dry_run=asked.dry_run)
    elif alone := "--standby" if asked.standby else "--every" if asked.every is not None else None:
        raise Refused(f"{alone} is for a continuous run", data="nothing was read or written", hint="add --continuous")
    return asked


LEFT_OUT = {"invalid": "can't be read as declared", "expired": "are older than the dedup horizon", "late": "came late"}
"""The fates of records that are in no result, in words. Each has a command of its name, which shows the records."""


def left_out(instance: str, fates: Sequence[Mapping[str, Any]], why: str = "") -> list[str]:
    """Return a warning for each fate that leaves records out of the results. Pure.

    `why`: what is known of the invalid records, as sentences that end with a blank.
    """
    numbers = {fate: sum(int(row.get(fate) or 0) for row in fates) for fate in LEFT_OUT}
    every = f"all {numbers['invalid']:,} of " if all_invalid(fates) else ""
    return [
        f"{fate}: {every if fate == 'invalid' else ''}{number:,}: they {LEFT_OUT[fate]}, and are in no result. "
        f"{why if fate == 'invalid' else ''}`onlyonce {fate} {instance}` shows them"
        for fate, number in numbers.items()
        if number
    ]


def all_invalid(fates: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a run has read records, and each is invalid. Pure."""
    read = sum(int(row.get("in") or 0) for row in fates if row["query"] == "receive")
    return read > 0 and read == sum(int(row.get("invalid") or 0) for row in fates)


def _why_invalid(
    database: Database, pipeline: Pipeline, instance: str, run_id: str, fates: Sequence[Mapping[str, Any]]
) -> str:
    """Return what is known of a run's invalid records, as sentences.

    They are the most frequent reason; the place of the declaration, if all records are invalid; and how a
    record of CSV would fit.
    """
    if not any(row.get("invalid") for row in fates):
        return ""
    batches = {(row["incarnation"], row["batch"]) for row in Views(database).rows("run_batches", run_id=run_id)}
    said = []
    if found := common_reason(instance, batches):
        said.append(f"The most frequent reason ({found[1]:,}): {found[0]}")
        if option := other_encoding(pipeline, [found[0]]) or other_header(pipeline, [found[0]]):
            said.append(option)
    if all_invalid(fates) and (at := declared_at(pipeline, "source").removesuffix(": ")):
        said.append(f"They are declared at {at}")
    if otherwise := read_otherwise(pipeline, instance, batches):
        said.append(otherwise)
    return "".join(f"{one[0].upper()}{one[1:]}{'' if one.endswith('?') else '.'} " for one in said)


def _without_values(
    database: Database, pipeline: Pipeline, instance: str, run_id: str, fates: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return a warning if no record of a pipeline's first run has a value in some column: its name may be misspelt."""
    batches = {(row["incarnation"], row["batch"]) for row in Views(database).rows("run_batches", run_id=run_id)}
    if (stored_names.incarnation(instance, "receive", 1), 0) not in batches:
        return []
    columns, records = without_values(pipeline, instance, batches)
    if not columns:
        return []
    others = fields_not_declared(pipeline, instance, batches) if any(row.get("unknown_fields") for row in fates) else []
    has = f" They have fields that no column takes: {', '.join(others[:MOST_FIELDS])}." if others else ""
    return [
        f"{declared_at(pipeline, 'schema')}no value in {', '.join(columns)}: null in all {records:,} records that were "
        f"looked at. Are the columns spelt as in the records?{has}"
    ]


MOST_FIELDS = 8
"""How many fields a warning names."""


def report(
    database: Database,
    pipeline: Pipeline,
    instance: str,
    run_id: str,
    skipped: Collection[str] = (),
    *,
    stopped: StoppedBy | None = None,
) -> Report:
    """Return what a run has committed, from the log, and the folders below an inbox that it has skipped.

    `stopped`: by what a person has stopped it, so that input may wait; None: it ended by itself.
    """
    fates = Views(database).rows("run_fates", run_id=run_id)
    why = _why_invalid(database, pipeline, instance, run_id, fates)
    warnings = [
        *([folders.told(skipped)] if skipped else []), *left_out(instance, fates, why),
        *_without_values(database, pipeline, instance, run_id, fates),
    ]  # fmt: skip
    commits = Views(database).rows("run_commits", run_id=run_id)
    facts = {"pipeline": pipeline.name, "instance": instance, "batches": sum(f["batches"] for f in fates)}
    tables = {"fates": fates, "commits": commits}
    if windows := _open_windows(database, pipeline) if instance == pipeline.name else []:
        tables["open_windows"] = windows
    nothing = "stopped before anything was committed" if stopped else f"nothing new{_since(database, instance)}"
    title = f"committed by {run_id}" if fates or commits else nothing
    if stopped:
        warnings.append(stopped_in_words(stopped, fates))
    return Report(f"{pipeline.name}: {title}", run_id, facts, tables, warnings)


def _since(database: Database, instance: str) -> str:
    last = next((row["last_commit"] for row in Views(database).rows("status") if row["pipeline"] == instance), None)
    return f" since {last.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if last else ""


def _open_windows(database: Database, pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return how far each output's windows are closed, and when the newest of its open windows closes."""
    frontier = Batches(database).frontier(pipeline.name)
    furthest = SourceBatches(database).known(pipeline.name).furthest() if pipeline.sources else None
    reached = furthest if furthest is not None else frontier.max_event_time
    rows = []
    for root in pipeline.roots():
        if root.window is None or reached is None:
            continue
        delay = micros(root.watermark_delay)
        if found := newest_open(frontier, root.window, delay, reached):
            closed = closed_until(frontier, root.window, delay)
            rows.append(
                {
                    "output": root.name, "closed_until": None if closed is None else to_time(closed),
                    "newest_window_ends": to_time(found[0]), "closes_at_event_time": to_time(found[1]),
                }
            )  # fmt: skip
    return rows


def _drain(pipeline: Pipeline, instance: str, database: Database, asked: Namespace) -> _Ended:
    asked_to_stop = threading.Event()

    def between_batches() -> None:
        if asked_to_stop.is_set():
            raise Stopped

    # Not SIGTERM: Airflow's ends a task within a minute, whatever a batch takes.
    with Interrupts(asked_to_stop.set, signal.SIGINT) as signals:
        from onlyonce.engine import session
        from onlyonce.run import idle
        from onlyonce.sources import all_sources

        refuse_beside(LongRuns(database).look(instance))  # before Spark starts
        refused = _before_spark(pipeline, instance, database)
        if refused == {} and instance == pipeline.name and not session.must_start():
            skipped: set[str] = set()
            source = all_sources.source_of(pipeline, instance, asked.max_files, skipped=skipped)
            if idle.why_spark(database, pipeline, source, ended=asked.close) is None:
                idle.note(database, pipeline)
                return _Ended(skipped)
        context = _with_spark(pipeline, instance, database, asked, refused, signals.started)
        context.between_batches = between_batches
        from onlyonce.run import queries, source_answers  # a run with nothing to do needs none of it

        if context.bounded:
            queries.bounded(context)
            Incarnations(database).close_instance(instance)
        else:
            with source_answers.stored_after_batches(context):
                queries.once(context, ended=asked.close)
            idle.note_declaration(database, pipeline)
    return _Ended(context.skipped)


def _run_long(pipeline: Pipeline, instance: str, database: Database, asked: Namespace) -> _Ended:
    every = timedelta(seconds=EVERY_SECONDS if asked.every is None else asked.every)
    place = Place(database, instance)
    warm = _stand_by(pipeline, instance, database, asked, place) if asked.standby else None
    if asked.standby and warm is None:
        return _Ended(())
    skipped: Collection[str] = ()
    # The place is taken before Spark starts: if two are started by accident, the second costs nothing.
    with held_long_run(database, instance, asked.run_id, every, place) as mine:
        from onlyonce.run import queries, source_answers

        context = warm or _context(pipeline, instance, database, asked, mine.signals.started)
        mine.signals.started()
        skipped = context.skipped
        context.between_batches, context.trigger = mine.between_batches, queries.trigger(every)
        with (
            source_answers.stored_after_batches(context),
            queries.up(context, mine.stop, mine.tell_down) as look,
        ):
            mine.rounds(look, every)
    return _Ended(skipped, mine.signals.by or "`onlyonce stop`")


def _stand_by(
    pipeline: Pipeline, instance: str, database: Database, asked: Namespace, place: Place
) -> RunContext | None:
    """Return the prepared context of a driver that takes another's place; None if it must not take the place."""
    context = _context(pipeline, instance, database, asked)
    context.spark.range(1).count()  # Spark's first job initialises much that the next jobs need
    return context if wait_for_turn(database, instance, place) else None


def _context(
    pipeline: Pipeline,
    instance: str,
    database: Database,
    asked: Namespace,
    started: Callable[[], None] = lambda: None,
) -> RunContext:
    return _with_spark(pipeline, instance, database, asked, _before_spark(pipeline, instance, database), started)


def _with_spark(
    pipeline: Pipeline,
    instance: str,
    database: Database,
    asked: Namespace,
    refused: Mapping[str, OnlyonceError] | None,
    started: Callable[[], None],
) -> RunContext:
    """Start Spark, and check with it what `_before_spark` could not."""
    from onlyonce import check
    from onlyonce import context as contexts
    from onlyonce.context import RunContext
    from onlyonce.engine import session, worker
    from onlyonce.sources.source_kafka import Bounds

    spark = session.start(f"onlyonce {instance}", asked.master)
    started()
    if refused is None:
        changed, found = (
            contexts.check_declarations(database, pipeline, instance),
            check.check_pipeline(pipeline, lambda: spark),
        )
        _warn(pipeline, changed, found.staged, check.not_begun(database, pipeline, instance))
        refused = _refused(pipeline, found.wrong)
    bounds = Bounds(asked.start, asked.end)
    context = RunContext(spark, pipeline, instance, asked.run_id, database, asked.max_files, bounds=bounds)
    context.refused = refused
    worker.leave_out_what_is_here()
    return context


def _before_spark(pipeline: Pipeline, instance: str, database: Database) -> dict[str, OnlyonceError] | None:
    """Return the outputs that can't run; None if only Spark can check their functions. Raise Refused."""
    from onlyonce import check
    from onlyonce import context as contexts

    try:
        changed = contexts.check_declarations(database, pipeline, instance)
        found = check.check_pipeline(pipeline, None)
    except Refused as error:
        if resolve.needs_session(error):
            return None
        raise
    refused = _refused(pipeline, found.wrong)
    if found.asked_spark:
        return None
    _warn(pipeline, changed, found.staged, check.not_begun(database, pipeline, instance))
    return refused


def _warn(pipeline: Pipeline, changed: list[Change], staged: Collection[str], new: Collection[str] = ()) -> None:
    """Log what `onlyonce check` warns of too: changes, and values that change in a replay."""
    from onlyonce import check

    for text in (*check.warnings_of_changes(pipeline, changed, new), *check_warnings.changing_values(pipeline, staged)):
        log.warning(text)


def _refused(pipeline: Pipeline, wrong: Mapping[str, BaseException]) -> dict[str, OnlyonceError]:
    """Return the outputs that can't run. Raise the first one's refusal if no output can.

    A database that is unreachable now may be back at its output's turn. What raised an unknown error may work by then,
    too.
    """
    refused = {name: error for name, error in wrong.items() if isinstance(error, OnlyonceError) and for_good(error)}
    if refused and len(refused) == len(pipeline.roots()):
        raise refusal(refused)
    data = "this output wrote nothing; receive and the other outputs went on"
    return {name: type(error)(error.what, data=data, hint=error.hint) for name, error in refused.items()}


def _instance(database: Database, pipeline: Pipeline, asked: Namespace, since: datetime | None) -> tuple[str, bool]:
    """Return the pipeline itself, or its bounded run; and whether an earlier driver of this run has finished it.

    It is the last bounded run if that did not finish, or if this run has finished it since a time. Else it is the next
    one.
    """
    if not asked.bounded:
        return pipeline.name, False
    incarnations = Incarnations(database)
    last = incarnations.last_bounded(pipeline.name)
    if last is None:
        return f"{pipeline.name}@1", False
    name, done = last
    if not done:
        return name, False
    if since is not None and incarnations.wrote(asked.run_id, name, since):
        return name, True
    return f"{pipeline.name}@{int(name.rsplit('@', 1)[1]) + 1}", False


def _dry_run(pipeline: Pipeline, instance: str, asked: Namespace) -> Report:
    """Report what a run would read; `instance`: the pipeline itself, or its bounded run."""
    from onlyonce.engine import session
    from onlyonce.sources import source_files, source_kafka

    if pipeline.sources:
        raise Refused(
            f"{pipeline.name} has several sources, and a dry run looks at one",
            data="nothing was read or written",
            hint="onlyonce lag shows how far each source has come",
        )
    if isinstance(pipeline.source, Kafka):
        bounds = source_kafka.Bounds(asked.start, asked.end) if asked.bounded else None
        topic = source_kafka.topic_of(pipeline, pipeline.source, instance, bounds)
        found = topic.waiting(session.start(f"onlyonce {pipeline.name}", asked.master))
        offsets = sum(one.offsets for one in found)
        told = {
            "new offsets": offsets, "batches": -(-offsets // pipeline.source.max_offsets_a_batch),
            "topic": pipeline.source.topic, "lost ranges": sum(one.refusal is not None for one in found),
        }  # fmt: skip
        return Report(f"{instance}: a run would read", asked.run_id, told)
    inbox = source_files.placed(
        source_files.inbox_of(pipeline, instance, asked.max_files),
        lambda: session.start(f"onlyonce {pipeline.name}", asked.master),
    )
    batches = source_files.waiting(inbox)
    files = [file for batch in batches for file in batch]
    facts = {
        "new files": len({f.path for f in files}), "lines": sum(f.lines for f in files), "batches": len(batches),
        "inbox": str(inbox.folder),
    }  # fmt: skip
    skipped = inbox.folders.skipped
    return Report(
        f"{instance}: a run would read", asked.run_id, facts, warnings=[folders.told(skipped)] if skipped else []
    )


def cli() -> None:
    """Run the application that spark-submit starts: print the report, and exit with the error's exit code."""
    failures.run_application(main)


if __name__ == "__main__":
    cli()
