"""The ledger of faulted runs: what it adds up, and what of an earlier session stays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.fault import ledger
from tests.fault.holes import HOLES
from tests.support.platform import ROOT


def note(suite: str, point: str, lost: int = 0, doubled: int = 0) -> ledger.Entry:
    """A faulted run."""
    return {"suite": suite, "point": point, "occurrence": 1, "seed": None, "lost": lost, "doubled": doubled}


def test_totals_are_the_sums_over_all_points() -> None:
    """Runs, lost and doubled of every suite."""
    notes = [note("a", "x"), note("a", "x", lost=2), note("a", "y", doubled=3), note("b", "x")]

    results = ledger.merged({}, notes)

    totals = {name: results[name] for name in ("runs", "lost", "doubled")}
    assert totals == {"runs": 4, "lost": 2, "doubled": 3}
    assert results["suites"]["a"] == {
        "x": {"runs": 2, "lost": 2, "doubled": 0}, "y": {"runs": 1, "lost": 0, "doubled": 3},
    }  # fmt: skip


def test_a_later_session_replaces_what_it_ran_again_and_keeps_the_rest() -> None:
    """By suite and point."""
    first = ledger.merged({}, [note("a", "x", lost=1), note("a", "y")])

    second = ledger.merged(first, [note("a", "x")])

    assert (second["runs"], second["lost"]) == (2, 0)


def test_states_of_models_add_up_and_stay_until_they_are_explored_again() -> None:
    """By the model's name."""
    first = ledger.merged({}, [{"model": "a", "states": 3}, {"model": "b", "states": 4}])

    second = ledger.merged(first, [{"model": "a", "states": 5}])

    assert (first["model_states"], second["model_states"]) == (7, 9)
    assert second["states_by_model"] == {"a": 5, "b": 4}


def test_loss_and_doubling_do_not_cancel_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One row lost and another doubled: equal counts, and both are told."""
    monkeypatch.setenv(ledger.VARIABLE, str(tmp_path / "results.json"))

    found = ledger.compared("a", "x", 1, [(Counter("ab"), Counter("bb"))])

    assert found == (1, 1)
    assert '"lost": 1, "doubled": 1' in (tmp_path / "results.notes").read_text()


def test_nothing_is_noted_unless_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A plain test run leaves no file."""
    monkeypatch.delenv(ledger.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)

    ledger.record("a", "x", lost=0, doubled=0)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", HOLES)
def test_each_hole_has_tests_that_are_there(number: str) -> None:
    """By file, or by file and name."""
    assert HOLES[number]
    for test in HOLES[number]:
        path, _, name = test.partition("::")
        assert f"def {name.split('[')[0] or 'test_'}" in (ROOT / path).read_text()
