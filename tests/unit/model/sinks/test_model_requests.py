"""Rows in requests: once, in the order of their keys, and the bad ones alone in the end."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from onlyonce.core.delivery import Room, Row, Waiting, judge, of_each

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEYS = st.sampled_from([None, "a", "b", "c"])


def waiting(rows: list[Row], room: Room, *, ordered: bool = True, attempts: int = 12) -> Waiting:
    """All of these rows, each of which may go."""
    made = Waiting(room, lambda row: len(row.payload), ordered, attempts)
    made.add((row, True) for row in rows)
    return made


def some(of_key: list[str | None], payload: str = "{}", unanswered: int = 0) -> list[Row]:
    """Rows of these keys, in this order."""
    return [Row(n, "unit", n, "incarnation", key, payload, "", unanswered, unanswered) for n, key in enumerate(of_key)]


@st.composite
def rows_(draw: st.DrawFn) -> list[Row]:
    """Rows of few keys and of none, of some bytes, some of which were sent before."""
    number = draw(st.integers(1, 40))
    lost = [draw(st.integers(0, 4)) for _ in range(number)]
    return [
        Row(n, "unit", n, "incarnation", draw(KEYS), "x" * draw(st.integers(1, 9)), "", lost[n], lost[n])
        for n in range(number)
    ]


@given(rows_(), st.integers(1, 12), st.integers(1, 30), st.integers(1, 5))
def test_each_row_is_in_one_request_and_no_two_at_once_have_its_key(
    rows: list[Row], most: int, size: int, at_once: int
) -> None:
    """Over any rows and rooms: within the room, or alone; what is taken of a key is in its order."""
    there, taken = waiting(rows, Room(most, size)), []
    while there:
        wave = there.take(at_once)
        assert 0 < len(wave) <= at_once
        for request in wave:
            assert len(request) <= most
            assert len(request) == 1 or sum(len(row.payload) for row in request) <= size
        queues = [queue for request in wave for queue in {row.queue for row in request}]
        assert len(queues) == len(set(queues))
        taken += [row for request in wave for row in request]

    assert Counter(taken) == Counter(rows)
    for key in {row.queue for row in rows}:
        assert [row for row in taken if row.queue == key] == [row for row in rows if row.queue == key]


@given(rows_(), st.integers(1, 12), st.sets(st.integers(0, 39)))
def test_a_row_is_refused_alone_and_the_others_are_delivered(rows: list[Row], most: int, bad: set[int]) -> None:
    """An endpoint refuses each request with a bad row in it: each row gets an answer of its own, in the order of its
    key."""
    there, answered, requests = waiting(rows, Room(most, 1000)), [], 0
    while there:
        for request in there.take(3):
            requests += 1
            status = 422 if any(row.row_no in bad for row in request) else 200
            answers = of_each(judge(status, "", {}, NOW), len(request))
            there.answered(request, answers)
            answered += [(row, answer.verdict) for row, answer in zip(request, answers, strict=True) if not answer.held]

    assert Counter(answered) == Counter((row, "no" if row.row_no in bad else "delivered") for row in rows)
    for key in {row.queue for row in rows}:
        assert [row for row, _ in answered if row.queue == key] == [row for row in rows if row.queue == key]
    assert not there.refused


def test_behind_a_row_that_is_sent_again_later_none_of_its_key_goes() -> None:
    """Where rows are in order; others go on."""
    rows = some(["a", "b", "a", "b", "a"])
    for ordered in (True, False):
        there = waiting(rows, Room(2, 1000), ordered=ordered)
        first, second = there.take(2)
        there.answered(first, of_each(judge(503, "", {}, NOW), 2))
        there.answered(second, of_each(judge(200, "", {}, NOW), 2))
        assert [row.row_no for row in first + second] == [0, 2, 1, 3]
        assert [[row.row_no for row in request] for request in there.take(9)] == ([] if ordered else [[4]])


def test_a_row_that_may_not_go_holds_those_behind_it() -> None:
    """Where rows are in order."""
    rows, may = some(["a", "b", "a", None]), [False, True, True, True]
    for ordered, gone in ((True, [1, 3]), (False, [1, 2, 3])):
        there = Waiting(Room(9, 1000), lambda _row: 1, ordered, 12)
        there.add(zip(rows, may, strict=True))
        assert sorted(row.row_no for request in there.take(9) for row in request) == gone


def test_an_answer_that_was_lost_halves_the_company_and_the_last_attempt_is_alone() -> None:
    """So a row at which an endpoint breaks does not take others with it."""
    shares = [len(waiting(some([None] * 64, unanswered=lost), Room(64, 1000)).take(1)[0]) for lost in (0, 1, 2, 6, 9)]

    assert shares == [64, 32, 16, 1, 1]
    assert len(waiting(some([None] * 64, unanswered=1), Room(64, 1000), attempts=2).take(1)[0]) == 1
    assert len(waiting(some([None] * 64), Room(64, 1000), attempts=1).take(1)[0]) == 64
