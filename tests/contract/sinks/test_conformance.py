"""The conformance suite over every sink that needs no JVM and no broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onlyonce.testing.scratch import Processes
from onlyonce.testing.suite import CASES, ODD_NAMES, Case, UnderTest, odd_names_mean_only_themselves
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
