"""Epoch, unit, batch and incarnation over two databases and a Delta table: every state that can be reached, by earlier rules
(the holes are there), by those of now (nothing is), and by those of now without one (it is missed).

docs/explanation/model.md says what is in the model and what is not.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.fault import ledger
from tests.model.explore import Found, explore
from tests.model.rules import BEFORE, NOW, Rules
from tests.model.state import PLATFORM, TABLE, THERE, Sink, World

HERE, LOG, SUMS, LAKE = Sink("here", PLATFORM), Sink("log", THERE), Sink("sums", THERE, adds=True), Sink("lake", TABLE)
NEWEST, OVER = Sink("newest", THERE, replaces=True), Sink("over", TABLE, replaces=True)
ALL = (HERE, SUMS, LAKE)
DEAD_END = "a dead end"

ALONE = World((LOG,), at_once=1, changes=0)
"""One process at a time, which may be killed."""
BESIDE = World((LOG,), kills=0, changes=0, lost_checkpoints=0)
"""A second process may start at any time; the first one goes on when it likes."""
CHANGED = World((LOG,), at_once=1, lost_checkpoints=0, new_incarnations=0)
"""The declaration may change."""


def of(world: World, *sinks: Sink) -> World:
    """The same with other sinks."""
    return replace(world, sinks=sinks)


def order(found: Found, *said: str) -> list[int]:
    """At which steps of a trace these are said first, in the order in which they are asked for; -1 for never."""
    return [next((at for at, told in enumerate(found.trace) if text in told), -1) for text in said]


def assert_told(found: Found, wrong: str, *said: str) -> None:
    """Something is found, and its trace tells these steps in this order."""
    places = order(found, *said)
    assert wrong in found.wrong, str(found)
    assert -1 not in places, str(found)
    assert places == sorted(places), str(found)


@pytest.mark.parametrize("sink", [LOG, SUMS], ids=["append", "increment"])
def test_before_a_new_incarnation_doubled_what_the_other_database_had(sink: Sink) -> None:
    """Hole 1: killed after a unit there, `onlyonce reset` asked the log alone."""
    found = explore(of(ALONE, sink), BEFORE, dead_ends=False)

    kill, new, again = "is killed", "close incarnation 0", "driver 3: begin batch 0"
    assert_told(found, "twice", f"driver 1: commit unit 0/{sink.name}/0 in the other database", kill, new, again)


def test_before_a_changed_declaration_began_a_batch_anew_beside_its_unit() -> None:
    """Hole 2: killed after one of two units there, and another number of partitions."""
    found = explore(CHANGED, BEFORE, dead_ends=False)

    change, anew = "declaration 1 is deployed", "driver 2: begin anew batch 0 under declaration 1"
    assert_told(found, "twice", "driver 1: commit unit 0/log/1", "is killed", change, anew, "driver 2: commit unit")


def test_before_a_zombie_wrote_to_the_other_database_beside_a_new_incarnation() -> None:
    """Hole 3: stopped before the COMMIT there; nobody had raised its epoch in that database."""
    found = explore(BESIDE, BEFORE, dead_ends=False)

    claim, commit = "driver 1: claim unit 0/log/0", "driver 1: commit unit 0/log/0"
    assert_told(found, "fenced driver 1 has written", claim, "close incarnation 0", "driver 3: begin batch 0", commit)


def test_before_a_zombie_held_up_the_new_incarnation_for_as_long_as_it_stood_still() -> None:
    """Hole 3 for an increment: the open transaction holds the rows of its keys."""
    found = explore(of(BESIDE, SUMS), BEFORE)

    assert_told(found, DEAD_END, "driver 1: claim unit 0/sums/0", "close incarnation 0, register incarnation 1")


def test_before_a_reference_and_a_lost_checkpoint_were_a_dead_end() -> None:
    """Hole 11 as it was met: the table is empty, and everything is refused."""
    found = explore(of(ALONE, LAKE), BEFORE)

    assert_told(found, DEAD_END, "the reference unit", "the checkpoint is lost")
    assert not any("commit batch" in told for told in found.trace)


def test_before_rows_that_the_table_refuses_after_their_reference_were_a_dead_end() -> None:
    """Hole 10's second half: keys that are there twice are found after the reference unit, at each attempt; another
    declaration would do, and is refused."""
    found = explore(replace(CHANGED, sinks=(LAKE,), new_incarnations=1, unfit=("lake", 0)), BEFORE)

    assert_told(found, DEAD_END, "the reference unit")


def test_before_a_driver_that_was_starting_took_an_incarnation_that_was_just_closed() -> None:
    """Found by the model: it had looked up its incarnation, `onlyonce reset` closed that, and then it raised the epoch."""
    found = explore(of(BESIDE, HERE), BEFORE, dead_ends=False)

    start, bump = "driver 1: start", "driver 1: bump the epoch to 2"
    assert_told(
        found, "fenced driver 1 has written", start, "close incarnation 0", bump, "driver 1: claim unit 0/here/0"
    )


QUICK = {
    "one after the other": World(ALL, at_once=1, runs=2, outages=1),
    "beside each other": World(ALL, partitions=(1, 1), kills=0, changes=0),
    "beside each other, fewer partitions": World(
        ALL, partitions=(2, 1), kills=0, lost_checkpoints=0, new_incarnations=0
    ),
    "beside each other, more partitions": World(
        ALL, partitions=(1, 2), kills=0, lost_checkpoints=0, new_incarnations=0
    ),
    "upserts": World((NEWEST, OVER), kills=0, changes=0),
    "an upsert beside an append": World((OVER, LOG), partitions=(1, 1), kills=0, changes=0),
    "rows that the table refuses": World((LAKE,), kills=0, unfit=("lake", 0)),
}
WIDE = {
    "all at once": World(ALL),
    "the table first": World((LAKE, LOG), outages=1),
    "three runs": World((SUMS,), runs=3, versions=2, changes=0),
    "two new incarnations": World((LOG, LAKE), partitions=(1, 1), new_incarnations=2, kills=0, changes=0),
    "upserts of two declarations": World((NEWEST, OVER), kills=0),
    "two that stand still": World((LOG,), at_once=3, kills=0, changes=0),
}


def nothing_is_found(name: str, world: World) -> None:
    """By the rules of now; how many states that took is noted."""
    found = explore(world, NOW)
    ledger.explored(f"two authorities: {name}", found.states)
    assert not found.wrong, str(found)


@pytest.mark.parametrize("name", QUICK)
def test_now_no_row_is_lost_or_doubled_and_each_batch_can_be_ended(name: str) -> None:
    """Each row once in each sink, no effect of a fenced driver, and a way out of every state."""
    nothing_is_found(name, QUICK[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_now_the_same_holds_with_more_of_everything(name: str) -> None:
    """More processes, versions and mishaps."""
    nothing_is_found(name, WIDE[name])


MISSED = {
    "epoch_is_checked": (BESIDE, "fenced driver"),
    "found_unit_is_skipped": (ALONE, "twice"),
    "older_sessions_are_ended": (BESIDE, DEAD_END),
    "table_is_looked_at_first": (of(ALONE, LAKE), "twice"),
    "begin_asks_all": (CHANGED, "twice"),
    "reset_asks_all": (ALONE, "twice"),
    "fence_raised_in_all_before_relied_on": (BESIDE, "fenced driver"),
    "away_is_refusal": (replace(ALONE, outages=1), "twice"),
    "reference_may_be_withdrawn": (replace(CHANGED, sinks=(LAKE,), new_incarnations=1, unfit=("lake", 0)), DEAD_END),
    "withdrawn_transaction_is_taken": (of(BESIDE, LAKE), "fenced driver"),
    "landed_is_told_from_taken": (of(BESIDE, LAKE), "twice"),
    "half_written_is_finished": (ALONE, DEAD_END),
    "closed_incarnation_takes_no_driver": (of(BESIDE, HERE), "fenced driver"),
}


@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_no_rule_can_be_left_out(rule: str) -> None:
    """Each one switched off alone lets something happen that must not."""
    world, wrong = MISSED[rule]

    found = explore(world, NOW.without(rule), dead_ends=wrong == DEAD_END)

    assert wrong in found.wrong, str(found)


def test_a_failure_that_repeats_after_a_data_unit_of_another_sink_is_still_a_dead_end() -> None:
    """What the rules of now leave open: the unit can't be withdrawn, and the rest of its batch can't be written."""
    found = explore(World((LOG, HERE), at_once=1, unfit=("here", 0)), NOW)

    assert_told(found, DEAD_END, "driver 1: commit unit 0/log/")
