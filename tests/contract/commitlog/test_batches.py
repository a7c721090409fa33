"""Begin and end of a batch, closes, and the frontier: what the log fixes stays fixed, and never moves back."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from onlyonce.commitlog import batches, units
from onlyonce.commitlog.batches import Batches, WatermarkMarkers
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import Batch, Outcome, Plan, to_micros, to_time
from onlyonce.core.errors import InvariantBroken, Refused, Superseded
from onlyonce.core.frontier import Frontier
from onlyonce.core.units import Content, Counts, UnitId
from onlyonce.database.connect import run
from onlyonce.receive import loop
from tests.contract.conftest import NOON, Log, plan_of
from tests.support.two_sources import pipeline

HOUR = timedelta(hours=1)
DONE = Outcome(read=3, kept=2, invalid=1, expired=0, duplicate=0, unknown_fields=0, delta_version=1)


@pytest.fixture
def driver(log: Log) -> Driver:
    """A driver of receive."""
    return log.start()


def begin(log: Log, driver: Driver, plan: Plan, known: Frontier | None = None) -> Batch:
    """The batch, in a transaction of its own."""
    instance = driver.incarnation.rsplit("/", 2)[0]
    return Batches(log.database).begin(driver, instance, plan, known)


def end(log: Log, driver: Driver, batch: Batch, outcome: Outcome) -> None:
    """Its end, likewise."""
    Batches(log.database).end(driver, batch, outcome)


def receive(log: Log, driver: Driver, batch_id: int, max_event_time: datetime | None) -> None:
    """A whole receive batch that leaves the max event time there."""
    batch = begin(log, driver, plan_of(driver, batch_id))
    end(log, driver, batch, replace(DONE, max_event_time_after=max_event_time, delta_version=batch_id))


def put_unit(log: Log, driver: Driver, batch_id: int = 0, partition: int = 0, counts: Counts | None = None) -> None:
    """A committed unit of a batch."""
    unit = UnitId(driver.incarnation, batch_id, "events", partition)

    def work(connection: Connection) -> None:
        Units(connection).claim(units.Claim(unit, driver.epoch, "test", "reference"))
        Units(connection).fill(unit, Content(2, "x"), counts)

    run(log.database, work)


def frontier(log: Log, instance: str = "shop") -> Frontier:
    """What is known now."""
    return Batches(log.database).frontier(instance)


# --- begin
# -------------------------------------------------------------------------------------------------------------


def test_a_batch_is_begun_once_and_a_replay_gets_what_the_first_attempt_fixed(log: Log, driver: Driver) -> None:
    """All of the plan and the frontier, whatever the second attempt would have chosen."""
    receive(log, driver, 0, NOON)
    first = begin(log, driver, plan_of(driver, 1, source_from={"v": 0}, facts={"a.jsonl": "gone"}))
    newer = log.restart(driver)
    other = plan_of(newer, 1, partitions=9, ingestion_time=NOON + HOUR, bucket=99, settings={"x": "y"}, facts={})
    second = begin(log, newer, other, Frontier(max_event_time=0))

    assert second.plan == first.plan
    assert second.frontier == first.frontier == Frontier(max_event_time=to_micros(NOON))
    assert second.gc_floor == first.gc_floor
    assert (first.replayed, second.replayed) == (False, True)
    assert log.rows("SELECT epoch FROM onlyonce.batches WHERE batch = 1") == [(newer.epoch,)]


def test_a_replay_of_other_offsets_is_refused_and_changes_nothing(log: Log, driver: Driver) -> None:
    """Also when no unit has committed, and also when the batch has ended."""
    batch = begin(log, driver, plan_of(driver))
    for _ in range(2):
        before = log.rows("SELECT * FROM onlyonce.batches")
        with pytest.raises(Refused, match="began with the offsets"):
            begin(log, driver, plan_of(driver, offsets_hash="other"))
        assert log.rows("SELECT * FROM onlyonce.batches") == before
        end(log, driver, batch, DONE)


def test_a_changed_declaration_begins_a_batch_anew_while_no_unit_has_committed(log: Log, driver: Driver) -> None:
    """With the new plan and the frontier of now."""
    begin(log, driver, plan_of(driver))
    anew = begin(log, driver, plan_of(driver, declaration_hash="d2", partitions=5))

    assert not anew.replayed
    assert anew.plan.partitions == 5
    assert log.rows("SELECT declaration_hash, partitions FROM onlyonce.batches b") == [("d2", 5)]


def test_a_changed_declaration_is_refused_once_a_unit_has_committed(log: Log, driver: Driver) -> None:
    """The message names the version to run once; the batch and its unit stay."""
    begin(log, driver, plan_of(driver))
    put_unit(log, driver)
    with pytest.raises(Refused, match="1 units committed under declaration d1") as refusal:
        begin(log, driver, plan_of(driver, declaration_hash="d2"))

    assert "run once with the declaration" in refusal.value.hint
    assert log.rows("SELECT declaration_hash, state FROM onlyonce.batches") == [("d1", "begun")]
    assert begin(log, driver, plan_of(driver)).replayed


def test_a_changed_declaration_does_not_matter_to_a_batch_that_has_ended(log: Log, driver: Driver) -> None:
    """Spark may ask for it once more when its own commit was lost."""
    batch = begin(log, driver, plan_of(driver))
    put_unit(log, driver)
    end(log, driver, batch, DONE)

    assert begin(log, driver, plan_of(driver, declaration_hash="d2")).committed


def test_a_driver_that_was_overtaken_begins_and_ends_nothing(log: Log, driver: Driver) -> None:
    """Neither a new batch, nor one that it began itself, nor a close."""
    batch = begin(log, driver, plan_of(driver))
    number, _, _ = WatermarkMarkers(log.database).begin(driver, "ended", Frontier())
    log.restart(driver)
    before = log.rows("SELECT * FROM onlyonce.batches"), log.rows("SELECT * FROM onlyonce.watermark_markers")
    for attempt in (
        lambda: begin(log, driver, plan_of(driver, 1)),
        lambda: begin(log, driver, plan_of(driver)),
        lambda: end(log, driver, batch, DONE),
        lambda: WatermarkMarkers(log.database).begin(driver, "ended", Frontier()),
        lambda: WatermarkMarkers(log.database).end(driver, number, 1),
    ):
        with pytest.raises(Superseded):
            attempt()

    assert (log.rows("SELECT * FROM onlyonce.batches"), log.rows("SELECT * FROM onlyonce.watermark_markers")) == before


# --- end
# ---------------------------------------------------------------------------------------------------------------


def test_a_batch_that_has_ended_stays_as_it_ended(log: Log, driver: Driver) -> None:
    """Ended twice, with other counts: the first stands."""
    batch = begin(log, driver, plan_of(driver))
    end(log, driver, batch, replace(DONE, max_event_time_after=NOON))
    before = log.rows("SELECT * FROM onlyonce.batches")
    end(log, driver, batch, replace(DONE, kept=99, max_event_time_after=NOON + HOUR))

    assert log.rows("SELECT * FROM onlyonce.batches") == before
    assert begin(log, driver, plan_of(driver)).committed


@pytest.mark.parametrize(
    "change, constraint",
    [
        ("conserved = false", "batches_committed_is_conserved"),
        ("conserved = NULL", "batches_committed_is_conserved"),
        ("committed_at = NULL", "batches_committed_has_its_time"),
        ("max_event_time_after = max_event_time - interval '1 microsecond'", "batches_max_event_time_never_moves_back"),
        ("state = 'done', committed_at = NULL", "batches_state_known"),
        ("mode = 'maybe'", "batches_mode_known"),
    ],
)
def test_the_database_itself_refuses_a_committed_batch_that_cannot_be(
    log: Log, driver: Driver, change: str, constraint: str
) -> None:
    """By a constraint whose name says which rule; also for a writer that is not the platform."""
    receive(log, driver, 0, NOON)
    receive(log, driver, 1, NOON + HOUR)
    with pytest.raises(Exception, match=f'constraint "{constraint}"'):
        log.rows(f"UPDATE onlyonce_private.batches SET {change} WHERE batch_id = 1")


def test_the_end_of_a_batch_refuses_a_max_event_time_that_moves_back(log: Log, driver: Driver) -> None:
    """By name, and the batch stays begun."""
    receive(log, driver, 0, NOON)
    batch = begin(log, driver, plan_of(driver, 1))
    with pytest.raises(IntegrityError, match="batches_max_event_time_never_moves_back"):
        end(log, driver, batch, replace(DONE, max_event_time_after=NOON - HOUR))

    assert log.rows("SELECT state FROM onlyonce.batches WHERE batch = 1") == [("begun",)]


def test_receive_ends_with_the_sums_of_its_units(log: Log, driver: Driver) -> None:
    """All fates, and the largest event time of any of them, or the max event time before where that is later."""
    receive(log, driver, 0, NOON)
    batch = begin(log, driver, plan_of(driver, 1))
    put_unit(log, driver, 1, 0, Counts(kept=2, invalid=1, duplicate=4, unknown_fields=1, largest=NOON - HOUR))
    put_unit(log, driver, 1, 1, Counts(kept=3, largest=NOON - 2 * HOUR))
    total = Batches(log.database).end_receive(driver, batch, 10, 5, bounded=False)

    assert total == {"kept": 5, "invalid": 1, "expired": 0, "duplicate": 4, "unknown_fields": 1}
    assert log.rows(
        "SELECT records_in, kept, invalid, expired, duplicate, conserved FROM onlyonce.conservation WHERE batch = 1"
    ) == [(10, 5, 1, 0, 4, True)]
    assert frontier(log).max_event_time == to_micros(NOON)


@pytest.mark.parametrize("partitions, read", [([0], 2), ([0, 1], 5), ([0, 1], 3), ([0, 1, 2], 6)])
def test_receive_does_not_end_without_its_units_or_its_records(
    log: Log, driver: Driver, partitions: list[int], read: int
) -> None:
    """A unit is missing or one too many, a record is lost or doubled: it stays begun."""
    batch = begin(log, driver, plan_of(driver))
    for partition in partitions:
        put_unit(log, driver, 0, partition, Counts(kept=2))
    with pytest.raises(InvariantBroken, match="shop/receive/1/0"):
        Batches(log.database).end_receive(driver, batch, read, 1, bounded=False)

    assert log.rows("SELECT state FROM onlyonce.batches") == [("begun",)]


# --- the frontier
# ------------------------------------------------------------------------------------------------------


def test_the_max_event_time_is_the_largest_of_all_committed_batches_of_receive(log: Log, driver: Driver) -> None:
    """A batch that is only begun, one of an output and one of another pipeline do not count; a batch of
    earlier times does not lower it."""
    receive(log, driver, 0, NOON)
    begin(log, driver, plan_of(driver, 1))
    output, other = log.start("shop", "per_shop"), log.start("other")
    batch = begin(log, output, plan_of(output))
    end(log, output, batch, Outcome(in_time=1, late=0, max_event_time_after=NOON + 5 * HOUR))
    receive(log, other, 0, NOON + 7 * HOUR)
    before = frontier(log)
    end(log, driver, begin(log, driver, plan_of(driver, 1)), replace(DONE, max_event_time_after=NOON))

    assert before == frontier(log) == Frontier(max_event_time=to_micros(NOON))
    assert frontier(log, "other") == Frontier(max_event_time=to_micros(NOON + 7 * HOUR))
    assert frontier(log, "nobody") == Frontier()


def test_a_new_incarnation_goes_on_from_the_frontier_of_the_old(log: Log, driver: Driver) -> None:
    """Over incarnations whose batch ids both begin at 0; nothing moves back when the second incarnation has older data."""
    receive(log, driver, 0, NOON)
    close(log, driver, "ended", frontier(log).declared_ended())
    Incarnations(log.database).set_state(driver.incarnation, "closed")
    second = log.start()
    known = frontier(log)
    batch = begin(log, second, plan_of(second, 0))
    end(log, second, batch, replace(DONE, max_event_time_after=NOON))
    receive(log, second, 1, NOON + HOUR)

    assert known == batch.frontier == Frontier(max_event_time=to_micros(NOON), ended=to_micros(NOON))
    assert frontier(log) == Frontier(max_event_time=to_micros(NOON + HOUR), ended=to_micros(NOON))


def close(log: Log, driver: Driver, kind: str, after: Frontier) -> None:
    """A whole close."""
    number, _, _ = WatermarkMarkers(log.database).begin(driver, kind, after)
    WatermarkMarkers(log.database).end(driver, number, 10 + number)


def test_closes_of_both_kinds_add_up_and_none_moves_back(log: Log, driver: Driver) -> None:
    """What the log knows is what the pure rule says after the same events, step by step."""
    wanted, hour = Frontier(), to_micros(NOON + HOUR) or 0
    for number, (kind, max_event_time) in enumerate(
        [("silent", 0), ("ended", 1), ("silent", 3), ("silent", 2), ("ended", 4)]
    ):
        receive(log, driver, number, max(NOON + max_event_time * HOUR, NOON + (3 if number > 2 else 0) * HOUR))
        wanted = wanted.after_batch(to_micros(NOON + max_event_time * HOUR))
        assert frontier(log) == wanted
        wanted = wanted.declared_ended() if kind == "ended" else wanted.fallen_silent(hour * (number + 1), 1_000)
        close(log, driver, kind, wanted)
        assert frontier(log) == wanted

    closes = log.rows("SELECT marker_no, kind, state FROM onlyonce.watermark_markers ORDER BY 1")
    assert closes == [(n + 1, k, "committed") for n, k in enumerate(["silent", "ended", "silent", "silent", "ended"])]


def test_a_close_that_is_only_begun_closes_nothing_and_is_finished_first(log: Log, driver: Driver) -> None:
    """The next driver gets what the first one fixed, under the same number, whatever it meant itself."""
    receive(log, driver, 0, NOON)
    meant = frontier(log).declared_ended()
    first = WatermarkMarkers(log.database).begin(driver, "ended", meant)
    before = frontier(log)
    newer = log.restart(driver)
    left = WatermarkMarkers(log.database).is_open(newer.incarnation)
    second = WatermarkMarkers(log.database).begin(newer, "silent", Frontier(max_event_time=1))
    WatermarkMarkers(log.database).end(newer, second[0], 9)

    assert first == second == (1, "ended", meant)
    assert left
    assert before == Frontier(max_event_time=to_micros(NOON))
    assert frontier(log) == meant
    assert not WatermarkMarkers(log.database).is_open(newer.incarnation)


def test_a_close_that_has_ended_stays_as_it_ended(log: Log, driver: Driver) -> None:
    """Ended twice: the first version of `events` stands."""
    close(log, driver, "ended", Frontier(max_event_time=1, ended=1))
    WatermarkMarkers(log.database).end(driver, 1, 99)

    assert log.rows("SELECT delta_version FROM onlyonce_private.watermark_markers") == [(11,)]


# --- windows and what outputs read
# ---------------------------------------------------------------------------------------


def test_a_final_pane_is_never_written_over(log: Log, driver: Driver) -> None:
    """An early one is replaced by the next; the final one stays, whoever comes later."""
    output = log.start("shop", "per_shop")
    window = {"window_start": NOON, "window_end": NOON + HOUR}
    seen = []
    for number, (final, rows) in enumerate([(False, 1), (False, 2), (True, 3), (False, 4), (True, 5)]):
        batch = begin(log, output, plan_of(output, number))
        made = pa.Table.from_pylist([window | {"rows": rows}], batches.WRITTEN)
        Batches(log.database).add_panes(batch, "shop", "per_shop", made, final=final)
        seen += log.rows("SELECT rows, state, batch FROM onlyonce.windows")

    assert seen == [(1, "open", 0), (2, "open", 1), (3, "closed", 2), (3, "closed", 2), (3, "closed", 2)]


def test_an_output_reads_the_committed_batches_of_its_versions(log: Log, driver: Driver) -> None:
    """After one version, up to the other; not those that are only begun, and not of another pipeline."""
    for number in range(4):
        receive(log, driver, number, NOON)
    begin(log, driver, plan_of(driver, 4))
    receive(log, log.start("other"), 2, NOON)
    found = Batches(log.database).received("shop", 0, 2)

    assert Counter((row.incarnation, row.batch_id, row.kept) for row in found) == Counter(
        (driver.incarnation, number, 2) for number in (1, 2)
    )


def test_conservation_is_false_where_the_log_does_not_add_up(log: Log, driver: Driver) -> None:
    """Units against the batch, windows against the output's batch: a difference made by hand shows."""
    batch = begin(log, driver, plan_of(driver))
    for partition in range(2):
        put_unit(log, driver, 0, partition, Counts(kept=1, invalid=partition))
    Batches(log.database).end_receive(driver, batch, 3, 1, bounded=False)
    output = log.start("shop", "per_shop")
    made = begin(log, output, plan_of(output))
    counts = [{"window_start": NOON, "window_end": NOON + HOUR, "in_time": 1, "late": 1}]
    Batches(log.database).count_windows(made, "per_shop", pa.Table.from_pylist(counts, batches.COUNTED))
    end(log, output, made, Outcome(in_time=1, late=1))
    conserved = "SELECT query, conserved FROM onlyonce.conservation"
    before = log.multiset(conserved)
    log.rows("UPDATE onlyonce_private.units SET kept = kept + 1 WHERE partition = 0")
    log.rows("UPDATE onlyonce_private.window_counts SET late = 0")

    assert before == Counter([("receive", True), ("per_shop", True)])
    assert log.multiset(conserved) == Counter([("receive", False), ("per_shop", False)])


