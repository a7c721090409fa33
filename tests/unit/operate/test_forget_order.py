"""The order in which an erasure computes outputs again."""

from __future__ import annotations

from argparse import Namespace
from datetime import timedelta
from typing import Any

import pytest

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.commitlog.erasures import Erasure
from onlyonce.core.windows import Fixed
from onlyonce.database.connect import Database
from onlyonce.engine import session
from onlyonce.operate import forget
from onlyonce.outputs import backfill_windows


def test_an_output_comes_after_the_one_whose_windows_it_is_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads what the backfill of that one has put into them: by name it would come first."""
    outputs = (
        Output(name="per_hour", transform="m:f", window=Fixed(timedelta(hours=1)), sink=Delta()),
        Output(name="per_day", transform="m:g", from_output="per_hour", window=Fixed(timedelta(days=1)), sink=Delta()),
    )
    pipeline = Pipeline(
        name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=outputs
    )
    day = (0, 86_400_000_000)
    computed: list[str] = []
    monkeypatch.setattr(session, "start", lambda *_: None)
    monkeypatch.setattr(backfill_windows, "backfill", lambda _context, output, _span: computed.append(output.name))
    erasure = Erasure(1, 1, {"per_day": [day], "per_hour": [day]}, 0)
    asked: Any = Namespace(master=None, run_id="run", leave=[])

    assert forget._compute_again(Database("postgresql://a@b/c"), pipeline, erasure, asked) == []
    assert computed == ["per_hour", "per_day"]
