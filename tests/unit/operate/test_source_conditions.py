"""Which lines of several sources an erasure means."""

from __future__ import annotations

import pytest

from onlyonce.core import erasure
from onlyonce.operate import erase_inputs
from tests.support import two_sources

KINDS = {"id": "string", "place": "string", "cents": "bigint"}


@pytest.mark.parametrize("where, till", [
    ("id = 'one'", {"receipt": "one"}),
    ("id = 'one' AND place = 'till'", {"receipt": "one"}),
    ("id = 'one' AND place = 'web'", None),
    ("id = 'one' AND cents = 400", "cents"),
])  # fmt: skip
def test_condition_on_each_source(where: str, till: object) -> None:
    """A column under another name is known, a constant decides, and a computed column can't be searched."""
    condition = erasure.read_conditions(where, KINDS)

    web, other = erase_inputs.source_conditions(two_sources.pipeline(), condition)

    assert web.condition is not None
    assert web.condition.values == condition.values
    assert (other.computed or (other.condition and other.condition.values)) == till
