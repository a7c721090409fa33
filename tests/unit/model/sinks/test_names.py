"""The names that are derived from a table's declared name. Pure."""

from __future__ import annotations

import pytest

from onlyonce.core.ownership import FOLDER, MYSQL, POSTGRES, Names


@pytest.mark.parametrize("names", [POSTGRES, MYSQL, FOLDER])
@pytest.mark.parametrize("letter", ["x", "é", "𠮷"])
def test_no_two_derived_names_are_one(names: Names, letter: str) -> None:
    """Of tables of all lengths up to the longest, and of many bounded runs of each. A name that fits stays as it is."""
    seen: dict[str, tuple[str, ...]] = {}
    longest = names.most // names.size(letter)
    for length in range(max(1, longest - 20), longest + 1):
        for suffix in ("", "@1", "@2", "@1000"):
            table = names.table(letter * length, suffix)
            for made, what in (
                (table, "table"),
                (names.deleted(table), "deleted"),
                (names.window_sums(table), "by window"),
            ):
                assert names.size(made) <= names.most
                assert seen.setdefault(made, (table, what)) == (table, what)
    assert len(seen) == 3 * 4 * (longest - max(1, longest - 20) + 1)
    assert names.deleted("orders") == "orders_deleted"
    assert names.table(letter * longest) == letter * longest
