"""Judges a target's answer to a row that was sent from the outbox, and decides the row's next state. Pure.

There are five kinds of answer. What matters for the data is whether the target may have the row. *delivered*: it has
it. *not now* and *no*: it does not have it. *unknown*: nobody can tell, so the row is sent again under the same key,
and that is counted.

A request may have several rows. Its answer is that of each, but for *no*: which of them it means nobody knows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from onlyonce.core import stored_names
from onlyonce.core.errors import Retryable

Guarantee = Literal["exactly_once", "at_least_once"]
"""What a target of whole units promises, and the conformance suite tests."""
Verdict = Literal["delivered", "not now", "unknown", "no", "invalid"]
NOT_NOW = {408, 409, 425, 429}
"""The endpoint took nothing, and says that a later attempt may pass. 409: an earlier attempt of this key is still at
work."""
NOT_HERE = {401, 403, 404, 405, 407}
"""The endpoint says no to whoever asks, whatever the row: a wrong address or a wrong password kills no row."""
LONGEST_ASKED_SECONDS = 3600.0
ANSWER_LENGTH = 500


class Unsent(Retryable):
    """The target was not reached, so for certain nothing was sent."""


@dataclass(frozen=True)
class Row:
    """A row of the outbox as it is sent. `attempts` have been begun before, and `unanswered` of them have no answer."""

    row_no: int
    unit: str
    seq: int
    life: str
    key: str | None
    payload: str
    insert_id: str
    attempts: int
    unanswered: int = 0

    @property
    def queue(self) -> str | int:
        """Where it waits: behind the rows of its key, or in a queue of its own."""
        return self.row_no if self.key is None else self.key

    @property
    def idempotency_key(self) -> str:
        """From unit and row; the lineage's own id keeps it apart from the same unit of another platform."""
        return stored_names.idempotency_key(self.unit, self.seq, self.life)


@dataclass(frozen=True)
class Answer:
    """What came back for a row.

    `pause`: the seconds that the target asks to wait. `held`: it is no matter of this row, so the attempt does not
    count; 'away' or 'wrong' says who must act, 'apart' that it is sent again with fewer others."""

    verdict: Verdict
    text: str
    pause: float = 0.0
    held: Literal["away", "wrong", "apart", ""] = ""

    @property
    def may_be_there(self) -> bool:
        """Whether the target may have taken the row."""
        return self.verdict in ("delivered", "unknown")


def judge(status: int, body: str, headers: Mapping[str, str], now: datetime) -> Answer:
    """The answer of an HTTP endpoint to one row."""
    text = told(f"{status} {body}")
    pause = asked_pause(headers.get("retry-after", ""), now)
    if 200 <= status < 300:
        return Answer("delivered", text)
    if status in NOT_NOW:
        return Answer("not now", text, pause)
    if status in NOT_HERE or 300 <= status < 400:
        return Answer("not now", text, held="wrong")
    # A 5xx may come from a proxy, after the endpoint behind it has done its work.
    return Answer("unknown", text, pause) if status >= 500 else Answer("no", text)


def of_each(answer: Answer, rows: int) -> list[Answer]:
    """What the answer to a request with so many rows says of each of them."""
    blames_one_of_several = answer.verdict == "no" and rows > 1
    return [replace(answer, held="apart") if blames_one_of_several else answer] * rows


def told(answer: str) -> str:
    """What the log keeps of an answer: its beginning, on one line. PostgreSQL takes no NUL."""
    return " ".join(answer.replace("\0", "").split())[:ANSWER_LENGTH]


def next_state(answer: Answer, attempts: int, most: int) -> str:
    """The state of a row after the answer to its attempt of that number."""
    ends = {"delivered": "delivered", "no": "dead", "invalid": "invalid"}
    if answer.held or (answer.verdict not in ends and attempts < most):
        return "waiting"
    return ends.get(answer.verdict, "dead")


