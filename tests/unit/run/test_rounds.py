"""The polls of a continuous run, which see what each of its queries has done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onlyonce.receive import loop
from onlyonce.run import queries


def in_its_session() -> Any:
    """A streaming query in a session of its own, as with data in a store. It has ended a batch, and has another one."""
    return SimpleNamespace(
        isActive=True,
        status={"isTriggerActive": True, "isDataAvailable": True, "message": "Processing new data"},
        _jsq=SimpleNamespace(lastProgress=lambda: SimpleNamespace(batchId=lambda: 0)),
    )


def test_an_output_in_another_session_counts_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is up again once it has ended a batch, and the round is done."""
    for step in ("register", "idle", "close"):
        monkeypatch.setattr(loop, step, lambda *_, **__: None)
    monkeypatch.setattr(loop, "something_waits", lambda _: False)
    names = {name: f"shop/{name}/1" for name in ("receive", "per_shop")}
    context: Any = SimpleNamespace(
        spark=SimpleNamespace(streams=SimpleNamespace(active=[])),
        running={incarnation: in_its_session() for incarnation in names.values()},
        incarnations=lambda: names,
    )
    down = queries.Down(["per_shop"], lambda _: None)
    down.found["per_shop"] = ValueError("a table that was unreachable")

    assert queries._Looks(context, down).look()
    assert down.found == {}
