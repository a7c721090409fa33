"""Decides what is stuck, what that means for the data, and how it is safely repaired. Pure: rows in, findings out.

A healthy platform has no finding, whether it works or is idle. Work is not stuck while a driver of its instance has a
database session, or was heard of within the grace time. A driver that is just starting has no session yet. Then its
work counts as stuck, and a second run may be started beside it; that does no harm.

Who calls it: `onlyonce.operate.doctor`. Errors: none. Not promised: that a repair succeeds. It is a command that may
fail like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onlyonce.model.errors import OnlyonceError
from onlyonce.model.operate.finding import FIX, By, Finding, Repair, new_life
from onlyonce.model.operate.stuck import (
    Begun,
    BegunBackfill,
    BegunBatch,
    BegunRelease,
    LiveQuery,
    OrphanUnits,
    UnevenBucket,
    Waits,
)
from onlyonce.model.operate.waiting import waiting

RESTORE = "restore PostgreSQL, the tables and the checkpoints from one moment"


@dataclass(frozen=True)
class Evidence:
    """What was seen. `queries`, `begun`, `orphans`, `uneven` and `waits` are rows of the log.

    checkpoints    what is wrong with the checkpoint of a lineage
    landed         (lineage, table) → the highest batch of the lineage that a Delta table holds
    vouched        instance → the version of `events` that the log vouches for; `events` → the one that is there
    unreadable     path of a Delta table → why it can't be read
    forgotten      folder → why the log should know of it
    changed        lineage → why it can't go on as its query is declared now
    redeclared     lineages whose begun batch began under another declaration than today's
    filters        (instance, chunk, ids) of damaged filters
    temporaries    instance, or a store's prefix → files that a killed process left
    tables         (pipeline, output) → why its table can't take its rows
    functions      pipeline → why its functions let no run begin, such as one that is missing
    skipped        pipeline → folders below its inbox that no run reads, in words
    """

    declared: frozenset[str]
    queries: Sequence[LiveQuery] = ()
    begun: Begun = field(default_factory=Begun)
    orphans: Sequence[OrphanUnits] = ()
    uneven: Sequence[UnevenBucket] = ()
    vouched: Mapping[str, int] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)
    checkpoints: Mapping[str, OnlyonceError] = field(default_factory=dict)
    landed: Mapping[tuple[str, str], int] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    forgotten: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, OnlyonceError] = field(default_factory=dict)
    redeclared: frozenset[str] = frozenset()
    filters: list[tuple[str, Any, int]] = field(default_factory=list)
    temporaries: Mapping[str, list[str]] = field(default_factory=dict)
    waits: Waits = field(default_factory=Waits)
    skipped: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[tuple[str, str], OnlyonceError] = field(default_factory=dict)
    functions: Mapping[str, OnlyonceError] = field(default_factory=dict)


def findings(seen: Evidence, grace_seconds: float) -> list[Finding]:
    """All that is stuck; what must be mended first comes first."""
    # A driver opens the queries of its instance one after the other, so none of them is left as long as one has a
    # session.
    at_work = {query.instance for query in seen.queries if query.at_work}
    resting = {query.lineage: query for query in seen.queries if query.instance not in at_work}
    first = [*_forgotten(seen, resting), *_lives(seen, resting)]
    blocked = {finding.where for finding in first}
    later = [
        *_begun(seen, resting, blocked, grace_seconds),
        *_catalog(seen),
        *_left(seen, at_work),
        *_skipped(seen),
        *_functions(seen),
        *_tables(seen),
    ]
    return [*first, *later, *waiting(seen.waits, seen.declared, at_work, grace_seconds)]


def _lives(seen: Evidence, resting: Mapping[str, LiveQuery]) -> Iterator[Finding]:
    """Lineages whose next run would be refused."""
    ahead = {lineage for (lineage, _), batch in seen.landed.items() if _is_ahead(resting.get(lineage), batch)}
    for lineage, query in resting.items():
        if lineage in ahead:
            continue
        target = f"{query.instance}/{query.query}"
        if query.state == "damaged":
            what = (
                f"lineage {lineage} is marked damaged: Spark dropped rows as late that the platform had judged in time"
            )
            data = "what it wrote before is in the log; its open windows may lack rows, and no run of it begins"
            yield Finding("damaged lineage", lineage, what, data, new_life(target))
        elif lineage in seen.checkpoints:
            error = seen.checkpoints[lineage]
            way_out = new_life(target) if "onlyonce lineage new" in error.hint else Repair(error.hint)
            data = "no run of it begins, so what came since is in no result; what is committed stays as it is"
            yield Finding("checkpoint", lineage, error.what, data, way_out)
        elif lineage in seen.changed:
            error = seen.changed[lineage]
            data = f"no run of {query.pipeline} begins. {error.data}"
            yield Finding("changed declaration", lineage, error.what, data, Repair(f"onlyonce plan {query.pipeline}"))


def _forgotten(seen: Evidence, resting: Mapping[str, LiveQuery]) -> Iterator[Finding]:
    """The log and the tables are of different moments."""
    data = "the tables hold rows that the log does not vouch for; a new life would write them again"
    for (lineage, table), batch in seen.landed.items():
        query = resting.get(lineage)
        if _is_ahead(query, batch):
            assert query is not None
            what = (
                f"the table {table} holds batch {batch} of lineage {lineage}, but the log knows none after "
                f"{query.begun}"
            )
            yield Finding(
                "log behind the tables", lineage, what, data, Repair(f"PostgreSQL is of an older backup: {RESTORE}")
            )
    for folder, reason in seen.forgotten.items():
        what = f"{folder}: {reason}"
        yield Finding(
            "log behind the tables", folder, what, data,
            Repair(f"PostgreSQL was emptied or is another one (ONLYONCE_DATABASE_URL): {RESTORE}"),
        )  # fmt: skip
    for path, reason in seen.unreadable.items():
        data = "no run can read or write it"
        yield Finding(
            "unreadable table", path, f"the Delta table {path} can't be read: {reason}", data, Repair(RESTORE)
        )
    readable = {i: v for i, v in seen.vouched.items() if not any(p.endswith(f"/{i}/events") for p in seen.unreadable)}
    for instance, version in readable.items():
        if seen.events.get(instance, -1) < version:
            there = f"version {seen.events[instance]}" if instance in seen.events else "no table"
            what = f"the log vouches for version {version} of `events` of {instance}, but there is {there}"
            data = "rows of committed batches are not in `events`: outputs and backfills would miss them without a word"
            yield Finding("tables behind the log", instance, what, data, Repair(RESTORE))


def _is_ahead(query: LiveQuery | None, batch: int) -> bool:
    return query is not None and batch > (-1 if query.begun is None else query.begun)


def _begun(seen: Evidence, resting: Mapping[str, LiveQuery], blocked: set[str], grace: float) -> Iterator[Finding]:
    """What began, did not end, and has no driver at work."""
    for batch in seen.begun.batches:
        query = resting.get(batch.lineage)
        if query is None or batch.quiet_seconds < grace:
            continue
        where = f"{batch.lineage}/{batch.batch_id}"
        repair = _run(seen, query, batch, blocked)
        what = f"batch {where} began (run {batch.run_id}), is not committed, and no driver of its lineage is at work"
        data = "nothing is lost or doubled, but what it read is in no result yet, and what comes after it waits"
        yield Finding("begun batch", where, what, data, repair)
        if batch.dead:
            what = f"{batch.dead} unit(s) of batch {where} are committed by epoch {batch.epochs}, whose driver is dead"
            data = _half_written(query)
            yield Finding("units of a dead epoch", where, what, data, repair)
    for close in seen.begun.closes:
        query = resting.get(close.lineage)
        if query is not None and close.quiet_seconds >= grace:
            where = f"{close.lineage}/close/{close.close_no}"
            what = f"close {where} began (run {close.run_id}) and is not in the log as done"
            data = "windows that it would close stay open; nothing is lost"
            yield Finding("begun close", where, what, data, _run(seen, query, None, blocked))
    for backfill in seen.begun.backfills:
        if not backfill.at_work and backfill.quiet_seconds >= grace:
            yield _backfill(seen, backfill)
    for release in seen.begun.releases:
        if release.quiet_seconds >= grace:
            yield _release(seen, release)


def _half_written(query: LiveQuery) -> str:
    if query.query == "receive":
        return (
            "their ids are in the catalog, and their rows may not be in `events` yet; a replay sees that and "
            "writes them"
        )
    return (
        "a reader of a PostgreSQL sink sees these rows before the rest of their batch; a replay compares the units and "
        "goes on, so none is there twice"
    )


def _run(seen: Evidence, query: LiveQuery, batch: BegunBatch | None, blocked: set[str]) -> Repair:
    pipeline, instance = query.pipeline, query.instance
    arguments = (pipeline, "--bounded") if instance != pipeline else (pipeline,)
    command = f"onlyonce run {' '.join(arguments)}"
    others = {q.lineage for q in seen.queries if q.instance == instance}
    if batch and batch.units and query.lineage in seen.redeclared:
        return Repair(f"put the declaration back as it was ({batch.declaration_hash}), then: {command}")
    if pipeline not in seen.declared:
        return Repair(f"declare {pipeline} again (ONLYONCE_PIPELINES), then: {command}")
    if stuck := sorted(blocked & (others | {instance})):
        return Repair(f"first the repair of {stuck[0]}, then: {command}")
    return Repair(command, "run", arguments)


def _backfill(seen: Evidence, backfill: BegunBackfill) -> Finding:
    instance, output = backfill.instance, backfill.output
    what = f"the backfill {backfill.lineage} began (run {backfill.run_id}), and its driver has ended"
    data = "one sink of these windows may have the new generation and another the old; each shows a whole one"
    times = tuple(f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in (backfill.window_from, backfill.window_to))
    arguments: tuple[str, ...] = (instance, "--output", output, "--from", times[0], "--to", times[1])
    by: By = "backfill"
    if backfill.asked_by != "person":
        arguments, by = (instance,), "run"
    command = f"onlyonce {by} {' '.join(arguments)}"
    repair = (
        Repair(command, by, arguments) if instance in seen.declared else Repair(f"declare {instance}, then: {command}")
    )
    return Finding("begun backfill", backfill.lineage, what, data, repair)


def _release(seen: Evidence, release: BegunRelease) -> Finding:
    where = f"{release.instance}, release {release.release_no}"
    what = f"release {release.release_no} of {release.instance} took its rows and has put no file into the inbox"
    data = "these rows can't be released by another; they go in once, when it is finished"
    arguments = (release.instance, f"--{release.kind}", "--yes")
    command = f"onlyonce release {' '.join(arguments)}"
    known = release.instance in seen.declared
    repair = Repair(command, "release", arguments) if known else Repair(f"declare {release.instance}, then: {command}")
    return Finding("begun release", where, what, data, repair)


def _catalog(seen: Evidence) -> Iterator[Finding]:
    for row in seen.uneven:
        where = f"{row.lineage}, bucket {row.bucket}"
        place = (row.instance, row.lineage, row.bucket)
        repair = Repair(FIX, "ids", place)
        what = f"the catalog has {row.there} ids of {where}, and its batches have kept {row.said}"
        if row.there < row.said and not row.unknown:
            data = "a re-delivery of a record whose id is missing would be kept a second time"
        elif row.unknown:
            data = "a record whose id is there without a batch is taken for a duplicate, and may be in no result"
            repair = Repair(
                "a person must look: was the log restored, or a batch deleted by hand? onlyonce trace tells of a record"
            )
        else:
            data = "none: ids that are there twice cost look-ups only"
        yield Finding("uneven catalog", where, what, data, repair)
    by_instance: dict[str, list[Any]] = {}
    for instance, key, _ in seen.filters:
        by_instance.setdefault(instance, []).append(key)
    for instance, keys in by_instance.items():
        what = (
            f"{len(keys)} chunk(s) of the catalog of {instance} without a filter, or with one that fails its checksum"
        )
        data = "none: the ids are whole, and each look-up that meets such a chunk makes its filter again"
        yield Finding("damaged filters", instance, what, data, Repair(FIX, "filter", (instance, *keys)))


def _left(seen: Evidence, at_work: set[str]) -> Iterator[Finding]:
    for row in seen.orphans:
        where = f"{row.lineage}/{row.batch_id}"
        what = f"{row.units} unit(s) of {where} are in the log, and no batch of them is"
        data = "rows may be in a sink of which nobody knows what they belong to"
        yield Finding("units without a batch", where, what, data, Repair("onlyonce audit; then a person must look"))
    for instance, files in seen.temporaries.items():
        if files and instance not in at_work:
            what = f"{len(files)} file(s) that a killed process left, the first: {files[0]}"
            data = "none: nobody reads them; they take room"
            repair = Repair(f"{FIX} --yes", "files", tuple(files), for_good=True)
            yield Finding("stale temporaries", instance, what, data, repair)


def _functions(seen: Evidence) -> Iterator[Finding]:
    """Yield the pipelines with functions that let no run begin, unless a changed declaration says so already."""
    known = {error.what for error in seen.changed.values()}
    for pipeline, error in seen.functions.items():
        if error.what not in known:
            data = (
                f"no run of {pipeline} begins, so what comes is in no result until then; what is committed stays as it "
                "is"
            )
            yield Finding("refused function", pipeline, error.what, data, Repair(error.hint))


def _tables(seen: Evidence) -> Iterator[Finding]:
    """Yield the tables that can't take the rows of their outputs as they are now."""
    data = (
        "no batch of this output begins; receive and the other outputs go on, and its rows follow once the table "
        "can take them"
    )
    for (pipeline, output), error in seen.tables.items():
        yield Finding("refused table", f"{pipeline}/{output}", error.what, data, Repair(error.hint))


def _skipped(seen: Evidence) -> Iterator[Finding]:
    """Folders below an inbox that no run reads."""
    for pipeline, what in seen.skipped.items():
        yield Finding(
            "skipped folders", pipeline, what, "what these folders hold is in no result; everything else is complete",
            Repair("declare Files(recursive=True) to read them, or move them out of the inbox"),
        )  # fmt: skip
