"""Decide what is stuck, what that means for the data, and how it is repaired safely. Pure: rows in, findings out.

A healthy platform has no finding, whether it is working or idle. `onlyonce.operate.doctor` collects the evidence and
carries out the repairs. A repair is a command, and may fail as any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any, Literal

from onlyonce.core.errors import OnlyonceError
from onlyonce.core.stuck import (
    Begun,
    BegunBackfill,
    BegunBatch,
    BegunReprocessing,
    GivenUpRows,
    InputAhead,
    LiveQuery,
    LostLongRun,
    OpenSubscription,
    OrphanUnits,
    OutputDown,
    SinkAway,
    UndeliveredRows,
    UnevenBucket,
    UnreadInput,
    WaitingFiles,
    Waits,
)

By = Literal[
    "person",
    "run",
    "backfill",
    "reprocess",
    "incarnation",
    "migrate",
    "filter",
    "ids",
    "files",
    "drop",
    "finalize",
    "deliver",
    "arrivals",
]
FIX = "onlyonce doctor --fix"


@dataclass(frozen=True)
class Repair:
    """The exact command, and what runs for `--fix`: an entry point with arguments, or nothing if a person must act.

    for_good   the repair can't be undone: it removes something, such as a checkpoint's incarnation, or sends rows
               outside. It is done only with `--yes`
    """

    command: str
    by: By = "person"
    arguments: tuple[Any, ...] = ()
    for_good: bool = False


@dataclass(frozen=True)
class Finding:
    """One stuck thing: its kind, where it is, what happened, what it means for the data, and the repair."""

    kind: str
    where: str
    what: str
    data: str
    repair: Repair

    @property
    def key(self) -> tuple[str, str]:
        """Return what identifies the same finding in two runs of the doctor."""
        return self.kind, self.where

    def row(self) -> dict[str, Any]:
        """Return the finding as plain values, for a table and for JSON."""
        by_fix = "no" if self.repair.by == "person" else "with --yes" if self.repair.for_good else "yes"
        return {
            "finding": self.kind, "where": self.where, "what": self.what, "data": self.data,
            "repair": self.repair.command, "fix": by_fix,
        }  # fmt: skip


def new_incarnation(target: str) -> Repair:
    """Return the repair of an incarnation that can't continue. It gives up the checkpoint, so a person must confirm
    it.
    """
    return Repair(f"onlyonce reset {target} --yes", "incarnation", (target,), for_good=True)


def views_missing(missing: Iterable[str]) -> Finding:
    """Return the finding of a database that lacks tables, or has the views of another version."""
    return Finding(
        "missing views", "PostgreSQL", f"the database lacks: {', '.join(missing)}",
        "none; the next run makes them, and without them this can't look further", Repair(FIX, "migrate"),
    )  # fmt: skip


def half_dropped(instance: str, query: str | None, places: list[str]) -> Finding:
    """Return the finding of a drop that was killed: the log has forgotten places that still hold data."""
    arguments = (instance, *(("--output", query) if query else ()), "--yes")
    command = f"onlyonce drop {' '.join(arguments)}"
    what = f"a drop has not ended; still to be removed: {', '.join(places)}"
    return Finding(
        "begun drop", instance, what, "none; the log knows it no more", Repair(command, "drop", arguments, True)
    )


def wider_permissions(where: str, found: int, allowed: int) -> Finding:
    """Return the finding of a folder of the embedded home that other users of the machine may enter."""
    return Finding(
        "permissions", where, f"its permissions are {found:o}: other users of this machine may enter or read it",
        "none is lost; they may read records, logs and state", Repair(f"chmod {allowed:o} {where}"),
    )  # fmt: skip


def shared_account(where: str, account: str) -> Finding:
    """Return the finding of an embedded server's data that belongs to an account which other services share."""
    command = f"onlyonce down && useradd --system postgres && chown --recursive postgres: {where} && onlyonce up"
    return Finding(
        "permissions", where, f"it belongs to the account {account}, which other services of this machine may have too",
        "none is lost; such a service may read and change the database's files", Repair(command),
    )  # fmt: skip


def other_version(where: str, what: str) -> Finding:
    """Return the finding of an installed part that does not fit another one."""
    return Finding("versions", where, what, "runs fail, or use versions that are not tested", Repair("make env"))


