"""What a batch must repeat, what it must conserve, and times as whole microseconds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.core.batch import (
    Batch,
    Outcome,
    Plan,
    check_declaration,
    check_files,
    check_output,
    check_receive,
    check_replay,
    closes_between,
    to_micros,
    to_time,
)
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.frontier import Frontier

QUICK = settings(max_examples=50, deadline=None)
PLAN = Plan(
    incarnation="shop/receive/2",
    batch_id=5,
    source_from={"version": 1},
    source_to={"version": 2},
    offsets_hash="aa",
    partitions=2,
    ingestion_time=datetime(2026, 1, 1, tzinfo=UTC),
    bucket=7,
    settings={"spark.sql.shuffle.partitions": "2"},
    mode="exactly_once",
    declaration_hash="d1",
)
counts = st.integers(0, 10**12)


def test_a_replay_of_the_same_offsets_passes_whatever_else_has_changed() -> None:
    """All else is taken from the log."""
    later = PLAN.ingestion_time + timedelta(days=1)

    check_replay(PLAN, replace(PLAN, partitions=9, ingestion_time=later, settings={}, bucket=0, declaration_hash="d2"))


def test_a_replay_of_other_offsets_is_refused_with_the_way_out() -> None:
    """The message has both offsets and the command for a new incarnation of this query."""
    meant = replace(PLAN, offsets_hash="bb", source_to={"version": 3})
    with pytest.raises(Refused) as refusal:
        check_replay(PLAN, meant)

    assert "shop/receive/2/5" in refusal.value.what
    assert str(PLAN.source_to) in refusal.value.what
    assert str(meant.source_to) in refusal.value.what
    assert "onlyonce reset shop/receive" in refusal.value.hint
    assert "reset shop/receive/2" not in refusal.value.hint


def test_offsets_are_compared_by_the_hash_of_the_whole_file() -> None:
    """Equal offsets with another hash mean other settings in the file: refused too."""
    with pytest.raises(Refused, match="other settings"):
        check_replay(PLAN, replace(PLAN, offsets_hash="bb"))


@pytest.mark.parametrize("units", [0, 1, 4])
def test_an_unchanged_declaration_goes_on(units: int) -> None:
    """However many units have committed, nothing begins again."""
    assert check_declaration(PLAN, PLAN, units) is False


def test_a_changed_declaration_begins_a_batch_anew_only_while_no_unit_has_committed() -> None:
    """After that it is refused: half of the batch would be of one declaration, half of the other."""
    meant = replace(PLAN, declaration_hash="d2")

    assert check_declaration(PLAN, meant, 0) is True
    with pytest.raises(Refused, match=r"3 units committed under declaration d1.*now is d2") as refusal:
        check_declaration(PLAN, meant, 3)
    assert "declaration d1 as it was" in refusal.value.hint


@pytest.mark.parametrize("units", [0, 3])
def test_files_that_are_as_bad_as_when_the_batch_began_change_nothing(units: int) -> None:
    """Also when the reason has another wording now, or a file that was bad is good again: the log decides."""
    there = replace(PLAN, facts={"a": "it has 6 bytes", "b": "gone"})

    assert check_files(there, there, units) is False
    assert check_files(there, replace(PLAN, facts={"a": "it has 9 bytes"}), units) is False


def test_a_file_that_was_lost_since_begins_the_batch_anew_or_is_refused() -> None:
    """Anew while nothing of the batch is committed; else refused, naming the file and both ways out."""
    meant = replace(PLAN, facts={"/inbox/a": "the file vanished"})

    assert check_files(PLAN, meant, 0) is True
    with pytest.raises(Refused, match="/inbox/a") as refusal:
        check_files(PLAN, meant, 3)
    assert "put the file back" in refusal.value.hint
    assert "onlyonce reset shop/receive" in refusal.value.hint
    assert "reset shop/receive/2" not in refusal.value.hint


def test_a_range_of_which_more_is_lost_since_begins_the_batch_anew_or_is_refused() -> None:
    """Or of which nothing is lost after all: then the batch begins anew, unless a unit has committed its loss."""
    lost = {"reason": "retention", "from": 50}
    there, more = replace(PLAN, facts={"t/0": lost}), replace(PLAN, facts={"t/0": lost | {"from": 80}})

    assert check_files(there, more, 0) is True
    assert check_files(there, PLAN, 0) is True
    assert check_files(there, replace(PLAN, facts={"t/0": lost | {"reason": "reworded"}}), 0) is False
    assert check_files(more, there, 3) is False
    with pytest.raises(Refused, match="t/0"):
        check_files(there, more, 3)


@QUICK
@given(counts, counts, counts, counts)
def test_receive_is_conserved_when_every_record_has_one_fate(k: int, i: int, r: int, d: int) -> None:
    """in = kept + invalid + expired + duplicate; one more or one less stops the batch."""
    outcome = Outcome(read=k + i + r + d, kept=k, invalid=i, expired=r, duplicate=d)

    check_receive("shop/receive/2/5", outcome)
    for wrong in (k + i + r + d + 1, k + i + r + d - 1, None):
        with pytest.raises(InvariantBroken, match="shop/receive/2/5") as stopped:
            check_receive("shop/receive/2/5", replace(outcome, read=wrong))
        assert "not marked as committed" in stopped.value.data


@QUICK
@given(counts, counts)
def test_an_output_is_conserved_when_what_was_kept_is_in_time_or_late(in_time: int, late: int) -> None:
    """kept = in time + late, in (record, window) pairs; one more or one less stops the batch."""
    outcome = Outcome(in_time=in_time, late=late)

    check_output("u", in_time + late, outcome)
    for wrong in (in_time + late + 1, in_time + late - 1):
        with pytest.raises(InvariantBroken, match=f"{in_time} are in time and {late} late"):
            check_output("u", wrong, outcome)


def test_only_a_batch_that_ended_counts_as_committed() -> None:
    """`begun` is not."""
    batch = Batch(PLAN, Frontier(), 0, "begun", replayed=True)

    assert not batch.committed
    assert replace(batch, state="committed").committed


@QUICK
@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7)), timezone(timedelta(minutes=345))])))
def test_times_go_to_microseconds_and_back_exactly(time: datetime) -> None:
    """From the year 1 to 9999 in any zone: a float in between would lose digits."""
    there = to_micros(time)

    if datetime(1, 1, 3, tzinfo=UTC) < time < datetime(9999, 12, 29, tzinfo=UTC):
        assert to_time(there) == time
    assert to_micros(to_time(0)) == 0


def test_no_time_stays_no_time() -> None:
    """Null has no microseconds."""
    assert to_micros(None) is None
    assert to_time(None) is None


def test_a_stream_closes_by_what_batches_before_have_read() -> None:
    """Each batch closes the windows from where the one before ended, up to where its own reading begins; so does a
    later incarnation."""
    first = replace(PLAN, source_from=None, source_to={"reservoirVersion": 3})
    second = replace(PLAN, source_from=first.source_to, source_to={"reservoirVersion": 5})
    third = replace(PLAN, source_from=second.source_to, source_to={"reservoirVersion": 9})

    assert closes_between(first, None, -1) == (-1, -1)
    assert closes_between(second, first, -1) == (-1, 3)
    assert closes_between(third, second, -1) == (3, 5)
    assert closes_between(third, None, 4) == closes_between(third, second, 4) == (4, 5)
