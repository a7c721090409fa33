"""The one of many that fails by itself is found by halves, in few looks."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onlyonce.core.bisect import fails_alone


@example(set(), 1)
@given(st.sets(st.integers(0, 40)), st.integers(0, 41))
def test_the_first_record_that_fails_by_itself_is_found_and_else_none(bad: set[int], count: int) -> None:
    """By halves, whatever others fail too."""
    found = fails_alone(count, lambda first, stop: any(first <= at < stop for at in bad))

    assert found == min((at for at in bad if at < count), default=None)


@pytest.mark.parametrize("count", [2, 3, 100])
def test_of_records_that_fail_only_together_none_is_blamed(count: int) -> None:
    """Too much at once is no record's fault."""
    assert fails_alone(count, lambda first, stop: stop - first >= count) is None


@given(st.integers(1, 1000), st.data())
def test_each_is_tried_about_once(count: int, data: st.DataObject) -> None:
    """Whoever it is: a look at a half costs what the half costs."""
    bad, tried = data.draw(st.integers(0, count - 1)), []

    def fails(first: int, stop: int) -> bool:
        tried.append(stop - first)
        return first <= bad < stop

    assert fails_alone(count, fails) == bad
    assert sum(tried) <= count + 1
    assert len(tried) <= count.bit_length() + 1


@pytest.mark.parametrize("looks", range(5))
def test_a_look_that_must_end_blames_none(looks: int) -> None:
    """However far it has come; no half is tried after that."""
    tried: list[int] = []

    def fails(first: int, stop: int) -> bool:
        tried.append(stop - first)
        return first <= 5 < stop

    assert fails_alone(16, fails, lambda: len(tried) < looks) is None
    assert len(tried) == looks
