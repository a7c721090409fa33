"""The conformance suite over every sink that needs no JVM and no broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onlyonce.testing.scratch import Processes
from onlyonce.testing.suite import (
    CASES,
    ODD_NAMES,
    Case,
    UnderTest,
    a_kill_at_any_point_does_not_show,
    a_unit_written_twice_is_there_once,
    odd_names_mean_only_themselves,
)
from tests.contract.conformance_sent import (
    ToBigQuery,
    ToDiary,
    ToForgetfulWebhook,
    ToLedger,
    ToWebhook,
    ToWebhookInBatches,
)
from tests.contract.conformance_sinks import (
    PostgresAppend,
    PostgresIncrement,
    PostgresNewest,
    PostgresPlain,
    PostgresUpsert,
    Shards,
    ShardsPlain,
)
from tests.contract.conftest import Log
from tests.support import added_package

SINKS: list[Callable[..., UnderTest]] = [PostgresAppend, Shards, ToLedger]
VARIANTS: list[Callable[..., UnderTest]] = [
    PostgresUpsert, PostgresNewest, PostgresIncrement, PostgresPlain, ShardsPlain, ToForgetfulWebhook, ToWebhookInBatches, ToBigQuery, ToDiary,
]  # fmt: skip
"""Other modes of the same code: their suite is slow in sum."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize(
    "sink",
    [
        *SINKS,
        pytest.param(ToWebhook, marks=pytest.mark.whole),
        *(pytest.param(sink, marks=pytest.mark.slow) for sink in VARIANTS),
    ],
    ids=lambda sink: sink.__name__,
)
def test_a_sink_does_what_it_promises(sink: Callable[..., UnderTest], case: Case, shared: Log, tmp_path: Path) -> None:
    """Every sink, in every mode that it has, in every case, by the guarantee that it declares."""
    under_test = sink(shared, ODD_NAMES[0] if case is odd_names_mean_only_themselves else "text")
    try:
        case(under_test, Processes(shared, tmp_path))
    finally:
        under_test.close()


class ToAdded(ToLedger):
    """The sink of a package that is not of this repository, by its name."""

    target_class = "ledger"


@pytest.mark.parametrize(
    "case", [a_unit_written_twice_is_there_once, a_kill_at_any_point_does_not_show], ids=lambda case: case.__name__
)
def test_a_package_adds_a_sink_by_its_entry_point_and_nothing_else(
    case: Case, shared: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a module and a row of this table; no file of the platform is touched."""
    added_package.install(tmp_path / "site", monkeypatch)
    under_test = ToAdded(shared)
    try:
        case(under_test, Processes(shared, tmp_path))
    finally:
        under_test.close()