def asked_pause(retry_after: str, now: datetime) -> float:
    """The seconds of a header Retry-After, which is a number or a date; 0 where it is neither."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            at = parsedate_to_datetime(retry_after)
        except ValueError:
            return 0.0
        seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
    return min(max(seconds, 0.0), LONGEST_ASKED_SECONDS) if seconds == seconds else 0.0


# Puts the rows that wait into requests, and what was refused in company back into smaller ones. Pure.
#
# A row waits in the queue of its key, behind the rows that come before it; one without a key has a queue of its own.
# Each time requests are made, all that is taken from a queue goes into one of them, in its order. So rows of a key are
# never in two requests at once, however many rows share one.
#
# One bad row must not take others with it. With each refusal of a request, and with each answer that was lost, its rows
# share one with half as many; so a bad row is alone in the end, and the others are delivered meanwhile.


@dataclass(frozen=True)
class Room:
    """What one request holds at most. A row of more bytes goes alone."""

    rows: int
    bytes: int


@dataclass
class _Request:
    """One that is being filled: `share` rows at most, and so many bytes more."""

    share: int
    bytes: int
    rows: list[Row] = field(default_factory=list)

    def put(self, row: Row, size: int) -> bool:
        """Whether there was room for it. For the first there is."""
        if self.rows and (len(self.rows) == self.share or size > self.bytes):
            return False
        self.rows.append(row)
        self.bytes -= size
        return True


@dataclass
class Waiting:
    """The rows that may be sent, in their queues.

    room      what a request holds
    size      the bytes of a row in it
    ordered   whether rows of a key stand behind one that must be sent again
    attempts  how often a row is sent; at the last of them one without an answer is alone
    refused   how often a row was refused with others, by its number. It outlives these queues
    """

    room: Room
    size: Callable[[Row], int]
    ordered: bool
    attempts: int
    refused: Counter[int] = field(default_factory=Counter)
    _queues: dict[str | int, deque[Row]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, found: Iterable[tuple[Row, bool]]) -> None:
        """Rows in their order, each with whether it may be sent now.

        Where rows are in order, those behind one that may not wait too.
        """
        closed: set[str | int] = set()
        for row, may in found:
            if not may:
                closed.add(row.queue)
            elif not (self.ordered and row.queue in closed):
                self._queues.setdefault(row.queue, deque()).append(row)

    def take(self, requests: int) -> list[list[Row]]:
        """The rows of the next requests, so many at most; they wait no more.

        Rows share one with those that may have as much company.
        """
        made: list[_Request] = []
        filling: dict[int, _Request] = {}
        for key in list(self._queues):
            queue = self._queues[key]
            share = self._share(queue[0])
            if share not in filling or not self._fill(filling[share], queue):
                if len(made) == requests:
                    break
                filling[share] = _Request(share, self.room.bytes)
                made.append(filling[share])
                self._fill(filling[share], queue)
            if not queue:
                del self._queues[key]
        return [request.rows for request in made]

    def answered(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """What the answers to the rows of one request mean for those that wait: who was refused with others stands in
        front again, and behind one that is sent again later nobody goes on, where rows are in order."""
        for row, answer in reversed(list(zip(rows, answers, strict=True))):
            if answer.held == "apart":
                self.refused[row.row_no] += 1
                self._queues.setdefault(row.queue, deque()).appendleft(row)
            elif answer.verdict in ("not now", "unknown"):
                if self.ordered:
                    self._queues.pop(row.queue, None)
            else:
                self.refused.pop(row.row_no, None)

    def _fill(self, request: _Request, queue: deque[Row]) -> bool:
        """Whether the first rows of a queue, as many as there is room for, are in it: one at least."""
        before = len(request.rows)
        while queue and self._share(queue[0]) == request.share and request.put(queue[0], self.size(queue[0])):
            queue.popleft()
        return len(request.rows) > before

    def _share(self, row: Row) -> int:
        """With how many rows at most it shares a request, itself among them."""
        if row.unanswered and row.attempts + 1 >= self.attempts:
            return 1
        return max(1, self.room.rows >> (row.unanswered + self.refused.get(row.row_no, 0)))