# Work that waits for a command which has not run. It is a lost long run, an output without progress, files without
# final names, rows of the outbox, or messages of Pub/Sub.
#
# This work is only waiting, not half done. A finding names the command that should have run, and the doctor may run it.
# Work that has waited only for a short time is not a finding: its task or schedule may just be late.


HOUR = timedelta(hours=1).total_seconds()
DAY = timedelta(days=1).total_seconds()


def waiting(
    rows: Waits, declared: Collection[str], at_work: Collection[str], grace_seconds: float
) -> Iterator[Finding]:
    """Yield findings for work that has waited for too long.

    `at_work`: instances with a running driver.
    """
    for run in rows.long_runs:
        if run.instance not in at_work and run.quiet_seconds >= grace_seconds:
            yield _lost(run, declared)
    for output in rows.down:
        yield _down(output, declared)
    for files in rows.files:
        if files.waiting_seconds > HOUR:
            yield _files(files)
    for given_up in rows.given_up:
        yield _given_up(given_up, declared)
    for undelivered in rows.undelivered:
        if undelivered.quiet_seconds > HOUR and not undelivered.at_work:
            yield _undelivered(undelivered, declared)
    for subscription in rows.subscriptions:
        if subscription.held_seconds > DAY:
            yield _held(subscription, declared)
    for ahead in rows.ahead:
        yield _ahead(ahead)
    for unread in rows.unread:
        if unread.pipeline not in at_work and (found := _unread(unread)):
            yield found
    for away in rows.away:
        if away.batch.incarnation.rsplit("/", 2)[0] not in at_work and away.batch.quiet_seconds >= grace_seconds:
            yield _not_asked(away)


def _ahead(row: InputAhead) -> Finding:
    name = row.instance
    what = (
        f"the ingestion time of {name} is {_long(row.ahead_seconds)} ahead of PostgreSQL's clock: a driver's "
        "clock was wrong"
    )
    data = (
        "nothing is lost or doubled; until the clock catches up no id is removed, no idle source is passed over, and "
        "`max_ahead` accepts later event times. The repair lets what is registered count as arrived now: the ids of "
        "these batches stay in the catalog until the clock catches up; ids that were removed stay removed, and a "
        "watermark that an accepted event time has moved does not move back"
    )
    return Finding("ingestion time ahead", name, what, data, Repair(f"{FIX} --yes", "arrivals", (name,), for_good=True))


def _unread(row: UnreadInput) -> Finding | None:
    where, name = f"{row.pipeline}/{row.stage}", row.pipeline
    if row.no_answer is not None:
        what = f"the source of {where} did not answer: {row.no_answer}"
        data = (
            "nothing is lost; it is not known how much of its input is unread, and no run can read it until it answers"
        )
        return Finding("source away", where, what, data, Repair(f"when it answers again: onlyonce run {name}"))
    if row.waiting_seconds <= row.bound_seconds:
        return None
    since = "" if row.waiting_seconds == float("inf") else f", the oldest for {_long(row.waiting_seconds)}"
    what = f"{row.amount} of the source of {where} are unread{since}, and no driver of {name} is running"
    data = "nothing is lost as long as the source keeps it; it is in no result until a run reads it"
    command = f"onlyonce run {name}, or onlyonce resume {name} if its schedule is held"
    return Finding("unread input", where, what, data, Repair(command))


def _lost(row: LostLongRun, declared: Collection[str]) -> Finding:
    name = row.instance
    what = (
        f"the continuous run of {name} is lost: the heartbeat of attempt {row.attempt} on {row.driver} ended "
        f"{_long(row.quiet_seconds)} ago, and it was not started again"
    )
    data = "nothing is lost or doubled; new input waits until a continuous run or a run once reads it"
    # A run once does not end a continuous run, so without the stop this finding would never go away.
    command = (
        f"onlyonce run {name} --continuous, or its DAG in the mode continuous. If it must not continue: "
        f"onlyonce stop {name} --shell, then onlyonce run {name}"
    )
    return Finding("lost long run", name, what, data, _by_hand(row.pipeline, declared, command))


def _down(row: OutputDown, declared: Collection[str]) -> Finding:
    where = f"{row.instance}/{row.output}"
    what = f"output {where} of the continuous run stands still: {row.why}"
    data = "nothing is lost or doubled; the other outputs continue, and what this one owes stays in `events`"
    command = (
        f"fix that (the driver's log has all of the error); then onlyonce stop {row.instance}, and start it again, "
        "unless it is up again by itself"
    )
    return Finding("output stands still", where, what, data, _by_hand(row.pipeline, declared, command))