def test_a_unit_cannot_have_another_identity_than_its_unique_id(log: Log, driver: Driver) -> None:
    """The database refuses it by name."""
    put_unit(log, driver)
    with pytest.raises(Exception, match="units_identity_is_the_unique_id"):
        log.rows("UPDATE onlyonce_private.units SET partition = 7")

    assert log.rows("SELECT partition FROM onlyonce.commits") == [(0,)]


# --- what a reader of `events` beside receive asks
# ----------------------------------------------------------------------------


def test_a_version_of_events_is_ended_with_its_batch_or_its_close(log: Log, driver: Driver) -> None:
    """Of this instance alone, and within the range that was asked for: not one that has only begun."""
    for batch_id in (2, 4):
        receive(log, driver, batch_id, NOON)
    begin(log, driver, plan_of(driver, 5))
    close(log, driver, "silent", Frontier())  # in version 11
    WatermarkMarkers(log.database).begin(driver, "silent", Frontier())
    receive(log, log.start("other"), 3, NOON)

    def ended(after: int, upto: int) -> set[int]:
        return Batches(log.database).ended_versions("shop", after, upto)

    assert (ended(-1, 99), ended(2, 10), ended(1, 2)) == ({2, 4, 11}, {4}, {2})


def test_what_receive_has_taken_in_of_the_registry_is_told_by_its_committed_batches(log: Log, driver: Driver) -> None:
    """In any of its incarnations: the next one begins behind what they have committed."""

    def taken_in() -> int | None:
        return Batches(log.database).last_taken_in("shop")

    assert taken_in() is None
    for batch_id, number in enumerate((-1, 9, 10)):
        batch = begin(log, driver, plan_of(driver, batch_id, source_to={"batch_no": number}))
        if number < 10:
            end(log, driver, batch, DONE)
    Incarnations(log.database).set_state(driver.incarnation, "closed")
    log.start()

    assert taken_in() == 9


