"""Decide about a batch: its partitions, when its input arrived, and what a replay must repeat. Pure.

In this order:

1. `partitions_of_batch` decides into how many partitions a batch is cut.
2. `Corrections` decides when the input of a receive batch counts as arrived.
3. `Plan` is a batch as a driver wants to write it, `Batch` is a batch as stored in the log, `Outcome` its counts.
4. The functions `check_…` compare a replay with the log, and the counts with each other.
5. The functions at the end read the offsets of Spark and of Delta that a plan contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, overload

from onlyonce.core import stored_names
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.frontier import Frontier, SourceBatch, after_batch
from onlyonce.core.stored_names import RESERVOIR_VERSION
from onlyonce.core.windows import Micros

FACT_REASON, FACT_FROM = "reason", "from"
"""Keys of a fact of a batch: why input can't be read, and from which offset a range of a topic is read after a loss."""

WORTH_IT = 8 << 20
"""The bytes from which a separate task pays off. With fewer, a task and its transaction cost more than they save."""
FULL = 128 << 20
"""The most bytes of a partition. A larger batch has more partitions than cores, but never more than the maximum."""
A_RECORD = 100
"""The assumed bytes of a record if only the number of records is known."""


def partitions_of_batch(size: int, cores: int, most: int) -> int:
    """Return the number of partitions of a batch of about `size` bytes: a power of two, at most `most`.

    A small batch has one partition. A large one has as many as `cores`, or more if its bytes need them. If `cores` or
    `most` is not a power of two, the next lower power of two counts. The log stores the number, and a replay takes it
    from there.

    The number is a power of two so that look-ups in the id catalog read few ids without a match. The partition of an id
    is its upper half modulo the number of partitions. A batch with P partitions looks up ids in the chunks of an
    earlier batch with Q partitions. One of its partitions reads those chunks whose number agrees with its own modulo
    gcd(P, Q):

    - If Q is a power of two below P, that is one chunk. It also has ids of other partitions.
    - If Q is a power of two above P, these are Q/P chunks. All their ids belong to the partition.
    - With P = 4 and Q = 6 it would be 3 chunks, and half of their ids would belong to other partitions.

    Also, all numbers of partitions that one bucket can have (1, 2, 4, …) add up to less than twice the largest.
    """
    by_cores = min(_up(-(-size // WORTH_IT)), _down(cores))
    return min(max(by_cores, _up(-(-size // FULL))), _down(most))


def _up(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def _down(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


# When input arrived: as stored in its manifest, or as a person has corrected it.
#
# A manifest lists the input of one source, and stores when a driver has listed it. That driver's clock may have been
# ahead. Arrival times decide which ids are removed and which source is silent, so onlyonce never moves them back by
# itself. A person corrects them by `onlyonce doctor --fix --yes`. The log stores the correction, since manifests are
# append-only.


@dataclass(frozen=True)
class Corrections:
    """The corrected arrival times of an instance.

    arrival      the latest time at which corrected input counts as arrived; None: nothing was corrected
    registered   for each manifest, by its name, its last batch number when the correction was made. Input up to this
                 number is corrected
    """

    arrival: datetime | None = None
    registered: Mapping[str, int] = field(default_factory=dict)

    def of(self, manifest: str, batch_no: int, seen: datetime) -> datetime:
        """Return when a batch of a manifest arrived. `seen`: the time that the manifest has for it."""
        if self.arrival is None or batch_no > self.registered.get(manifest, -1):
            return seen
        return min(seen, self.arrival)

    def following(self, now: datetime, manifest: str, batch_no: int | None, seen: datetime | None) -> datetime:
        """Return the arrival time of input that is registered now: never before the arrival time of its manifest's last
        batch.

        batch_no, seen   the number and time of the last batch in the manifest; None if it has none
        """
        return now if batch_no is None or seen is None else max(now, self.of(manifest, batch_no, seen))


NOTHING = Corrections()


# What the log stores of a batch before any of its rows is written, so that a replay repeats it; and the checks of a
# replay.


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
BY_POSITION = "by_position"
"""The mode of a receive batch whose records are identified by position: exactly once, without ids to keep."""

FIRST_READING = stored_names.FIRST_READING
"""The key that marks a position inside an output's first reading of compacted commits (`outputs.events`).

Its value is the version of `events` at which that reading ends.
"""


@dataclass(frozen=True)
class Plan:
    """The batch that a driver wants to write, before it asks the log.

    source_from        the offset at which the batch begins to read, as Spark writes it; None: at the start
    source_to          the offset up to which it reads
    offsets_hash       the hash of the checkpoint's whole offsets file for this batch
    ingestion_time        when its input arrived; for an output the time of the driver
    bucket             the bucket of the id catalog for the ids that it keeps; 0 for an output
    settings           the Spark settings that decide how data is cut
    mode               EXACTLY_ONCE, AT_LEAST_ONCE or BY_POSITION
    declaration_hash   the fingerprint of the declaration and of its functions
    facts              what was true of the source when the batch began, such as which files could not be read
    lookups            the versions of the tables that the functions get. The driver has read them from the log before
                       (`outputs.lookups`), so a replay gets the same versions

    A replay takes `settings` and `facts` from the log.
    """

    incarnation: str
    batch_id: int
    source_from: dict[str, Any] | None
    source_to: dict[str, Any]
    offsets_hash: str
    partitions: int
    ingestion_time: datetime
    bucket: int
    settings: dict[str, str]
    mode: str
    declaration_hash: str
    facts: dict[str, Any] = field(default_factory=dict)
    lookups: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """A batch as stored in the log: the same for every attempt.

    frontier   the frontier before the batch, which is stored with each of its rows
    gc_floor   the oldest bucket of the id catalog that its look-ups read
    state      'begun' or 'committed'
    replayed   whether an earlier attempt began it
    """

    plan: Plan
    frontier: Frontier
    gc_floor: int
    state: str
    replayed: bool
    source_batch: SourceBatch | None = None
    """Which source the batch reads, and the progress of each source before it.

    None for an output, and if the pipeline has a single source.
    """

    def reached(self, largest: Micros | None) -> Frontier:
        """Return the frontier after the commit of this batch, given its largest kept event time."""
        return after_batch(self.frontier, self.source_batch, largest)

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
    """The result of a batch: its counts. A count that its query does not have is None."""

    read: int | None = None
    kept: int | None = None
    invalid: int | None = None
    expired: int | None = None
    duplicate: int | None = None
    unknown_fields: int | None = None
    in_time: int | None = None
    late: int | None = None
    max_event_time_after: datetime | None = None
    delta_version: int | None = None
    written_again: int | None = None
    rejected: int | None = None
    source_progress_after: str | None = None
    """The progress of each source of a pipeline with several sources, as JSON."""


def check_replay(there: Plan, meant: Plan) -> None:
    """Raise Refused if a replay would read other offsets than the log has. The hash covers the whole offsets file.

    In all these checks `there` is the plan in the log, and `meant` is the plan of the present attempt.
    """
    if there.offsets_hash == meant.offsets_hash:
        return
    raise Refused(
        f"batch {meant.incarnation}/{meant.batch_id} began with the offsets {there.source_to}, but the checkpoint now "
        f"has {meant.source_to} (or other settings) for it",
        data="nothing was written; the log is right about what was committed",
        hint="the checkpoint was restored from an older copy or edited. Put the right one back, or start a new "
        f"incarnation: onlyonce reset {meant.incarnation.rsplit('/', 1)[0]}",
    )


def check_lookups(there: Plan, meant: Plan) -> None:
    """Raise InvariantBroken if a replay would see another version of a lookup than the log has.

    Under another declaration `check_declaration` decides, so nothing is compared here.
    """
    for name in there.lookups:
        if there.declaration_hash == meant.declaration_hash and there.lookups[name] != meant.lookups.get(name):
            raise InvariantBroken(
                f"batch {meant.incarnation}/{meant.batch_id} began with {there.lookups[name]} of the lookup {name}, "
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
        f"batch {meant.incarnation}/{meant.batch_id} has {units} units committed under declaration "
        f"{there.declaration_hash}, but the declaration now is {meant.declaration_hash}",
        data="the committed units stay; the batch is not finished",
        hint=f"run once with the declaration {there.declaration_hash} as it was (onlyonce.declarations has the "
        "source of its functions), so that the batch ends; then change it",
    )


def check_files(there: Plan, meant: Plan, units: int) -> bool:
    """Return whether a begun batch must start over because some of its input has become unreadable since.

    Of a topic, more messages of a range may be gone now, or none after all. Raise Refused if a unit has committed and
    input is gone: without it the replay would not have the same data.
    """
    gone = sorted(
        name for name in meant.facts if name not in there.facts or _reads_from(meant, name) > _reads_from(there, name)
    )
    if units == 0:
        return bool(gone) or any(_reads_from(meant, name) != _reads_from(there, name) for name in there.facts)
    if not gone:
        return False
    told = meant.facts[gone[0]]
    raise Refused(
        f"batch {meant.incarnation}/{meant.batch_id} has {units} units committed, but {gone[0]} ({len(gone)} in all) "
        f"can't be read any more: {told[FACT_REASON] if isinstance(told, dict) else told}",
        data="the committed units stay; the batch is not finished, and no output reads past it",
        hint="put the file back as it was (also its time) and run again; or give the batch up and take in what is "
        f"there: onlyonce reset {meant.incarnation.rsplit('/', 1)[0]}",
    )


def _reads_from(plan: Plan, name: str) -> int:
    """Return the offset from which a range of a topic is read, if messages before it are lost; else 0."""
    fact = plan.facts.get(name)
    return int(fact.get(FACT_FROM, 0)) if isinstance(fact, dict) else 0


def is_other(there: Plan, meant: Plan) -> bool:
    """Return whether a begun batch would have to start over if none of its units had committed."""
    return check_declaration(there, meant, 0) or check_files(there, meant, 0)


def check_receive(unique: str, outcome: Outcome) -> None:
    """Raise InvariantBroken unless receive's records add up: read = kept + invalid + expired + duplicate."""
    parts = (outcome.kept, outcome.invalid, outcome.expired, outcome.duplicate)
    if outcome.read == sum(part or 0 for part in parts):
        return
    raise InvariantBroken(
        f"batch {unique}: {outcome.read} records were in the input, but {parts} (kept, invalid, expired, duplicate) "
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
    """Return the last version of a Delta table that is read completely up to an offset; -1 if there is none.

    An offset of Delta's stream is a version and an index. If the index is negative, the version is the next one to
    read. Otherwise the index is the index of the last file of the version that was read.
    """
    if offset is None:
        return -1
    version = int(offset[RESERVOIR_VERSION])
    return version if int(offset.get(stored_names.RESERVOIR_INDEX, 0)) >= 0 else version - 1


def closes_between(plan: Plan, earlier: Plan | None, closed_by: int) -> tuple[int, int]:
    """Return two versions of `events`: the batch writes the windows that close between the frontiers of the two.

    Spark's watermark in a batch comes from the rows that earlier batches have read. So a batch closes the windows up to
    the frontier of the version at which it begins to read. The batch before, `earlier`, has closed the windows up to
    the frontier of the version at which that one began; None: there was none.

    closed_by   the version by whose frontier an earlier incarnation has closed windows; -1 if there is none
    """
    opened = closed_by if earlier is None else max(read_upto(earlier.source_from), closed_by)
    return opened, read_upto(plan.source_from)


def first_reading(offset: dict[str, Any] | None) -> int | None:
    """Return the version of `events` at which an output's first reading of compacted commits ends (FIRST_READING).

    Return None if the position is not inside that reading.
    """
    found = (offset or {}).get(FIRST_READING)
    return None if found is None else int(found)


def is_part(offset: dict[str, Any] | None) -> bool:
    """Return whether a position of an output is inside its first reading of compacted commits."""
    return first_reading(offset) is not None


@overload
def to_micros(time: datetime) -> int: ...
@overload
def to_micros(time: None) -> None: ...
@overload
def to_micros(time: datetime | None) -> int | None: ...
def to_micros(time: datetime | None) -> int | None:
    """Return whole microseconds since 1970."""
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def bounds_in_micros(start: datetime | None, end: datetime | None) -> tuple[int, int]:
    """Return the bounds of a window in whole microseconds since 1970. A bound that is None is 0."""
    return to_micros(start) or 0, to_micros(end) or 0


@overload
def to_time(micros: int) -> datetime: ...
@overload
def to_time(micros: None) -> None: ...
@overload
def to_time(micros: int | None) -> datetime | None: ...
def to_time(micros: int | None) -> datetime | None:
    """Return the aware UTC time of whole microseconds since 1970."""
    return None if micros is None else EPOCH + timedelta(microseconds=micros)
