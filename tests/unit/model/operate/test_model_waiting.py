"""What waits for too long is a finding with the way out; what waits for a short time, or has somebody at work, is
none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from onlyonce.core.diagnosis import DAY, HOUR, Finding, waiting
from onlyonce.core.stuck import (
    GivenUpRows,
    LostLongRun,
    OpenSubscription,
    OutputDown,
    UndeliveredRows,
    WaitingFiles,
    Waits,
)

OF: dict[str, str] = {"pipeline": "shop", "instance": "shop", "output": "mail"}
ROWS: dict[str, Any] = {
    "long_runs": LostLongRun("shop", "shop", 3, "m:1:a", "r", 121.0),
    "down": OutputDown(**OF, why="it is refused"),
    "files": WaitingFiles(**OF, files=8, place="shop/mail", waiting_seconds=HOUR + 1),
    "given_up": GivenUpRows(**OF, state="dead", rows=2, unanswered=0, answer="422 no"),
    "undelivered": UndeliveredRows(**OF, rows=5, quiet_seconds=HOUR + 1, at_work=False),
    "subscriptions": OpenSubscription(
        "shop", "projects/p/subscriptions/s", 7, datetime(2026, 3, 8, 12, tzinfo=UTC), DAY + 1
    ),
}
KINDS = {
    "long_runs": "lost long run", "down": "output stands still", "files": "files without final names", "given_up": "dead letters",
    "undelivered": "undelivered rows", "subscriptions": "held catalog",
}  # fmt: skip


def found(part: str, declared: frozenset[str] = frozenset({"shop"}), drivers: frozenset[str] = frozenset(), **changed: Any) -> list[Finding]:  # fmt: skip
    """The findings of one row, changed."""
    return list(waiting(Waits(**{part: [replace(ROWS[part], **changed)]}), declared, drivers, 120.0))


def test_each_is_one_finding_of_its_own_in_full() -> None:
    """With what it means for the data; nothing that waits is lost."""
    all_of_it = list(waiting(Waits(**{part: [row] for part, row in ROWS.items()}), {"shop"}, set(), 120.0))

    assert [one.kind for one in all_of_it] == list(KINDS.values())
    assert all(all(one.row().values()) for one in all_of_it)
    assert list(waiting(Waits(), {"shop"}, set(), 120.0)) == []


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("long_runs", {"quiet_seconds": 119.0}), ("files", {"waiting_seconds": HOUR}),
        ("undelivered", {"quiet_seconds": HOUR}), ("undelivered", {"at_work": True}),
        ("subscriptions", {"held_seconds": DAY}),
    ],
)  # fmt: skip
def test_what_waits_for_a_short_time_or_is_at_work_is_no_finding(part: str, changed: dict[str, Any]) -> None:
    """The task or the schedule that comes for it may just be late."""
    assert [one.kind for one in found(part)] == [KINDS[part]]
    assert found(part, **changed) == []


def test_a_driver_at_work_stands_for_its_own_instance_alone() -> None:
    """It takes in what comes."""
    assert found("long_runs", drivers=frozenset({"shop"})) == []
    assert found("long_runs", drivers=frozenset({"other"})) != []


@pytest.mark.parametrize(
    ("part", "by_fix"),
    [("long_runs", "no"), ("files", "yes"), ("given_up", "no"), ("undelivered", "with --yes"), ("subscriptions", "no")],
)
def test_who_may_repair_it(part: str, by_fix: str) -> None:
    """A rename by `--fix`; what is seen outside with `--yes`; a driver without end and a lost cause by a person."""
    assert [one.row()["fix"] for one in found(part)] == [by_fix]


@pytest.mark.parametrize("part", ["long_runs", "given_up", "undelivered", "subscriptions"])
def test_of_a_pipeline_that_is_not_declared_the_command_needs_the_declaration_first(part: str) -> None:
    """It would be refused; nothing does it by itself. Files get their names by the log alone."""
    [one] = found(part, declared=frozenset())

    assert one.repair.command.startswith("declare shop again (ONLYONCE_PIPELINES), then: ")
    assert one.repair.by == "person"
    assert found("files", declared=frozenset())[0].repair.by == "finalize"


def test_of_a_bounded_run_the_run_is_named_for_its_rows_and_the_pipeline_for_its_files() -> None:
    """As the commands take them."""
    [letters] = found("given_up", instance="shop@1")
    [files] = found("files", instance="shop@1")

    assert letters.repair.command.endswith("onlyonce deliver shop@1 --output mail --retry-dead")
    assert files.repair.command == "onlyonce finalize shop"


def test_rows_that_may_have_arrived_are_counted_apart() -> None:
    """Dead letters whose answer was lost."""
    assert "3 of them had an attempt without an answer" in found("given_up", unanswered=3)[0].data
    assert "without an answer" not in found("given_up")[0].data
