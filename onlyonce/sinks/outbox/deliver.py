"""Entry point: send the rows that wait in the outbox. No Spark. The task `deliver` and `onlyonce deliver` run it.

Each row of a Webhook or BigQuery output was committed with its unit. It is sent under an idempotency key that never
changes, in the order of its key's rows, and again after a pause if that may help. After `attempts` it is a dead letter
(docs/specification/outbox-row.md). Kafka, BigQuery's streams and the user's own sinks take whole units, in order. A
unit that they can't take holds back all later units.

It may run while the stream runs, and several times at once. It may be killed at any point and run again. If an answer
was lost, a target that ignores the key may get a row twice.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, cast

import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from onlyonce import job_main, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import (
    BigQuery,
    BigQueryStream,
    CustomSink,
    KafkaSink,
    Output,
    Pipeline,
    Sent,
    UnitSink,
    Webhook,
    unknown,
)
from onlyonce.api.resolve import SINKS, named, own_class
from onlyonce.asked import parse
from onlyonce.commitlog import outbox
from onlyonce.commitlog.outbox import Deliverer, OutboxRows, OutboxUnits, Policy, Streams, Unit
from onlyonce.core.delivery import Answer, Guarantee, Room, Row, Unsent, Waiting, told
from onlyonce.core.errors import CommitStateUnknown, InvariantBroken, OnlyonceError, Refused, Retryable
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.failpoints import passing
from onlyonce.sinks.outbox import send_bigquery, send_kafka, send_webhook


class Sender(Protocol):
    """Sends rows to one target.

    ordered     rows of one key are sent one after the other
    ahead       how many rows are read at once
    under_way   how many requests may be begun and not recorded, which a crash leaves unanswered
    room        what one request holds
    """

    ordered: bool
    ahead: int
    under_way: int
    room: Room

    def size(self, row: Row) -> int:
        """Return the approximate bytes of a row in a request."""

    def send(self, rows: Sequence[Row]) -> list[Answer]:
        """Send one request, and return an answer for each row. Never send twice. Raise Unsent."""


def sender_of(sink: Webhook | BigQuery, output: str) -> AbstractContextManager[Sender]:
    """Open the sender of an output's sink. Raise Refused for a missing setting."""
    if isinstance(sink, BigQuery):
        return send_bigquery.opened_inserts(sink)
    return send_webhook.opened_webhook(sink, output)


# One deliverer of one output. It works in waves: it notes the attempts in the log, sends the rows, and records the
# answers. In a wave the rows of a key are in one request (`onlyonce.core.delivery`), so two of them are never sent at
# the same time. A wave takes two statements, however many rows it has: one for the attempts, one for the answers.


PATIENCE_SECONDS = 60.0
"""The longest pause that is waited for. After a longer one the rows are sent the next time."""
LONGEST_PAUSE_SECONDS = 600.0
CONNECTS = 4