def test_no_source_is_found_idle_while_a_batch_of_receive_is_begun(log: Log) -> None:
    """Its records are in time for windows that a marker before it would close. A killed driver leaves such a batch."""
    driver = log.start()
    nothing_waits = SimpleNamespace(behind=lambda taken_in: {"web"})

    def received(batch_id: int, source: str, largest: datetime | None) -> None:
        plan = plan_of(driver, batch_id, source_to={"version": batch_id, "source": source, "batch_no": batch_id})
        batch = Batches(log.database).begin(driver, "shop", plan, None, sources=("web", "till"))
        if largest is None:
            return
        assert batch.source_batch
        known = json.dumps(batch.source_batch.after(to_micros(largest)).told())
        after = to_time(batch.reached(to_micros(largest)).max_event_time)
        end(log, driver, batch, replace(
            DONE, max_event_time_after=after, source_progress_after=known, delta_version=batch_id
        ))  # fmt: skip

    def idle() -> bool:
        return loop.looked_idle(log.database, pipeline(), nothing_waits, datetime.now(UTC) + 2 * HOUR) is not None  # type: ignore[arg-type]

    received(0, "web", NOON)
    received(1, "till", NOON - HOUR)
    before = idle()
    received(2, "web", None)
    meanwhile = idle()
    received(2, "web", NOON - HOUR / 2)

    assert (before, meanwhile, idle()) == (True, False, True)


def test_new_source_that_never_sends_falls_idle(log: Log) -> None:
    """Also if no other source sends any more: the first search stores since when it is waited for."""
    driver, nothing_waits = log.start(), SimpleNamespace(behind=lambda taken_in: set())
    plan = plan_of(driver, 0, source_to={"version": 0, "source": "web", "batch_no": 0})
    batch = Batches(log.database).begin(driver, "shop", plan, None, sources=("web",))
    assert batch.source_batch
    known = json.dumps(batch.source_batch.after(to_micros(NOON)).told())
    end(log, driver, batch, replace(
        DONE, max_event_time_after=NOON - HOUR, source_progress_after=known, delta_version=0
    ))  # fmt: skip
    kept: list[int | None] = []

    for looks, hours in enumerate((1, 1, 9)):
        found = loop.looked_idle(log.database, pipeline(), nothing_waits, datetime.now(UTC) + hours * HOUR)  # type: ignore[arg-type]
        kept.append(found and found[0].max_event_time)
        if found:
            number, _, _ = WatermarkMarkers(log.database).begin(driver, "idle", *found)
            WatermarkMarkers(log.database).end(driver, number, 1 + looks)

    assert kept == [to_micros(NOON - HOUR), None, to_micros(NOON)]
