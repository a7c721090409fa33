"""The worker's cache: within its budget, least recently used first, against a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onlyonce.catalog.worker_cache import Cache

steps = st.lists(
    st.tuples(st.sampled_from(["get", "put", "spare"]), st.integers(0, 5), st.integers(0, 12)), max_size=60
)


@given(steps, st.integers(0, 25))
def test_it_holds_what_was_used_last(of: list[tuple[str, int, int]], budget: int) -> None:
    """As many of the last used as the budget holds, the spare ones gone before any other, and the last other one put in
    any case."""
    cache = Cache(budget)
    used: dict[int, tuple[int, bool]] = {}  # a dict keeps the order of insertion: the last used is the last
    for step, name, size in of:
        if step == "get":
            assert cache.get(name) == used.get(name, (None,))[0]
            if name in used:
                used[name] = used.pop(name)
            continue
        cache.put(name, size, size, spare=step == "spare")
        used.pop(name, None)
        used[name] = (size, step == "spare")
        while sum(size for size, _ in used.values()) > budget:
            goes = [name for name, (_, spare) in used.items() if spare] or list(used)[:-1]
            if not goes:
                break
            del used[goes[0]]

    assert {name: cache.get(name) for name in range(6)} == {name: used.get(name, (None,))[0] for name in range(6)}
    cache.clear()
    assert cache.get(0) is None


def test_a_look_through_much_leaves_what_is_not_spare() -> None:
    """However much passes by."""
    cache = Cache(100)
    cache.put("filter", 1, 40)
    for number in range(50):
        cache.put(number, number, 30, spare=True)

    assert cache.get("filter") == 1
    assert [number for number in range(50) if cache.get(number) is not None] == [48, 49]