@dataclass(frozen=True)
class RowDelivery:
    """One running deliverer of one output."""

    database: Database
    deliverer: Deliverer
    policy: Policy
    sink: Webhook | BigQuery
    sender: Sender
    threads: ThreadPoolExecutor
    refused: Counter[int] = field(default_factory=Counter)

    def deliver_all(self) -> None:
        """Send until no row waits, or none that is due soon."""
        while True:
            sent, pause = self._pass()
            if not sent:
                due = OutboxRows(self.database).next_due(self.deliverer, ordered=self.sender.ordered)
                if due is None:
                    return
                pause = max(pause, due)
            if pause > PATIENCE_SECONDS:
                return
            time.sleep(max(pause, 0.0))

    def _pass(self) -> tuple[int, float]:
        """Send each waiting row once. Return how many rows were sent, and the pause that the target has asked for."""
        after, sent = 0, 0
        while found := OutboxRows(self.database).next_rows(
            self.deliverer, after, self.sender.ahead, ordered=self.sender.ordered
        ):
            after = found[-1][0].row_no
            waiting = Waiting(
                self.sender.room, self.sender.size, self.sender.ordered, self.policy.attempts, self.refused
            )
            waiting.add(found)
            while waiting:
                number, pause = self._wave(waiting)
                sent += number
                if pause:
                    return sent, pause
        return sent, 0.0

    def _wave(self, waiting: Waiting) -> tuple[int, float]:
        """Begin, send and record some requests. Return the number of rows, and a pause that was asked for."""
        requests = waiting.take(self.sender.under_way)
        passing("deliver-before-begin")
        begun = OutboxRows(self.database).begin(self.deliverer, [row for rows in requests for row in rows])
        requests = [[row for row in rows if row.row_no in begun] for rows in requests]
        passing("deliver-after-begin")
        answered = list(self.threads.map(self._send, requests))
        passing("deliver-before-record")
        answers = [told for rows, of_rows in zip(requests, answered, strict=True) for told in self._told(rows, of_rows)]
        OutboxRows(self.database).record(self.deliverer, self.policy, answers)
        passing("deliver-after-record")
        for rows, of_rows in zip(requests, answered, strict=True):
            waiting.answered(rows, of_rows)
        self._stop_where_held(answer for _, answer, _ in answers)
        return len(answers), max((answer.pause for _, answer, _ in answers), default=0.0)

    def _told(self, rows: Sequence[Row], answers: Sequence[Answer]) -> list[tuple[Row, Answer, float]]:
        """Return what is recorded of one request.

        Its rows are due again at the same time, so that they can be one request again.
        """
        pause = self._pause(max((row.attempts for row in rows), default=0))
        return [
            (row, answer, 0.0 if answer.held == "apart" else max(pause, answer.pause))
            for row, answer in zip(rows, answers, strict=True)
        ]

    def _send(self, rows: Sequence[Row]) -> list[Answer]:
        """Send one request. If the target can't be reached, nothing was sent, so try a few times."""
        if not rows:
            return []
        attempts = Retrying(
            retry=retry_if_exception_type(Unsent),
            stop=stop_after_attempt(CONNECTS),
            wait=wait_exponential_jitter(multiplier=0.1, max=2, jitter=0.1),
            reraise=True,
        )
        try:
            answers: list[Answer] = attempts(self.sender.send, rows)
        except Unsent as error:
            return [Answer("not now", error.what, held="away")] * len(rows)
        passing("deliver-after-send")
        return answers

    def _pause(self, attempts: int) -> float:
        first = self.sink.pause.total_seconds()
        state = RetryCallState(Retrying(), None, (), {})
        state.attempt_number = attempts + 1
        longest = max(LONGEST_PAUSE_SECONDS, first)
        return float(wait_exponential_jitter(multiplier=first, max=longest, jitter=first)(state))

    def _stop_where_held(self, answers: Iterable[Answer]) -> None:
        held = next((answer for answer in answers if answer.held in ("away", "wrong")), None)
        if held is None:
            return
        where = f"{self.deliverer.instance}/{self.deliverer.output}"
        if held.held == "away":
            raise Retryable(
                f"the target of {where} can't be reached: {held.text}",
                data="what could not be sent waits in the outbox; no attempt was counted",
                hint="is it up, and its address right? Then: onlyonce deliver",
            )
        raise Refused(
            f"the target of {where} refuses every row: {held.text}",
            data="it took none of these rows; they wait in the outbox, and no attempt was counted",
            hint="correct the address or the password, then: onlyonce deliver",
        )


# The interface of a target that takes whole units (Kafka, BigQuery's streams, and the user's own sinks:
# docs/how-to/own-sink.md), and the choice of a sink's target.


class Target(Protocol):
    """Takes the rows of one unit after the other. The conformance suite tests its `guarantee`."""

    guarantee: Guarantee

    def committed(self, unit: str) -> bool:
        """Return whether the whole unit is in the target. Called before each write.

        At least once it may always be False.
        """

    def write(self, unit: str, rows: Iterator[Row]) -> None:
        """Write the rows of a unit. Raise an error if that fails.

        Exactly once: rows and the unit's name become visible together. A unit that is already in the target stays as it
        is, even if two processes write it at the same time.
        """

    def close(self) -> None:
        """Close connections. Nothing is written after it."""


