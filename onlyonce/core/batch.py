"""A batch: into how many partitions it is cut, what the log fixes before it is written, what a replay repeats. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.frontier import Frontier, Turn, after_batch
from onlyonce.core.stored_names import RESERVOIR_VERSION
from onlyonce.core.windows import Micros

WORTH_IT = 8 << 20
"""Bytes for which a separate task pays off: a core needs less time for fewer than a task and its transaction cost."""
FULL = 128 << 20
"""The most bytes of a partition, even if there are fewer cores, as long as the maximum allows it."""
A_RECORD = 100
"""The assumed bytes of a record if only the number of records is known."""


def partitions_of_batch(size: int, cores: int, most: int) -> int:
    """Return the number of partitions of a batch of about `size` bytes: a power of two, at most `most`.

    A small batch has one partition, a large one as many as `cores`, or more if its bytes need them. If `cores` or
    `most` is no power of two, the next lower one counts.

    Powers of two keep the look-ups in the catalog few. A look-up of a batch with P partitions in a batch with P'
    reads the chunks that match modulo the common divisor, which is then the smaller number. So it reads one chunk of
    a coarser batch, and P'/P chunks of a finer one, which hold ids of its own partition only. With 6 and 4 partitions
    half of what is read would be useless. All layouts of a bucket together have less than twice as many partitions
    as the finest one. The batch's row keeps the number, and a replay reads it from there.
    """
    by_cores = min(_up(-(-size // WORTH_IT)), _down(cores))
    return min(max(by_cores, _up(-(-size // FULL))), _down(most))


def _up(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def _down(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


# When registered input arrived, as its registry has it or as a person has corrected it.
#
# A driver's clock may have been ahead. Arrival times decide which ids are removed and which input is silent, so they
# never move back by themselves. `onlyonce doctor --fix --yes` corrects them, and the log keeps the correction.
# Registries are append-only and stay unchanged.


@dataclass(frozen=True)
class Corrections:
    """The corrected arrivals of an instance.

    arrival    the latest time at which the corrected input counts as arrived; None: nothing was corrected
    registered the last batch number of each registry at the time of the correction, by the registry's name
    """

    arrival: datetime | None = None
    registered: Mapping[str, int] = field(default_factory=dict)

    def of(self, registry: str, batch_no: int, seen: datetime) -> datetime:
        """Return when a batch of a registry arrived, given the time that the registry has."""
        if self.arrival is None or batch_no > self.registered.get(registry, -1):
            return seen
        return min(seen, self.arrival)

    def following(self, now: datetime, registry: str, batch_no: int | None, seen: datetime | None) -> datetime:
        """Return when input that is registered now arrives: never before the last batch of its registry."""
        return now if batch_no is None or seen is None else max(now, self.of(registry, batch_no, seen))


NOTHING = Corrections()


# What the log fixes of a batch before any of it is written, and the checks of a replay.


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
BY_POSITION = "by_position"
"""The mode of a receive batch whose records are identified by position: exactly once, without ids to keep."""

FIRST_READING = stored_names.FIRST_READING
"""Key in a position within an output's first reading of compacted rows: the version of `events` at which it ends."""


@dataclass(frozen=True)
class Plan:
    """The batch that a driver wants to write, before it asks the log.

    settings  the Spark settings that cut data
    facts     what was true of the source when the batch began, such as files that could not be read
    lookups   the versions of the tables that the functions get. The driver has asked the log for them before
              (`outputs.seeing`), so a replay sees the same

    A replay takes `settings` and `facts` from the log.
    """

    lineage: str
    batch_id: int
    source_from: dict[str, Any] | None
    source_to: dict[str, Any]
    offsets_hash: str
    partitions: int
    system_time: datetime
    bucket: int
    settings: dict[str, str]
    mode: str
    declaration_hash: str
    facts: dict[str, Any] = field(default_factory=dict)
    lookups: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """A batch as the log has it: the same for every attempt."""

    plan: Plan
    frontier: Frontier
    gc_floor: int
    state: str
    replayed: bool
    turn: Turn | None = None
    """The source's part of the frontier, if the pipeline has several sources and this is a receive batch."""

    def reached(self, largest: Micros | None) -> Frontier:
        """Return the frontier after the commit of this batch, given its largest kept event time."""
        return after_batch(self.frontier, self.turn, largest)

    @property
    def at_least_once(self) -> bool:
        """Return whether the batch began without catalog and claims; then it ends so, whatever is declared by now."""
        return self.plan.mode == AT_LEAST_ONCE

    @property
    def without_catalog(self) -> bool:
        """Return whether receive needs no ids: each record is kept or invalid by itself, without units."""
        return self.plan.mode != EXACTLY_ONCE

    @property
    def committed(self) -> bool:
        """Return whether an earlier attempt has committed it."""
        return self.state == "committed"


@dataclass(frozen=True)
class Outcome:
    """The result of a batch: its counts."""

    read: int | None = None
    kept: int | None = None
    invalid: int | None = None
    remnant: int | None = None
    duplicate: int | None = None
    unknown_fields: int | None = None
    in_time: int | None = None
    late: int | None = None
    tide_after: datetime | None = None
    delta_version: int | None = None
    written_again: int | None = None
    rejected: int | None = None
    source_tides_after: str | None = None
    """The progress of each source of a pipeline with several sources, as JSON."""


def check_replay(there: Plan, meant: Plan) -> None:
    """Raise Refused if a replay would read other offsets than the log has. The hash covers the whole offsets file."""
    if there.offsets_hash == meant.offsets_hash:
        return
    raise Refused(
        f"batch {meant.lineage}/{meant.batch_id} began with the offsets {there.source_to}, but the checkpoint now has "
        f"{meant.source_to} (or other settings) for it",
        data="nothing was written; the log is right about what was committed",
        hint="the checkpoint was restored from an older copy or edited. Put the right one back, or start a new life: "
        f"onlyonce lineage new {meant.lineage.rsplit('/', 1)[0]}",
    )


