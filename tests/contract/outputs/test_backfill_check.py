"""What is asked of the log before a backfill's Spark starts."""

from __future__ import annotations

import pytest

from onlyonce.api import load as declarations
from onlyonce.asked import moment
from onlyonce.core.backfill import Span
from onlyonce.core.errors import OnlyonceError, Refused, Retryable
from onlyonce.database import connect
from onlyonce.outputs import backfill
from tests.contract.conftest import Log


def test_an_open_window_is_told_at_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of the database, so nobody is kept waiting by the patience for one that is away."""
    asked_again: list[object] = []
    monkeypatch.setattr(connect, "_say_again", asked_again.append)
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", "2")
    pipeline = declarations.load()["user_counts"]
    span = Span.of(moment("2024-01-01"), moment("2024-01-02"))
    with pytest.raises(Retryable, match="none is closed"):
        backfill.check(log.database, pipeline, pipeline.output("per_user"), span)
    assert asked_again == []


@pytest.mark.parametrize(
    "year, kind, what", [("2100", Refused, "begin after now"), ("2024", Retryable, "none is closed")]
)
def test_windows_that_begin_after_now_are_refused_for_good(
    log: Log, monkeypatch: pytest.MonkeyPatch, year: str, kind: type[OnlyonceError], what: str
) -> None:
    """By the command; windows of the past may close with the next run."""
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    with pytest.raises(kind, match=what) as told:
        backfill.main(["user_counts", "--output", "per_user", "--from", f"{year}-01-01", "--to", f"{year}-01-02"])
    assert "user_counts" in str(told.value)