def target_of(
    sink: KafkaSink | CustomSink | BigQueryStream, deliverer: str, streams: send_bigquery.Streams
) -> AbstractContextManager[Target]:
    """Open the target of a sink for a deliverer of this name. Raise Refused.

    `streams`: where the name of a unit's stream is kept.
    """
    if isinstance(sink, BigQueryStream):
        return cast("AbstractContextManager[Target]", send_bigquery.opened_stream(sink, streams))
    if isinstance(sink, KafkaSink):
        return send_kafka.opened_producer(sink, deliverer)
    return cast("AbstractContextManager[Target]", closing(_own(sink)))


def _own(sink: CustomSink) -> Any:
    kind = named(
        own_class(sink.target_class, SINKS, data="nothing was written; its rows wait in the outbox"),
        f"CustomSink: {sink.target_class}",
        data="nothing was written; its rows wait in the outbox",
        hint="write 'module:Class' of what `onlyonce deliver` can import; see docs/how-to/own-sink.md",
    )  # fmt: skip
    missing = [part for part in ("guarantee", "committed", "write", "close") if not hasattr(kind, part)]
    if missing or kind.guarantee not in ("exactly_once", "at_least_once"):
        raise Refused(
            f"CustomSink: {sink.target_class} lacks {', '.join(missing) or 'a guarantee that is known'}",
            data="nothing was written; its rows wait in the outbox",
            hint="the contract is in docs/how-to/own-sink.md",
        )
    try:
        return kind(sink.where)
    except OnlyonceError:
        raise
    except Exception as error:
        raise Unsent(
            f"{sink.target_class} could not be opened: {type(error).__name__}: {error}",
            data="nothing was written; its rows wait in the outbox",
            hint="look at the cause, then: onlyonce deliver",
        ) from error


# Deliver whole units, to Kafka and the user's own sinks.
#
# Query the target for the unit, note the attempt, write the unit, record it, and continue with the next unit. The order
# is strict, so a target need only remember the last unit of each partition. A unit that can't be written holds back all
# later units, with an error.


PAGE = 10_000


@dataclass(frozen=True)
class UnitDelivery:
    """One running deliverer of one output. `units_topic`: the topic that gets the units' names, if it is Kafka's."""

    database: Database
    deliverer: Deliverer
    target: Target
    units_topic: str | None

    def deliver_all(self) -> None:
        """Write until no unit waits.

        Raise Superseded, what the target raises, or Retryable if the target gave no answer.
        """
        while (unit := OutboxUnits(self.database).next_unit(self.deliverer)) is not None:
            self._deliver(unit)

    def _deliver(self, unit: Unit) -> None:
        passing("deliver-unit-before-begin")
        OutboxUnits(self.database).begin(self.deliverer, unit, self.units_topic)
        passing("deliver-unit-after-begin")
        try:
            # After `begin`, which has checked the epoch: a deliverer that was overtaken does not get here.
            there = self.target.committed(unit.name)
            if not there:
                self.target.write(unit.name, self._rows(unit))
        except Unsent as error:
            self._wait(unit, error.what, lost=False)
            raise
        except OnlyonceError as error:
            self._wait(unit, error.what, lost=isinstance(error, Retryable | CommitStateUnknown))
            raise
        except Exception as error:
            self._wait(unit, told(f"{type(error).__name__}: {error}"), lost=True)
            raise Retryable(
                f"the target of {self.deliverer.instance}/{self.deliverer.output} did not take unit {unit.name}: "
                f"{told(f'{type(error).__name__}: {error}')}",
                data="its rows wait in the outbox, and all after them; at the next attempt the target is asked "
                "for it first",
                hint="look at the cause, then: onlyonce deliver",
            ) from error
        passing("deliver-unit-after-write")
        OutboxUnits(self.database).record(self.deliverer, unit, "it was there" if there else "committed")
        passing("deliver-unit-after-record")

    def _wait(self, unit: Unit, answer: str, *, lost: bool) -> None:
        uncertain = lost and self.target.guarantee == "at_least_once"
        OutboxUnits(self.database).wait(self.deliverer, unit, answer, lost=lost, uncertain=uncertain)

    def _rows(self, unit: Unit) -> Iterator[Row]:
        """Yield the rows in their order, page by page: a unit is never whole in memory here."""
        after = -1
        while found := OutboxUnits(self.database).rows(unit, after, PAGE):
            yield from found
            after = found[-1].seq


