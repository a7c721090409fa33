"""Judges a target's answer to a row that was sent from the outbox, and decides the row's next state. Pure.

There are five kinds of answer. What matters for the data is whether the target may have the row. *delivered*: it has
it. *not now* and *no*: it does not have it. *unknown*: nobody can tell, so the row is sent again under the same key,
and that is counted.

A request may have several rows. Its answer is that of each, but for *no*: which of them it means nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from onlyonce.model import stored_names
from onlyonce.model.errors import Retryable

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
