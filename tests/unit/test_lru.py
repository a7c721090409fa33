"""The worker's cache: within its budget, least recently used first, against a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.spark.lru import Cache

steps = st.lists(st.tuples(st.sampled_from(["get", "put"]), st.integers(0, 5), st.integers(0, 12)), max_size=60)


@given(steps, st.integers(0, 25))
def test_it_holds_what_was_used_last(of: list[tuple[str, int, int]], budget: int) -> None:
    """As many of the last used as the budget holds, and the last one put in any case."""
    cache = Cache(budget)
    used: dict[int, int] = {}
    for step, name, size in of:
        if step == "get":
            assert cache.get(name) == used.get(name)
        if step == "put":
            cache.put(name, size, size)
        if step == "put" or name in used:
            before = used.pop(name, size)  # a dict keeps the order of insertion: the last used is the last
            used[name] = size if step == "put" else before
        while sum(used.values()) > budget and len(used) > 1:
            del used[next(iter(used))]

    assert {name: cache.get(name) for name in range(6)} == {name: used.get(name) for name in range(6)}
    cache.clear()
    assert cache.get(0) is None