def _files(row: WaitingFiles) -> Finding:
    where = f"{row.instance}/{row.output}"
    what = (
        f"{row.files} file(s) of {where} in {row.place} wait for their final names, the first for "
        f"{_long(row.waiting_seconds)}"
    )
    data = "nothing is lost; their batches are committed, and readers lack these rows until the files have their names"
    name = row.pipeline
    return Finding(
        "files without final names", where, what, data, Repair(f"onlyonce finalize {name}", "finalize", (name,))
    )


def _given_up(row: GivenUpRows, declared: Collection[str]) -> Finding:
    where = f"{row.instance}/{row.output}"
    dead = row.state == "dead"
    words = "dead letter(s): they are not sent again" if dead else "row(s) that the server rejects"
    what = f"the outbox has {row.rows} {words} of {where}; the last answer: {row.answer}"
    data = "they are kept in the outbox and not known to be at their target; later rows of their keys may have gone on"
    if row.unanswered:
        data += f". {row.unanswered} of them had an attempt without an answer, and may be there"
    command = f"when the cause is gone: onlyonce deliver {row.instance} --output {row.output} --retry-dead"
    return Finding(
        "dead letters" if dead else "rejected rows", where, what, data, _by_hand(row.pipeline, declared, command)
    )


def _undelivered(row: UndeliveredRows, declared: Collection[str]) -> Finding:
    where, name = f"{row.instance}/{row.output}", row.instance
    what = (
        f"{row.rows} row(s) of {where} wait in the outbox, and no deliverer has tried to send one for "
        f"{_long(row.quiet_seconds)}"
    )
    data = "nothing is lost; they are not at their target yet, and are sent in order, each under its own key"
    command = f"onlyonce deliver {name}"
    repair = Repair(command, "deliver", (name,), for_good=True)
    if row.pipeline not in declared:
        repair = _by_hand(row.pipeline, declared, command)
    return Finding("undelivered rows", where, what, data, repair)


def _held(row: OpenSubscription, declared: Collection[str]) -> Finding:
    what = (
        f"{row.messages} pulled message(s) of {row.subscription} are not known to be acknowledged, the first for "
        f"{_long(row.held_seconds)}"
    )
    data = (
        "nothing is lost or doubled: they may come again, so no record id seen since the pull is removed, and the "
        f"catalog of {row.pipeline} grows"
    )
    ends = f"{row.lapses_at:%Y-%m-%dT%H:%M:%SZ}"
    command = f"onlyonce pull {row.pipeline} acknowledges what comes again; it ends by itself at {ends}"
    return Finding("held catalog", row.subscription, what, data, _by_hand(row.pipeline, declared, command))


def _not_asked(row: SinkAway) -> Finding:
    data = "it is not known whether that sink has rows of the begun batch, so the batch and a new incarnation wait"
    where, error = f"{row.batch.incarnation}/{row.batch.batch_id}", row.error
    return Finding("sink away", where, error.what, data, Repair(error.hint))


def _by_hand(pipeline: str, declared: Collection[str], command: str) -> Repair:
    if pipeline in declared:
        return Repair(command)
    return Repair(f"declare {pipeline} again (ONLYONCE_PIPELINES), then: {command}")


