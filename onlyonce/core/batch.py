"""In how many partitions a batch is cut: by its size, by the cores there are, and up to a maximum. Pure.

The number is a power of two. The catalog answers a batch of P partitions from chunks of P' by their common divisor,
which of two powers of two is the smaller one: each look-up of the finer cut asks one chunk of a coarser batch, each of
the coarser cut asks P'/P chunks, which hold the ids of its own partition and no others. With 6 and 4, say, half of what
is asked would be in vain. And the layouts that a bucket can have, of all sizes of its batches, have together less than
twice as many partitions as the finest.

Who calls it: `RunContext.partitions_of`, when a batch begins. The batch's row keeps the number, and a replay takes it
from there.
"""

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
"""Bytes for which a task of its own pays: fewer take a core less time than its task and its transaction take."""
FULL = 128 << 20
"""Bytes that a partition has at most, also where there are not so many cores, as long as the maximum allows it."""
A_RECORD = 100
"""Bytes of a record where only the number of records is known: about."""


def partitions_of_batch(size: int, cores: int, most: int) -> int:
    """For a batch of about so many bytes: one while it is small, as many as the cores where it is large, more where its
    bytes ask for it, and never more than `most`.

    Where `cores` or `most` is no power of two, the one below it counts."""
    by_cores = min(_up(-(-size // WORTH_IT)), _down(cores))
    return min(max(by_cores, _up(-(-size // FULL))), _down(most))


def _up(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def _down(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


# When registered input arrived: as its registry has it, or as it was corrected after a driver's clock was ahead. Pure.
#
# Arrival times never move back by themselves: they decide which ids are removed and which input is silent. A correction
# is made by a person's command (`onlyonce doctor --fix --yes`), and is a fact of the log. Registries are append-only
# and stay as they are.


@dataclass(frozen=True)
class Corrections:
    """The corrected arrivals of an instance.

    arrival    when the corrected input counts as arrived, at the latest; None: nothing was corrected
    registered the number of the last batch that each registry had then, by the registry's name
    """

    arrival: datetime | None = None
    registered: Mapping[str, int] = field(default_factory=dict)

    def of(self, registry: str, batch_no: int, seen: datetime) -> datetime:
        """Return when a batch of a registry arrived, given what the registry says."""
        if self.arrival is None or batch_no > self.registered.get(registry, -1):
            return seen
        return min(seen, self.arrival)

    def following(self, now: datetime, registry: str, batch_no: int | None, seen: datetime | None) -> datetime:
        """Return when input that is registered now arrives, given the last batch of its registry: never before that
        one."""
        return now if batch_no is None or seen is None else max(now, self.of(registry, batch_no, seen))


NOTHING = Corrections()


# A batch: what the log fixes before any of it is written, and what a replay must repeat. Pure.


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
BY_POSITION = "by_position"
"""The mode of a receive batch whose records are their places: exactly once, without ids that must be kept."""

FIRST_READING = stored_names.FIRST_READING
"""In a position within an output's first reading of what was compacted: the version of `events` with which that reading
ends."""


@dataclass(frozen=True)
class Plan:
    """What a driver means to do in a batch, before it asks the log.

    `settings` are the Spark settings that cut data; `facts` what was true of the source when the batch began (files
    that could not be read). Both are taken from the log on a replay. `lookups` are the versions of the tables that the
    functions get: the driver has asked the log for them before (`outputs.seeing`), so a replay means the same.
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
    """Of a receive batch of one of several sources."""

    def reached(self, largest: Micros | None) -> Frontier:
        """The frontier once it is committed, with its largest kept event time."""
        return after_batch(self.frontier, self.turn, largest)

    @property
    def at_least_once(self) -> bool:
        """Whether it began without catalog and claims; then it ends so too, whatever is declared by now."""
        return self.plan.mode == AT_LEAST_ONCE

    @property
    def without_catalog(self) -> bool:
        """Whether receive has no ids to look up or to keep: each record is kept or invalid by itself, without units."""
        return self.plan.mode != EXACTLY_ONCE

    @property
    def committed(self) -> bool:
        """Whether an earlier attempt has ended it."""
        return self.state == "committed"


@dataclass(frozen=True)
class Outcome:
    """What came of a batch: counts, and whether they add up."""

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
    """How far each of several sources has come, as JSON."""


def check_replay(there: Plan, meant: Plan) -> None:
    """Refuse a replay that reads something else than the log says. The hash covers the whole offsets file."""
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
    """Raise InvariantBroken where a replay would see another version of a lookup than the log says.

    Under another declaration the batch is refused, or begins anew.
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
    """Whether a begun batch must begin anew because the declaration has changed since.

    True when it has changed and no unit has committed; raises Refused when one has.
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
    """Whether a begun batch must begin anew because files of it can't be read any more that could when it began.

    True when no unit has committed; raises Refused when one has: without the files the replay is not the same.
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
    """Whether a begun batch would begin anew, had no unit of it committed."""
    return check_declaration(there, meant, 0) or check_files(there, meant, 0)


def check_receive(unique: str, outcome: Outcome) -> None:
    """Conservation of receive: read = kept + invalid + remnant + duplicate. Raises InvariantBroken."""
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
    """Conservation of an output: kept = in time + late + rejected, in (record, window) pairs.

    Raises InvariantBroken.
    """
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
    """The last version of a Delta table that an offset of Spark's has read whole; -1 for none.

    An offset names the next version with a negative index, or the last file taken of a version.
    """
    if offset is None:
        return -1
    version = int(offset[RESERVOIR_VERSION])
    return version if int(offset.get(stored_names.RESERVOIR_INDEX, 0)) >= 0 else version - 1


def closes_between(plan: Plan, earlier: Plan | None, closed_by: int) -> tuple[int, int]:
    """Return two versions of `events`: a batch's stream closes the windows between their frontiers.

    Spark closes windows by what the batches before have read. `closed_by` is the version by which an earlier life has
    closed; -1 for none.
    """
    opened = closed_by if earlier is None else max(read_upto(earlier.source_from), closed_by)
    return opened, read_upto(plan.source_from)


def first_reading(offset: dict[str, Any] | None) -> int | None:
    """The version of `events` with which an output's first reading of what was compacted ends, where a position of it
    is within that; else None."""
    found = (offset or {}).get(FIRST_READING)
    return None if found is None else int(found)


def is_part(offset: dict[str, Any] | None) -> bool:
    """Whether a position of an output is one within its first reading of what was compacted."""
    return first_reading(offset) is not None


def to_micros(time: datetime | None) -> int | None:
    """Whole microseconds since 1970."""
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def to_time(micros: int | None) -> datetime | None:
    """The aware UTC time of whole microseconds since 1970."""
    return None if micros is None else EPOCH + timedelta(microseconds=micros)
