"""The conformance suite over the Iceberg sink, in a SQL catalog on the real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.testing import suite
from onlyonce.testing.scratch import Processes
from onlyonce.testing.suite import CASES, ODD_NAMES, Case, odd_names_mean_only_themselves
from tests.contract.conformance_iceberg import (
    AsksSnapshotsOnly,
    IcebergAppend,
    IcebergExpiring,
    IcebergPlain,
    LeavesItToPyiceberg,
)
from tests.contract.conftest import Log

QUICK = {
    suite.a_kill_at_any_point_does_not_show, suite.a_lost_answer_does_not_show, suite.a_zombie_changes_nothing,
    suite.a_replay_of_other_rows_is_stopped, suite.of_twins_one_writes,
}  # fmt: skip


@pytest.mark.parametrize(
    ("sink", "case"),
    [
        pytest.param(sink, case, id=f"{sink.__name__}-{case.__name__}",
                     marks=pytest.mark.slow if sink is IcebergPlain else () if case in QUICK else pytest.mark.whole)
        for sink in (IcebergAppend, IcebergPlain)
        for case in CASES
    ],
)  # fmt: skip
def test_an_iceberg_sink_does_what_it_promises(
    sink: type[IcebergAppend], case: Case, shared: Log, tmp_path: Path
) -> None:
    """In both modes, in every case, by the guarantee that it declares."""
    under_test = sink(shared, ODD_NAMES[0] if case is odd_names_mean_only_themselves else "text")
    try:
        case(under_test, Processes(shared, tmp_path))
    finally:
        under_test.close()


@pytest.mark.parametrize(
    ("sink", "case"),
    [(LeavesItToPyiceberg, suite.of_twins_one_writes), (AsksSnapshotsOnly, suite.a_unit_written_twice_is_there_once)],
    ids=lambda one: one.__name__,
)
def test_the_suite_fails_an_iceberg_sink_that_is_broken(
    sink: type[IcebergAppend], case: Case, shared: Log, tmp_path: Path
) -> None:
    """Each by a case that is about its mistake."""
    under_test = sink(shared)
    try:
        with pytest.raises(AssertionError):
            case(under_test, Processes(shared, tmp_path))
    finally:
        under_test.close()


def test_a_batch_is_there_once_though_all_snapshots_that_told_of_it_expire(shared: Log, tmp_path: Path) -> None:
    """The same case, of the sink that asks the property."""
    under_test = IcebergExpiring(shared)
    try:
        suite.a_unit_written_twice_is_there_once(under_test, Processes(shared, tmp_path))
    finally:
        under_test.close()