def _long(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


# The findings from the evidence of the log, the tables and the checkpoints.
#
# Work is not stuck while a driver of its instance has a database session, or if it has been quiet for less than the
# grace time. A driver that is just starting has no session yet. Then its work counts as stuck, and a repair may start a
# second run at the same time; that does no harm.


RESTORE = "restore PostgreSQL, the tables and the checkpoints from one moment"


@dataclass(frozen=True)
class Evidence:
    """The facts that the doctor has read. `queries`, `begun`, `orphans`, `uneven` and `waits` are rows of the log.

    checkpoints    incarnation → what is wrong with its checkpoint
    landed         (incarnation, table) → the highest batch of the incarnation that a Delta table holds
    vouched        instance → the version of `events` that the log vouches for
    events         instance → the version that `events` has
    unreadable     path of a Delta table → why it can't be read
    forgotten      folder → why the log should have an entry for it
    changed        incarnation → why it can't continue as its query is declared now
    redeclared     incarnations whose begun batch began under another declaration than the current one
    filters        (instance, chunk, ids) of damaged filters
    temporaries    instance, or a store's prefix → files that a killed process left
    tables         (pipeline, output) → why its table can't take its rows
    functions      pipeline → why its functions prevent each run, such as a missing one
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

    @property
    def pipelines(self) -> frozenset[str]:
        """Return the pipelines that a declaration or the log knows."""
        return self.declared | {name.partition("@")[0] for name in (*self.vouched, *(q.instance for q in self.queries))}


def of_pipeline(found: Iterable[Finding], pipeline: str | None, known: Collection[str]) -> list[Finding]:
    """Return the findings of a pipeline with its bounded runs, and those that no pipeline of `known` can be named for.

    None stands for all pipelines.
    """
    others = frozenset() if pipeline is None else frozenset(known) - {pipeline}
    return [one for one in found if one.where.partition("/")[0].partition("@")[0] not in others]


def findings(seen: Evidence, grace_seconds: float) -> list[Finding]:
    """Return all that is stuck; what must be repaired first comes first."""
    # A driver opens the queries of its instance one after the other, so none of them is left as long as one has a
    # session.
    at_work = {query.instance for query in seen.queries if query.at_work}
    resting = {query.incarnation: query for query in seen.queries if query.instance not in at_work}
    first = [*_forgotten(seen, resting), *_incarnations(seen, resting)]
    blocked = {finding.where for finding in first}
    later = [
        *_begun(seen, resting, blocked, grace_seconds),
        *_without_progress(seen),
        *_catalog(seen),
        *_left(seen, at_work),
        *_skipped(seen),
        *_functions(seen),
        *_tables(seen),
    ]
    return [*first, *later, *waiting(seen.waits, seen.declared, at_work, grace_seconds)]


def _incarnations(seen: Evidence, resting: Mapping[str, LiveQuery]) -> Iterator[Finding]:
    """Yield the incarnations whose next run would be refused."""
    ahead = {
        incarnation for (incarnation, _), batch in seen.landed.items() if _is_ahead(resting.get(incarnation), batch)
    }
    for incarnation, query in resting.items():
        if incarnation in ahead:
            continue
        target = f"{query.instance}/{query.query}"
        if query.state == "damaged":
            what = f"incarnation {incarnation} is marked damaged: Spark dropped rows as late that were in time"
            data = "what it wrote before is in the log; its open windows may lack rows, and no run of it begins"
            yield Finding("damaged incarnation", incarnation, what, data, new_incarnation(target))
        elif incarnation in seen.checkpoints:
            error = seen.checkpoints[incarnation]
            way_out = new_incarnation(target) if "onlyonce reset" in error.hint else Repair(error.hint)
            data = "no run of it begins, so what came since is in no result; what is committed stays as it is"
            yield Finding("checkpoint", incarnation, error.what, data, way_out)
        elif incarnation in seen.changed:
            error = seen.changed[incarnation]
            data = f"no run of {query.pipeline} begins. {error.data}"
            yield Finding(
                "changed declaration", incarnation, error.what, data, Repair(f"onlyonce plan {query.pipeline}")
            )


def _forgotten(seen: Evidence, resting: Mapping[str, LiveQuery]) -> Iterator[Finding]:
    """Yield the places where the log is older than the tables."""
    data = "the tables hold rows that the log does not vouch for; a new incarnation would write them again"
    for (incarnation, table), batch in seen.landed.items():
        query = resting.get(incarnation)
        if _is_ahead(query, batch):
            assert query is not None
            what = (
                f"the table {table} holds batch {batch} of incarnation {incarnation}, but the log knows none after "
                f"{query.begun}"
            )
            yield Finding(
                "log behind the tables", incarnation, what, data, Repair(f"PostgreSQL is of an older backup: {RESTORE}")
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
    """Yield what began, did not end, and has no running driver."""
    for batch in seen.begun.batches:
        query = resting.get(batch.incarnation)
        if query is None or batch.quiet_seconds < grace:
            continue
        where = f"{batch.incarnation}/{batch.batch_id}"
        repair = _run(seen, query, batch, blocked)
        what = (
            f"batch {where} began (run {batch.run_id}), is not committed, and no driver of its incarnation is running"
        )
        data = "nothing is lost or doubled, but what it read is in no result yet, and what comes after it waits"
        yield Finding("begun batch", where, what, data, repair)
        if batch.dead:
            what = f"{batch.dead} unit(s) of batch {where} are committed by epoch {batch.epochs}, whose driver is dead"
            data = _half_written(query)
            yield Finding("units of a dead epoch", where, what, data, repair)
    for marker in seen.begun.markers:
        query = resting.get(marker.incarnation)
        if query is not None and marker.quiet_seconds >= grace:
            where = f"{marker.incarnation}/marker/{marker.marker_no}"
            what = f"watermark marker {where} began (run {marker.run_id}) and is not in the log as done"
            data = "windows that it would close stay open; nothing is lost"
            yield Finding("begun watermark marker", where, what, data, _run(seen, query, None, blocked))
    for backfill in seen.begun.backfills:
        if not backfill.at_work and backfill.quiet_seconds >= grace:
            yield _backfill(seen, backfill)
    for reprocessing in seen.begun.reprocessings:
        if reprocessing.quiet_seconds >= grace:
            yield _reprocessing(seen, reprocessing)


QUARTER, AS_USUAL = timedelta(minutes=15).total_seconds(), 10


def without_progress(queries: Iterable[LiveQuery], batches: Iterable[BegunBatch]) -> Iterator[BegunBatch]:
    """Yield the begun batches whose driver is running and has committed nothing of them for too long.

    Too long is ten times what the incarnation's last batches took, and a quarter of an hour at least; an hour if there
    was no earlier batch.
    """
    at_work = {query.incarnation for query in queries if query.at_work}
    for batch in batches:
        bound = HOUR if batch.usual_seconds is None else max(QUARTER, AS_USUAL * batch.usual_seconds)
        if batch.incarnation in at_work and batch.quiet_seconds >= bound:
            yield batch


def progress_of(batch: BegunBatch) -> str:
    """Return what is known of a batch without progress."""
    before = "it is the first" if batch.usual_seconds is None else f"the last ones took {_long(batch.usual_seconds)}"
    return (
        f"batch {batch.incarnation}/{batch.batch_id} (run {batch.run_id}) has a running driver, and nothing of it was "
        f"committed for {_long(batch.quiet_seconds)} ({before})"
    )


def _without_progress(seen: Evidence) -> Iterator[Finding]:
    """Yield what began, did not end, and has a running driver that does not get on."""
    data = "nothing is lost or doubled, but what it read is in no result yet, and what comes after it waits"
    for batch in without_progress(seen.queries, seen.begun.batches):
        where = f"{batch.incarnation}/{batch.batch_id}"
        repair = Repair(
            "see in the driver's log, and on the cluster's page, whether it has executors and its tasks run. If not, "
            f"end its task or process, then run it again: onlyonce run {where.split('/')[0]}"
        )
        yield Finding("no progress", where, progress_of(batch), data, repair)


def _half_written(query: LiveQuery) -> str:
    if query.query == "receive":
        return (
            "their ids are in the catalog, and their rows may not be in `events` yet; a replay sees that and "
            "writes them"
        )
    return (
        "a reader of a PostgreSQL sink sees these rows before the rest of their batch; a replay compares the units and "
        "continues, so none is there twice"
    )


def _run(seen: Evidence, query: LiveQuery, batch: BegunBatch | None, blocked: set[str]) -> Repair:
    pipeline, instance = query.pipeline, query.instance
    arguments = (pipeline, "--bounded") if instance != pipeline else (pipeline,)
    command = f"onlyonce run {' '.join(arguments)}"
    others = {q.incarnation for q in seen.queries if q.instance == instance}
    if batch and batch.units and query.incarnation in seen.redeclared:
        return Repair(f"put the declaration back as it was ({batch.declaration_hash}), then: {command}")
    if pipeline not in seen.declared:
        return Repair(f"declare {pipeline} again (ONLYONCE_PIPELINES), then: {command}")
    if stuck := sorted(blocked & (others | {instance})):
        return Repair(f"first the repair of {stuck[0]}, then: {command}")
    return Repair(command, "run", arguments)


def ends_backfill(backfill: BegunBackfill) -> tuple[By, tuple[str, ...]]:
    """Return the command that ends a begun backfill, and its arguments."""
    if backfill.asked_by != "person":
        return "run", (backfill.instance,)
    times = (backfill.window_from, backfill.window_to)
    # To the microsecond: the windows of --late-only start before a time that is one after a start.
    start, stop = (time.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z" for time in times)
    return "backfill", (backfill.instance, "--output", backfill.output, "--from", start, "--to", stop)


def _backfill(seen: Evidence, backfill: BegunBackfill) -> Finding:
    instance = backfill.instance
    what = f"the backfill {backfill.incarnation} began (run {backfill.run_id}), and its driver has ended"
    data = "one sink of these windows may have the new generation and another the old; each shows a whole one"
    by, arguments = ends_backfill(backfill)
    command = f"onlyonce {by} {' '.join(arguments)}"
    repair = (
        Repair(command, by, arguments) if instance in seen.declared else Repair(f"declare {instance}, then: {command}")
    )
    return Finding("begun backfill", backfill.incarnation, what, data, repair)


def _reprocessing(seen: Evidence, reprocessing: BegunReprocessing) -> Finding:
    where = f"{reprocessing.instance}, reprocessing {reprocessing.reprocessing_no}"
    what = f"{where}, took its rows and has put no file into the inbox"
    data = "these rows can't be reprocessed by another; they go in once, when it is finished"
    arguments = (reprocessing.instance, f"--{reprocessing.kind}", "--yes")
    command = f"onlyonce reprocess {' '.join(arguments)}"
    known = reprocessing.instance in seen.declared
    repair = (
        Repair(command, "reprocess", arguments)
        if known
        else Repair(f"declare {reprocessing.instance}, then: {command}")
    )
    return Finding("begun reprocessing", where, what, data, repair)


def _catalog(seen: Evidence) -> Iterator[Finding]:
    for row in seen.uneven:
        where = f"{row.incarnation}, bucket {row.bucket}"
        place = (row.instance, row.incarnation, row.bucket)
        repair = Repair(FIX, "ids", place)
        what = f"the catalog has {row.there} ids of {where}, and its batches have kept {row.said}"
        if row.there < row.said and not row.unknown:
            data = "a re-delivery of a record whose id is missing would be kept a second time"
        elif row.unknown:
            data = "a record whose id is there without a batch is taken for a duplicate, and may be in no result"
            repair = Repair(
                "a person must look: was the log restored, or a batch deleted by hand? onlyonce trace shows a record"
            )
        else:
            data = "none: repeated ids only cost look-ups"
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
        where = f"{row.incarnation}/{row.batch_id}"
        what = f"{row.units} unit(s) of {where} are in the log, and no batch of them is"
        data = "rows may be in a sink, and the log does not say what they belong to"
        yield Finding("units without a batch", where, what, data, Repair("onlyonce audit; then a person must look"))
    for instance, files in seen.temporaries.items():
        if files and instance not in at_work:
            what = f"{len(files)} file(s) that a killed process left, the first: {files[0]}"
            data = "none: no reader uses them; they take room"
            repair = Repair(f"{FIX} --yes", "files", tuple(files), for_good=True)
            yield Finding("stale temporaries", instance, what, data, repair)


def _functions(seen: Evidence) -> Iterator[Finding]:
    """Yield the pipelines whose functions prevent each run, unless a changed declaration reports the same error."""
    known = {error.what for error in seen.changed.values()}
    for pipeline, error in seen.functions.items():
        if error.what not in known:
            data = (
                f"no run of {pipeline} begins, so new records are in no result until one can; what is committed stays "
                "as it is"
            )
            yield Finding("refused function", pipeline, error.what, data, Repair(error.hint))


def _tables(seen: Evidence) -> Iterator[Finding]:
    """Yield the tables that can't take the rows of their outputs."""
    data = (
        "no batch of this output begins; receive and the other outputs continue, and its rows follow once the table "
        "can take them"
    )
    for (pipeline, output), error in seen.tables.items():
        yield Finding("refused table", f"{pipeline}/{output}", error.what, data, Repair(error.hint))


def _skipped(seen: Evidence) -> Iterator[Finding]:
    """Yield the folders below an inbox that no run reads."""
    for pipeline, what in seen.skipped.items():
        yield Finding(
            "skipped folders", pipeline, what, "what these folders hold is in no result; everything else is complete",
            Repair("declare Files(recursive=True) to read them, or move them out of the inbox"),
        )  # fmt: skip
