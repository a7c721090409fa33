"""Each reason for which a run starts Spark, by one fact that differs from those of a run with nothing to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onlyonce.core.idle import QueryFacts, Reason, RunFacts, of_run

QUIET = RunFacts({"receive": QueryFacts(), "per_shop": QueryFacts()})

OF_A_QUERY = {
    Reason.NEVER_RAN: QueryFacts(None, None, None),
    Reason.DAMAGED: QueryFacts("damaged"),
    Reason.BEGUN: QueryFacts(begun=1),
    Reason.PLANNED: QueryFacts(planned=1),
    Reason.CHANGED: QueryFacts(same_declaration=False),
    Reason.WATERMARK: QueryFacts(watermark_moved=True),
}
OF_A_RUN = {
    Reason.MARKER: replace(QUIET, marker_begun=True),
    Reason.REGISTERED: replace(QUIET, registered=1),
    Reason.UNREAD: replace(QUIET, unread=["per_shop"]),
    Reason.LATE: replace(QUIET, late=1),
    Reason.CLOSE: replace(QUIET, closes=True),
    Reason.IDLE_SOURCE: replace(QUIET, idle_source=True),
}
EDGES = {
    "never-registered": (QueryFacts(begun=None, committed=None), Reason.NEVER_RAN),
    "first-batch-begun": (QueryFacts(begun=0, committed=None), Reason.BEGUN),
    "planned-and-not-ended": (QueryFacts(planned=0, ended=-1), Reason.PLANNED),
    "checkpoint-behind": (QueryFacts(begun=1, committed=1), Reason.PLANNED),
    "damaged-and-never-ran": (QueryFacts("damaged", None, None), Reason.DAMAGED),
}


def test_run_with_nothing_to_do_has_no_reason() -> None:
    assert of_run(QUIET) is None


@pytest.mark.parametrize("query", ["receive", "per_shop"])
@pytest.mark.parametrize("reason", OF_A_QUERY, ids=lambda reason: reason.name)
def test_each_fact_of_a_query_is_a_reason(query: str, reason: Reason) -> None:
    assert of_run(replace(QUIET, queries={**QUIET.queries, query: OF_A_QUERY[reason]})) is reason


@pytest.mark.parametrize("reason", OF_A_RUN, ids=lambda reason: reason.name)
def test_each_fact_of_a_run_is_a_reason(reason: Reason) -> None:
    assert of_run(OF_A_RUN[reason]) is reason


@pytest.mark.parametrize("case", EDGES)
def test_query_without_a_whole_batch_has_work(case: str) -> None:
    query, reason = EDGES[case]
    assert of_run(replace(QUIET, queries={"receive": query})) is reason


def test_no_reason_is_without_a_test() -> None:
    """The last two come from asking, not from facts."""
    assert set(Reason) - {*OF_A_QUERY, *OF_A_RUN} == {Reason.SOURCE, Reason.UNKNOWN}
