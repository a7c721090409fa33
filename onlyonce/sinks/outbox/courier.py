"""One deliverer that works on one output. Wave by wave it notes the attempts in the log, sends the rows, and records the answers.

A wave has at most one request for each key, so two rows of a key are never sent at the same time. A wave takes two statements,
however many rows it has: one for the attempts, one for the answers. Called by `onlyonce.sinks.outbox.deliver`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from onlyonce.commitlog.sinks import outbox
from onlyonce.commitlog.sinks.outbox import Deliverer, Policy
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import BigQuery, Webhook
from onlyonce.failpoints import passing
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.sinks.delivery import Answer, Row, Unsent
from onlyonce.sinks.outbox.sender import Sender

PATIENCE_SECONDS = 60.0
"""A pause that is no longer than this is waited for; the rest is for the next time."""
LONGEST_PAUSE_SECONDS = 600.0
CONNECTS = 4


@dataclass(frozen=True)
class Courier:
    """One deliverer at work on one output."""

    database: Database
    deliverer: Deliverer
    policy: Policy
    sink: Webhook | BigQuery
    sender: Sender
    threads: ThreadPoolExecutor

    def drain(self) -> None:
        """Send until nothing waits, or nothing that is due soon."""
        while True:
            sent, pause = self._pass()
            if not sent:
                due = outbox.next_due(self.database, self.deliverer)
                if due is None:
                    return
                pause = max(pause, due)
            if pause > PATIENCE_SECONDS:
                return
            time.sleep(max(pause, 0.0))

    def _pass(self) -> tuple[int, float]:
        """Once through what waits: how many rows were sent, and the pause that the target has asked for meanwhile."""
        after, sent = 0, 0
        while found := outbox.next_rows(
            self.database, self.deliverer, after, self.sender.ahead, ordered=self.sender.ordered
        ):
            after = found[-1][0].row_no
            queues = self._queues(found)
            while queues:
                number, pause = self._wave(queues)
                sent += number
                if pause:
                    return sent, pause
        return sent, 0.0

    def _queues(self, found: Sequence[tuple[Row, bool]]) -> dict[Any, deque[Row]]:
        """The rows that may go, by key; one without a key has a queue of its own."""
        queues: dict[Any, deque[Row]] = {}
        closed: set[Any] = set()
        for row, may in found:
            key = row.row_no if row.key is None else row.key
            if not may and self.sender.ordered:
                closed.add(key)
            if may and key not in closed:
                queues.setdefault(key, deque()).append(row)
        return queues

    def _wave(self, queues: dict[Any, deque[Row]]) -> tuple[int, float]:
        """One request for each of the first keys: begun, sent, recorded. Gives the rows, and a pause that was asked for."""
        parcels = {}
        for key in list(queues)[: self.sender.under_way]:
            queue = queues[key]
            parcels[key] = [queue.popleft() for _ in range(self.sender.fits(queue))]
        every = [row for rows in parcels.values() for row in rows]
        passing("deliver-before-begin")
        begun = outbox.begin(self.database, self.deliverer, every)
        parcels = {key: [row for row in rows if row.row_no in begun] for key, rows in parcels.items()}
        passing("deliver-after-begin")
        answered = dict(zip(parcels, self.threads.map(self._send, parcels.values()), strict=True))
        passing("deliver-before-record")
        answers = [
            (row, answer, max(self._pause(row), answer.pause))
            for key, rows in parcels.items()
            for row, answer in zip(rows, answered[key], strict=True)
        ]
        outbox.record(self.database, self.deliverer, self.policy, answers)
        passing("deliver-after-record")
        for key in parcels:
            again = any(answer.verdict in ("not now", "unknown") for answer in answered[key])
            if not queues[key] or (again and self.sender.ordered):
                del queues[key]
        self._stop_where_held(answer for _, answer, _ in answers)
        return len(answers), max((answer.pause for _, answer, _ in answers), default=0.0)

    def _send(self, rows: Sequence[Row]) -> list[Answer]:
        """One request. Where the target can't be reached nothing was sent, so that is tried a few times at once."""
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

    def _pause(self, row: Row) -> float:
        first = self.sink.pause.total_seconds()
        state = RetryCallState(Retrying(), None, (), {})
        state.attempt_number = row.attempts + 1
        longest = max(LONGEST_PAUSE_SECONDS, first)
        return float(wait_exponential_jitter(multiplier=first, max=longest, jitter=first)(state))

    def _stop_where_held(self, answers: Iterable[Answer]) -> None:
        held = next((answer for answer in answers if answer.held), None)
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
