"""The conformance suite fails the sinks that are wrong, and passes the small one that is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.testing import suite
from onlyonce.testing.scratch import Processes
from onlyonce.testing.suite import CASES, Case
from tests.contract import conformance_broken
from tests.contract.conformance_broken import Right
from tests.contract.conftest import Log

CAUGHT: list[tuple[type[Right], Case]] = [
    (conformance_broken.ChecksThenWrites, suite.of_twins_one_writes),
    (conformance_broken.ChecksThenWrites, suite.a_zombie_changes_nothing),
    (conformance_broken.ForgetsTheClaim, suite.a_unit_written_twice_is_there_once),
    (conformance_broken.ForgetsTheClaim, suite.a_kill_at_any_point_does_not_show),
    (conformance_broken.ForgetsTheClaim, suite.a_lost_answer_does_not_show),
    (conformance_broken.WritesBeforeItClaims, suite.a_kill_at_any_point_does_not_show),
    (conformance_broken.ClaimsBeforeItWrites, suite.a_kill_at_any_point_does_not_show),
    (conformance_broken.SwallowsErrors, suite.a_broken_target_is_loud_and_loses_nothing),
    (conformance_broken.KnowsNoEpoch, suite.a_fenced_driver_writes_nothing),
    (conformance_broken.ComparesNothing, suite.a_replay_of_other_rows_is_stopped),
    (conformance_broken.ComparesNothing, suite.a_late_record_makes_no_second_version),
    (conformance_broken.NamesUnitsByTask, suite.another_cut_of_the_rows_is_the_same_unit),
    (conformance_broken.PastesValues, suite.odd_signs_mean_only_themselves),
]


@pytest.fixture
def processes(shared: Log, tmp_path: Path) -> Processes:
    """Of this test."""
    return Processes(shared, tmp_path)


@pytest.mark.parametrize(("sink", "case"), CAUGHT, ids=lambda one: one.__name__)
def test_the_suite_fails_a_broken_sink(sink: type[Right], case: Case, shared: Log, processes: Processes) -> None:
    """Each by a case that is about its mistake; an AssertionError of the suite, and no accident."""
    with pytest.raises(AssertionError):
        case(sink(shared), processes)


@pytest.mark.parametrize("case", dict.fromkeys(case for _, case in CAUGHT), ids=lambda case: case.__name__)
def test_the_suite_passes_the_small_sink_that_is_right(case: Case, shared: Log, processes: Processes) -> None:
    """The same cases: so it is the mistake that fails the others, and not the way in which they are written."""
    case(Right(shared), processes)


def test_every_broken_sink_is_in_the_table() -> None:
    """One that is kept and not tried would prove nothing."""
    kept = {kind for kind in vars(conformance_broken).values() if isinstance(kind, type) and issubclass(kind, Right)}
    assert kept - {Right} == {sink for sink, _ in CAUGHT}
    assert {case for _, case in CAUGHT} <= set(CASES)