def check_lookups(there: Plan, meant: Plan) -> None:
    """Raise InvariantBroken if a replay would see another version of a lookup than the log has.

    Under another declaration `check_declaration` decides, so nothing is compared here.
    """
    for name in there.lookups:
        if there.declaration_hash == meant.declaration_hash and there.lookups[name] != meant.lookups.get(name):
            raise InvariantBroken(
                f"batch {meant.lineage}/{meant.batch_id} began with {there.lookups[name]} of the lookup {name}, "
                f"and its replay would see {meant.lookups.get(name)}",
                data="nothing was written",
                hint="run the same command again; if it happens again, this is a mistake of the platform: tell "
                "its authors",
            )


def check_declaration(there: Plan, meant: Plan, units: int) -> bool:
    """Return whether a begun batch must start over because the declaration has changed since and no unit has committed.

    Raise Refused if the declaration has changed and a unit has committed.
    """
    if there.declaration_hash == meant.declaration_hash:
        return False
    if units == 0:
        return True
    raise Refused(
        f"batch {meant.lineage}/{meant.batch_id} has {units} units committed under declaration "
        f"{there.declaration_hash}, "
        f"but the declaration now is {meant.declaration_hash}",
        data="the committed units stay; the batch is not finished",
        hint=f"run once with the declaration {there.declaration_hash} as it was (onlyonce.declarations has the "
        "source of its functions), so that the "
        "batch ends; then change it",
    )


def check_files(there: Plan, meant: Plan, units: int) -> bool:
    """Return whether a begun batch must start over because some of its files have become unreadable since.

    Raise Refused if a unit has committed: without the files the replay would not have the same data.
    """
    gone = sorted(meant.facts.keys() - there.facts.keys())
    if not gone or units == 0:
        return bool(gone)
    told = meant.facts[gone[0]]
    raise Refused(
        f"batch {meant.lineage}/{meant.batch_id} has {units} units committed, but {gone[0]} ({len(gone)} in all) "
        f"can't be read any more: {told['reason'] if isinstance(told, dict) else told}",
        data="the committed units stay; the batch is not finished, and no output reads past it",
        hint="put the file back as it was (also its time) and run again; or give the batch up and take in what is "
        f"there: onlyonce lineage new {meant.lineage.rsplit('/', 1)[0]}",
    )


def is_other(there: Plan, meant: Plan) -> bool:
    """Return whether a begun batch would have to start over if none of its units had committed."""
    return check_declaration(there, meant, 0) or check_files(there, meant, 0)


def check_receive(unique: str, outcome: Outcome) -> None:
    """Raise InvariantBroken unless receive's records add up: read = kept + invalid + remnant + duplicate."""
    parts = (outcome.kept, outcome.invalid, outcome.remnant, outcome.duplicate)
    if outcome.read == sum(part or 0 for part in parts):
        return
    raise InvariantBroken(
        f"batch {unique}: {outcome.read} records were in the input, but {parts} (kept, invalid, remnant, duplicate) "
        "have a fate",
        data="the batch is not marked as committed, and no output will read past it",
        hint="an input file may have changed while it was read; compare onlyonce.batches with the files of the batch",
    )


def check_output(unique: str, kept_pairs: int, outcome: Outcome) -> None:
    """Raise InvariantBroken unless an output's (record, window) pairs add up: kept = in time + late + rejected."""
    if kept_pairs == (outcome.in_time or 0) + (outcome.late or 0) + (outcome.rejected or 0):
        return
    rejected = "" if outcome.rejected is None else f", {outcome.rejected} rejected"
    raise InvariantBroken(
        f"batch {unique}: {kept_pairs} (record, window) pairs were kept by receive, but {outcome.in_time} are in time "
        f"and {outcome.late} late{rejected}",
        data="the batch is not marked as committed",
        hint="compare onlyonce.batches of receive with the rows of the table `events` for those batches",
    )


def read_upto(offset: dict[str, Any] | None) -> int:
    """Return the last version of a Delta table that an offset of Spark has read completely; -1 if there is none.

    An offset names the next version with a negative index, or the last file that was read of a version.
    """
    if offset is None:
        return -1
    version = int(offset[RESERVOIR_VERSION])
    return version if int(offset.get(stored_names.RESERVOIR_INDEX, 0)) >= 0 else version - 1


def closes_between(plan: Plan, earlier: Plan | None, closed_by: int) -> tuple[int, int]:
    """Return the two versions of `events` between whose frontiers a batch's stream closes windows.

    Spark closes windows by the rows that the batches before have read. `closed_by` is the version up to which an
    earlier life has closed windows; -1 if there is none.
    """
    opened = closed_by if earlier is None else max(read_upto(earlier.source_from), closed_by)
    return opened, read_upto(plan.source_from)


def first_reading(offset: dict[str, Any] | None) -> int | None:
    """Return the version of `events` at which an output's first reading of compacted rows ends.

    None if the position is not within that reading."""
    found = (offset or {}).get(FIRST_READING)
    return None if found is None else int(found)


def is_part(offset: dict[str, Any] | None) -> bool:
    """Return whether a position of an output is within its first reading of compacted rows."""
    return first_reading(offset) is not None


def to_micros(time: datetime | None) -> int | None:
    """Return whole microseconds since 1970."""
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def to_time(micros: int | None) -> datetime | None:
    """Return the aware UTC time of whole microseconds since 1970."""
    return None if micros is None else EPOCH + timedelta(microseconds=micros)
