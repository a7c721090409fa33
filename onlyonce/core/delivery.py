"""Judge a target's answer to rows sent from the outbox, decide each row's next state, and group rows into requests.

Pure. There are five kinds of answer. For the data it matters whether the target may have the row. For *delivered* the
target has the row; for *not now* and *no* it does not. For *unknown* this is not known, so the row is sent again under
the same key, and the attempt is counted. For *invalid* the target rejects the row itself.

A request may have several rows. Its answer holds for each of them, except *no*: one bad row may have caused it.
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
"""The guarantee that a target of whole units promises; the conformance suite tests it."""
Verdict = Literal["delivered", "not now", "unknown", "no", "invalid"]
NOT_NOW = {408, 409, 425, 429}
"""The endpoint took nothing, and a later attempt may pass. 409: an earlier attempt of this key is still running."""
NOT_HERE = {401, 403, 404, 405, 407}
"""The endpoint refuses every sender, whatever the row: a wrong address or a wrong password makes no dead letter."""
LONGEST_ASKED_SECONDS = 3600.0
ANSWER_LENGTH = 500


class Unsent(Retryable):
    """The target was not reached, so certainly nothing was sent."""


@dataclass(frozen=True)
class Row:
    """A row of the outbox to be sent. `attempts` have begun before; `unanswered` of them got no answer."""

    row_no: int
    unit: str
    seq: int
    checkpoint_id: str
    key: str | None
    payload: str
    insert_id: str
    attempts: int
    unanswered: int = 0

    @property
    def queue(self) -> str | int:
        """Return the queue in which the row waits: its key's queue, or its own."""
        return self.row_no if self.key is None else self.key

    @property
    def idempotency_key(self) -> str:
        """Return the key of the row, from unit, row and the incarnation's own id, which other platforms do not
        share.
        """
        return stored_names.idempotency_key(self.unit, self.seq, self.checkpoint_id)


@dataclass(frozen=True)
class Answer:
    """The answer to a row.

    pause  the seconds that the target asks to wait
    held   not empty: this row is not to blame, so the attempt does not count. 'away' or 'wrong' names who must act;
           'apart': the row is sent again with fewer others
    """

    verdict: Verdict
    text: str
    pause: float = 0.0
    held: Literal["away", "wrong", "apart", ""] = ""

    @property
    def may_be_there(self) -> bool:
        """Return whether the target may have taken the row."""
        return self.verdict in ("delivered", "unknown")


def judge(status: int, body: str, headers: Mapping[str, str], now: datetime) -> Answer:
    """Return the answer of an HTTP endpoint to one row.

    An *unknown* answer is why a webhook may be called twice: the row is sent again under the same idempotency key. A
    row is sent again and again if the answer is that the address or the password is wrong (`NOT_HERE`, such as 404):
    these attempts are not counted, until the declaration or the password is corrected.
    """
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
    """Return the answer to each row of a request that had several."""
    blames_one_of_several = answer.verdict == "no" and rows > 1
    return [replace(answer, held="apart") if blames_one_of_several else answer] * rows


IN_OUTBOX = "nothing was sent; its rows wait in the outbox"


def told(answer: str) -> str:
    """Return the beginning of an answer on one line, for the log. PostgreSQL takes no NUL character."""
    return " ".join(answer.replace("\0", "").split())[:ANSWER_LENGTH]


def next_state(answer: Answer, attempts: int, most: int) -> str:
    """Return the state of a row after the answer to its attempt number `attempts`."""
    ends = {"delivered": "delivered", "no": "dead", "invalid": "invalid"}
    if answer.held or (answer.verdict not in ends and attempts < most):
        return "waiting"
    return ends.get(answer.verdict, "dead")


def asked_pause(retry_after: str, now: datetime) -> float:
    """Return the seconds of a Retry-After header, which is a number or a date; 0 if it is neither."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            at = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):
            return 0.0
        seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
    return min(max(seconds, 0.0), LONGEST_ASKED_SECONDS) if seconds == seconds else 0.0


# Rows that wait are put into requests, and rows of refused requests into smaller ones.
#
# A row waits in the queue of its key, behind earlier rows of the key; a row without a key has its own queue. Each time
# requests are made, all rows that are taken from one queue go into one request, in order. So rows of a key are never
# in two requests at once.
#
# One bad row must not block others. After each refusal of a request, and after each lost answer, its rows share a
# request with half as many others. So a bad row is alone in the end, and the others are delivered meanwhile.


@dataclass(frozen=True)
class Room:
    """The most rows and bytes that one request holds. A row of more bytes is sent alone."""

    rows: int
    bytes: int


@dataclass
class _Request:
    """A request that is being filled: at most `share` rows, and `bytes` more bytes."""

    share: int
    bytes: int
    rows: list[Row] = field(default_factory=list)

    def put(self, row: Row, size: int) -> bool:
        """Add a row if there is room, and return whether there was. The first row always fits."""
        if self.rows and (len(self.rows) == self.share or size > self.bytes):
            return False
        self.rows.append(row)
        self.bytes -= size
        return True


@dataclass
class Waiting:
    """The rows that may be sent, in their queues.

    room      what a request holds
    size      the bytes of a row in a request
    ordered   whether rows of a key wait behind a row that must be sent again
    attempts  how often a row is sent; in its last attempt a row with an unanswered attempt is alone
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
        """Add rows in their order, each with whether it may be sent now.

        If rows are ordered, the rows behind a row that may not be sent wait too.
        """
        closed: set[str | int] = set()
        for row, may in found:
            if not may:
                closed.add(row.queue)
            elif not (self.ordered and row.queue in closed):
                self._queues.setdefault(row.queue, deque()).append(row)

    def take(self, requests: int) -> list[list[Row]]:
        """Remove and return the rows of the next requests, at most `requests` of them.

        Rows share a request with rows that may have as many others with them.
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
        """Apply the answers to the rows of one request to the rows that wait.

        A row that was refused with others returns to the front of its queue. If rows are ordered, a row that is sent
        again later holds back its queue."""
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
        """Move the first rows of a queue into a request, as many as fit, and return whether any did."""
        before = len(request.rows)
        while queue and self._share(queue[0]) == request.share and request.put(queue[0], self.size(queue[0])):
            queue.popleft()
        return len(request.rows) > before

    def _share(self, row: Row) -> int:
        """Return how many rows a request with this row may have, the row included."""
        if row.unanswered and row.attempts + 1 >= self.attempts:
            return 1
        return max(1, self.room.rows >> (row.unanswered + self.refused.get(row.row_no, 0)))
