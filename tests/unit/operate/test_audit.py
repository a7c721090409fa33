"""The audit's judgement over made-up answers of the views: what it names, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.core.errors import InvariantBroken
from onlyonce.core.runs import Report
from onlyonce.core.windows import Sliding
from onlyonce.operate import audit
from onlyonce.operate.audit import BegunWork, Evidence, FilesWaiting, Heartbeats, NotConserved, OutputAndReceive

SHOP = Pipeline(
    name="shop",
    source=Files(),
    schema="id string, at timestamp",
    record_id=("id",),
    event_time="at",
    outputs=(
        Output(name="totals", transform="shop:totals", sink=Delta()),
        Output(
            name="trend",
            transform="shop:trend",
            sink=Delta(),
            window=Sliding(timedelta(hours=2), timedelta(hours=1)),
        ),
    ),
)


def heartbeats(quiet_minutes: float = 0, **changed: Any) -> Heartbeats:
    known = Heartbeats("shop", "shop", quiet_minutes * 60, closed=False, received=3, outputs=["totals", "trend"])
    return replace(known, **changed)


def output(name: str = "totals", **changed: Any) -> OutputAndReceive:
    known = OutputAndReceive(
        "shop", "shop", name, f"shop/{name}/1", 1, "live", 9, from_kept=False, pairs=30, declarations=1,
        batches_behind=0, records_behind=0, kept_read=30,
    )  # fmt: skip
    return replace(known, **changed)


def begun() -> BegunWork:
    return BegunWork("shop", "shop/receive/1", 3, 2, "r1", datetime(2026, 1, 1, tzinfo=UTC))


def found(grace: int = 15, **seen: list[Any]) -> list[str]:
    return list(audit.findings(Evidence(**seen), {"shop": SHOP}, grace))


def test_a_log_that_agrees_has_no_findings() -> None:
    outputs = [output(), output("trend", pairs=60)]

    assert found(outputs_and_receive=outputs, heartbeats=[heartbeats(quiet_minutes=600)]) == []


def test_a_batch_that_does_not_add_up_is_named_at_once() -> None:
    bad = NotConserved(10, "shop", "receive", "shop/receive/1", 2, 7, 1, 0, 0, None, None, None, "r1")

    [line] = found(not_conserved=[bad], heartbeats=[heartbeats(quiet_minutes=0)])

    assert line == (
        "shop/receive/1/2 does not add up (in 10, kept 7, duplicate 1, invalid 0, expired 0): onlyonce.conservation"
    )


def test_a_begun_batch_counts_only_when_its_pipeline_is_at_rest() -> None:
    assert found(begun_batches=[begun()], heartbeats=[heartbeats(quiet_minutes=14)]) == []

    [line] = found(begun_batches=[begun()], heartbeats=[heartbeats(quiet_minutes=15)])

    assert line.startswith("shop/receive/1/3 began at 2026-01-01 00:00:00Z and is not committed (run r1)")


def test_without_grace_everything_unfinished_counts() -> None:
    behind = output(batches_behind=2, records_behind=20)

    lines = found(0, begun_batches=[begun()], outputs_and_receive=[behind], heartbeats=[heartbeats()])

    assert len(lines) == 2


def test_an_output_that_lags_is_named_with_what_it_lacks() -> None:
    behind = output(batches_behind=2, records_behind=20)

    assert found(outputs_and_receive=[behind], heartbeats=[heartbeats(quiet_minutes=1)]) == []
    [line] = found(outputs_and_receive=[behind], heartbeats=[heartbeats(quiet_minutes=60)])
    assert "output totals has not read 2 receive batches (20 records)" in line


def test_an_output_that_was_taken_out_of_the_declaration_owes_nothing() -> None:
    """Only an output of a pipeline that is declared elsewhere is still named."""
    removed = output("old", batches_behind=2)

    assert found(outputs_and_receive=[removed], heartbeats=[heartbeats(quiet_minutes=60)]) == []
    elsewhere = replace(removed, pipeline="mill")
    assert len(found(outputs_and_receive=[elsewhere], heartbeats=[heartbeats(quiet_minutes=60)])) == 1


def test_an_output_that_never_ran_is_named() -> None:
    [line] = found(heartbeats=[heartbeats(quiet_minutes=60, outputs=["totals"])])

    assert "output trend has never run, but receive has committed 3 batches" in line


@pytest.mark.parametrize("change", [{"closed": True}, {"received": 0}, {"pipeline": "gone", "instance": "gone"}])
def test_what_owes_nothing_to_the_declaration_is_left_alone(change: dict[str, Any]) -> None:
    assert found(heartbeats=[replace(heartbeats(quiet_minutes=60, outputs=None), **change)]) == []


@pytest.mark.parametrize("name, pairs", [("totals", 29), ("trend", 30)])
def test_pairs_without_a_fate_are_named_also_while_work_is_under_way(name: str, pairs: int) -> None:
    [line] = found(outputs_and_receive=[output(name, pairs=pairs)], heartbeats=[heartbeats()])

    assert f"output {name} has a fate for {pairs} (record, window) pairs, but receive kept" in line


@pytest.mark.parametrize(
    "change", [{"ordinal": 2}, {"declarations": 2}, {"declarations": 0}, {"from_kept": True}, {"output": "dropped"}]
)
def test_pairs_are_not_compared_where_they_cannot_be(change: dict[str, Any]) -> None:
    assert found(outputs_and_receive=[replace(output(pairs=7), **change)], heartbeats=[heartbeats()]) == []


def test_the_entry_point_raises_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("audit", "a", warnings=["one: onlyonce.batches", "two: onlyonce.batches"])
    monkeypatch.setattr(audit, "examine_log", lambda grace, **_: report)

    with pytest.raises(InvariantBroken) as raised:
        audit.main(["--grace", "1"])

    assert "one: onlyonce.batches (and 1 more)" in raised.value.what
    assert "onlyonce.conservation" in raised.value.hint


def test_the_entry_point_gives_the_report_when_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("audit", "a")
    monkeypatch.setattr(audit, "examine_log", lambda grace, **_: report)

    assert audit.main([]) is report


@pytest.mark.parametrize("seconds, found", [(3599, 0), (3600, 1)])
def test_files_that_wait_for_their_names_for_an_hour_are_named(seconds: int, found: int) -> None:
    """The message says what to run; a stream that has just written them is no finding."""
    waiting = FilesWaiting("shop", "totals", 30, datetime(2026, 3, 1, tzinfo=UTC), seconds)
    seen = Evidence(files_waiting=[waiting])

    told = list(audit.findings(seen, {"shop": SHOP}, 15))

    assert len(told) == found
    assert all("onlyonce finalize" in finding and "30 files" in finding for finding in told)
