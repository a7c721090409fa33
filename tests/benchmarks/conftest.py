"""What the benchmarks share with the contract tests."""

from __future__ import annotations

from tests.contract.conftest import log, new_log

__all__ = ["log", "new_log"]
