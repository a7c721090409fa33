"""For users' own tests: their pipelines without a platform, the suites for a source or sink of their own, and the crash
test.

    from onlyonce.testing import run, then

It imports no Spark: a name is loaded at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onlyonce.testing.given import Backfill, Batch, Close, Pane, Result, backfill, ended, rows_at, silent, then
    from onlyonce.testing.running import NotTheSame, holds, run

__all__ = [
    "Backfill",
    "Batch",
    "Close",
    "NotTheSame",
    "Pane",
    "Result",
    "backfill",
    "ended",
    "holds",
    "rows_at",
    "run",
    "silent",
    "then",
]

_PLACES = {
    "Backfill": "given",
    "Batch": "given",
    "Close": "given",
    "backfill": "given",
    "ended": "given",
    "rows_at": "given",
    "silent": "given",
    "then": "given",
    "Pane": "given",
    "Result": "given",
    "run": "running",
    "holds": "running",
    "NotTheSame": "running",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"onlyonce.testing.{_PLACES[name]}"), name)