log = structlog.get_logger()

GIVEN_UP_SHOWN = 20


def main(argv: list[str]) -> Report:
    """Deliver once, everything or one pipeline, and report what is left.

    Raise Refused for an output that is not declared. After all outputs raise what stopped one: InvariantBroken, Refused
    for an endpoint that refuses all requests, Retryable for one that is unreachable, or Superseded if another deliverer
    has taken over.
    """
    asked = parse("deliver", argv)
    logs.configure(job="deliver")
    database = Database(settings.database_url(), "onlyonce/deliver")
    migrate(database.url)
    started = datetime.now(UTC)
    chosen = _chosen(asked)
    problems: list[OnlyonceError] = []
    busy: list[str] = []
    for instance, pipeline in chosen:
        sending = [o for o in pipeline.outputs if isinstance(o.sink, Sent) and asked.output in (None, o.name)]
        if asked.retry_dead:
            names = [output.name for output in sending]
            OutboxRows(database).retry_dead(instance, names)
        for output in sending:
            try:
                busy += [] if deliver(database, instance, output) else [f"{instance}/{output.name}"]
            except OnlyonceError as error:
                # If one endpoint is unreachable or one output is damaged, the others don't wait.
                problems.append(error)
    problems.sort(key=lambda error: not isinstance(error, InvariantBroken))
    found = _report(database, chosen, started, busy)
    if problems:
        raise undelivered(problems, found.facts) from problems[0]
    return found


def undelivered(problems: Sequence[OnlyonceError], left: Mapping[str, Any]) -> OnlyonceError:
    """Return the first problem, which also says what is left in the outbox, and the other problems.

    `left`: the number of rows by their state.
    """
    first, *others = problems
    rows = ", ".join(f"{number:,} {state}" for state, number in left.items() if number)
    data = [first.data, f"rows in the outbox now: {rows}" if rows else "", *(f"also: {one.what}" for one in others)]
    return type(first)(first.what, data="; ".join(filter(None, data)), hint=first.hint)


def _chosen(asked: Namespace) -> list[tuple[str, Pipeline]]:
    """Return (instance, its pipeline).

    A bounded run's rows are sent only if it is named: the stream has sent the same.
    """
    declared = declarations.load(asked.pipelines)
    if asked.pipeline is None:
        chosen = sorted(declared.items())
    else:
        name = asked.pipeline.partition("@")[0]
        if name not in declared:
            raise unknown("pipeline", name, sorted(declared))
        chosen = [(asked.pipeline, declared[name])]
    if asked.output is not None:
        _check_sends(asked.output, [output for _, pipeline in chosen for output in pipeline.outputs])
    return chosen


def _check_sends(name: str, outputs: Sequence[Output]) -> None:
    """Raise Refused if no output has the name, or none that has it sends rows."""
    named = [output for output in outputs if output.name == name]
    if not named:
        raise unknown("output", name, sorted({output.name for output in outputs}))
    if not any(isinstance(output.sink, Sent) for output in named):
        raise Refused(
            f"output {name} sends nothing",
            hint="only these sinks send rows: Webhook, BigQuery, BigQueryStream, KafkaSink, CustomSink",
        )


