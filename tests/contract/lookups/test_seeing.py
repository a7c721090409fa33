"""A query does not begin a batch with a version that may have been collected since it was started."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from onlyonce.lookups import tables
from onlyonce.outputs import lookups
from onlyonce.outputs.events import Again


@pytest.mark.parametrize(("waited", "again"), [(timedelta(minutes=59), False), (timedelta(minutes=61), True)])
def test_a_first_batch_long_after_the_start_sees_what_is_there_then(
    monkeypatch: pytest.MonkeyPatch, waited: timedelta, again: bool
) -> None:
    """No batch row has named the version since the start; soon after the start it need not."""
    clock = [0.0]
    monkeypatch.setattr(lookups, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(tables, "newest", lambda *_: {"cities": {"version": 2}})
    context: Any = SimpleNamespace(
        pipeline=SimpleNamespace(lookups=lambda _: {"cities": None}),
        seen=SimpleNamespace(versions={"cities": {"version": 1}}),
    )
    begun: list[int] = []
    root: Any = None
    frame: Any = None
    work = lookups.watched_lookups(context, root, lambda _, batch_id: begun.append(batch_id))
    clock[0] += waited.total_seconds()
    if again:
        with pytest.raises(Again):
            work(frame, 0)
    else:
        work(frame, 0)
    assert begun == ([] if again else [0])
