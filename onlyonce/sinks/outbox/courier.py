"""One deliverer that works on one output.

Wave by wave it notes the attempts in the log, sends the rows, and records the answers.

In a wave the rows of a key are in one request (`onlyonce.model.sinks.parcels`), so two of them are never sent at the
same time. A wave takes two statements, however many rows it has: one for the attempts, one for the answers. Called by
`onlyonce.sinks.outbox.deliver`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from onlyonce.commitlog.sinks.outbox import Deliverer, OutboxRows, Policy
from onlyonce.database.connect import Database
from onlyonce.declare.pipeline import BigQuery, Webhook
from onlyonce.failpoints import passing
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.sinks.delivery import Answer, Row, Unsent
from onlyonce.model.sinks.parcels import Waiting
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
    refused: Counter[int] = field(default_factory=Counter)

    def drain(self) -> None:
        """Send until nothing waits, or nothing that is due soon."""
        while True:
            sent, pause = self._pass()
            if not sent:
                due = OutboxRows(self.database).next_due(self.deliverer)
                if due is None:
                    return
                pause = max(pause, due)
            if pause > PATIENCE_SECONDS:
                return
            time.sleep(max(pause, 0.0))

    def _pass(self) -> tuple[int, float]:
        """Once through what waits: how many rows were sent, and the pause that the target has asked for meanwhile."""
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
        """Some requests: begun, sent, recorded. Gives the rows, and a pause that was asked for."""
        parcels = waiting.take(self.sender.under_way)
        passing("deliver-before-begin")
        begun = OutboxRows(self.database).begin(self.deliverer, [row for rows in parcels for row in rows])
        parcels = [[row for row in rows if row.row_no in begun] for rows in parcels]
        passing("deliver-after-begin")
        answered = list(self.threads.map(self._send, parcels))
        passing("deliver-before-record")
        answers = [told for rows, of_rows in zip(parcels, answered, strict=True) for told in self._told(rows, of_rows)]
        OutboxRows(self.database).record(self.deliverer, self.policy, answers)
        passing("deliver-after-record")
        for rows, of_rows in zip(parcels, answered, strict=True):
            waiting.answered(rows, of_rows)
        self._stop_where_held(answer for _, answer, _ in answers)
        return len(answers), max((answer.pause for _, answer, _ in answers), default=0.0)

    def _told(self, rows: Sequence[Row], answers: Sequence[Answer]) -> list[tuple[Row, Answer, float]]:
        """What is recorded of one request: its rows are due again at one moment, so that they can be one request
        again."""
        pause = self._pause(max((row.attempts for row in rows), default=0))
        return [
            (row, answer, 0.0 if answer.held == "apart" else max(pause, answer.pause))
            for row, answer in zip(rows, answers, strict=True)
        ]

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