def deliver(database: Database, instance: str, output: Output) -> bool:
    """Send what waits of one output. Return False if another deliverer is sending it. Raise like `main`."""
    assert isinstance(output.sink, Sent)
    if not OutboxRows(database).waits(instance, output.name):
        return True  # nothing waits, so no target is contacted, and no secret needed
    if isinstance(output.sink, UnitSink):
        return _deliver_units(database, Deliverer(instance, output.name), output.sink)
    policy = Policy(output.sink.attempts, output.sink.remembers)
    with outbox.alone(database, Deliverer(instance, output.name)) as ours:
        if not ours:
            return False
        deliverer, lost = OutboxRows(database).take_over(instance, output.name, policy)
        if lost:
            log.warning("attempts of an ended deliverer are unanswered", output=deliverer.name, rows=lost)
        with (
            sender_of(output.sink, f"{instance}/{output.name}") as sender,
            ThreadPoolExecutor(output.sink.at_once) as threads,
        ):
            RowDelivery(database, deliverer, policy, output.sink, sender, threads).deliver_all()
    return True


def _deliver_units(database: Database, unnumbered: Deliverer, sink: UnitSink) -> bool:
    """Deliver the whole units of one output. Return False if another deliverer is doing it.

    The epoch is raised first; then the target is opened, which fences the deliverer before in its own way.
    """
    units_topic = sink.units if isinstance(sink, KafkaSink) else None
    with outbox.alone(database, unnumbered) as ours:
        if not ours:
            return False
        deliverer = OutboxUnits(database).take_over(unnumbered, units_topic)
        streams = Streams(database, deliverer)
        with target_of(sink, f"{deliverer.instance}/{deliverer.output}", streams) as target:
            lost = OutboxUnits(database).recover(deliverer, uncertain=target.guarantee == "at_least_once")
            if lost:
                log.warning("attempts of an ended deliverer are unanswered", output=deliverer.name, rows=lost)
            UnitDelivery(database, deliverer, target, units_topic).deliver_all()
    return True


def _report(
    database: Database, chosen: Sequence[tuple[str, Pipeline]], started: datetime, busy: Sequence[str]
) -> Report:
    def about(query: str, **parameters: Any) -> list[dict[str, Any]]:
        return [
            {"pipeline": instance} | row
            for instance, _ in chosen
            for row in OutboxRows(database).rows_about(query, instance, **parameters)
        ]

    left = about("left_over")
    given_up, uncertain = about("given_up", n=GIVEN_UP_SHOWN), about("uncertain")
    count = {
        state: sum(row["rows"] for row in left if row["state"] == state) for state in ("waiting", "dead", "invalid")
    }
    warnings = [f"{name}: another deliverer is running; it was left to it" for name in busy]
    warnings += _undeclared(chosen, left)
    warnings += [
        f"{row['pipeline']}/{row['output']}: {row['rows']} row(s) are held until the backfill that made them has "
        "ended: "
        "see onlyonce.backfills. If it was killed, the same backfill run again throws them away and sends its own"
        for row in left
        if row["state"] == "held"
    ]
    if given_up:
        warnings.append(
            f"{count['dead']} dead letter(s), {count['invalid']} rejected row(s). When the cause is gone: "
            "onlyonce deliver --retry-dead sends them again"
        )
    if uncertain:
        warnings.append(
            f"{sum(row['rows'] for row in uncertain)} row(s) may be at their target twice: see the table uncertain"
        )
    shown = {"not delivered": left, "given up": given_up, "uncertain": uncertain}
    title = "deliver: all is delivered" if not left else "deliver: some rows are not delivered"
    return Report(title, f"deliver__{started:%Y-%m-%dT%H:%M:%S}", dict(count), shown, warnings)


def _undeclared(chosen: Sequence[tuple[str, Pipeline]], left: Sequence[dict[str, Any]]) -> list[str]:
    sent = {(instance, o.name) for instance, pipeline in chosen for o in pipeline.outputs if isinstance(o.sink, Sent)}
    return [
        f"{row['pipeline']}/{row['output']}: {row['rows']} row(s) wait for an output that is not declared any more"
        for row in left
        if (row["pipeline"], row["output"]) not in sent
    ]


def cli() -> None:
    """Run `python -m onlyonce.sinks.outbox.deliver`."""
    job_main.run(main)


if __name__ == "__main__":
    cli()
