"""Puts the rows that wait into requests, and what was refused in company back into smaller ones. Pure.

A row waits in the queue of its key, behind the rows that come before it; one without a key has a queue of its own. Each
time requests are made, all that is taken from a queue goes into one of them, in its order. So rows of a key are never
in two requests at once, however many rows share one.

One bad row must not take others with it. With each refusal of a request, and with each answer that was lost, its rows
share one with half as many; so a bad row is alone in the end, and the others are delivered meanwhile.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from onlyonce.model.sinks.delivery import Answer, Row


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
