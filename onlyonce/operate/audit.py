"""Audit the commit log against itself, and with `--data` the tables against the log. No Spark.

The DAG `onlyonce_audit` and `onlyonce audit` run it. It asks the views five questions:

- Does each committed batch add up?
- Was a batch begun and never ended?
- Has each output read all that receive has committed?
- Has each output read as many (record, window) pairs as receive's kept records give?
- Has each committed file its final name?

A batch in progress has not ended either. So the second and third question count only if the pipeline gave no heartbeat
for the grace time (`--grace`). Within it a killed run looks like a working run. The records of an output's later
incarnations are not added up, since a later incarnation begins in the middle of `events`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from onlyonce import console, job_main, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Output, Pipeline, target, unknown
from onlyonce.asked import AUDIT_GRACE_MINUTES, parse
from onlyonce.catalog import filters
from onlyonce.catalog.chunks import Chunks
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.files import Files
from onlyonce.commitlog.health import Health, Views
from onlyonce.commitlog.removals import Removals
from onlyonce.core import retention, stored_names
from onlyonce.core.diagnosis import ends_backfill
from onlyonce.core.errors import InvariantBroken, OnlyonceError, Refused
from onlyonce.core.locations import Location
from onlyonce.core.ownership import Place, written
from onlyonce.core.runs import Report
from onlyonce.core.shards import Winner
from onlyonce.core.stored_names import (
    CONTROL,
    KEPT,
    OO_BATCH,
    OO_HIGH,
    OO_INCARNATION,
    OO_KIND,
    OO_LOW,
)
from onlyonce.core.stuck import BegunBackfill
from onlyonce.database.connect import Database, Scope
from onlyonce.records.left_out import lost_events
from onlyonce.sinks import target_kinds
from onlyonce.sinks.files import finalize
from onlyonce.sinks.target_kinds import Windows
from onlyonce.sources import record_id
from onlyonce.tables import opening, table_files

# The audit of the data itself (`onlyonce audit --data`) compares what the tables hold with what the log says.
#
# - rows of `events` by batch and fate: with the batches of receive; rows of unknown batches are found too
# - rows of each output's table by window: with the windows that the log says a reader must see
# - all rows of an output without windows that appends: with the sum of its units
# - files with final names, by size, the last ones by checksum: with what their units have recorded
# - ids of the last batches in `events`: with the record catalog, and with the ids of the rows' own columns
#
# Tables are read file by file, and only the columns that are counted. So memory grows with the number of batches and
# windows, not with the number of rows. A difference counts only if a second check finds it too, since the stream
# continues meanwhile.
#
# If the log does not say how many rows a table must have, it is not compared. These are an increment, an upsert without
# its window, a changed target, an unfinished batch, and rows that were sent outside. The report names them. Of a table
# with an unfinished backfill all windows are compared except the backfill's.


SECOND_LOOK_SECONDS = 2.0
SAMPLE = 3
"""Batches whose ids are compared one by one."""
SAMPLED_ROWS = 1000
"""Rows of each of these batches whose id is computed again from their columns."""

Watch = Callable[[str], None]


def examine_data(
    database: Database, declared: Mapping[str, Pipeline], watch: Watch, only: str | None = None
) -> tuple[list[str], list[str]]:
    """Return the disagreements that two checks have found, and what could not be compared and why.

    `only`: the pipeline that is audited; None: all pipelines in the log.
    """
    left_out: list[str] = []
    first = list(_look(database, declared, watch, left_out, only))
    if not first:
        return [], left_out
    time.sleep(SECOND_LOOK_SECONDS)
    again = set(_look(database, declared, watch, [], only))
    return [finding for finding in first if finding in again], left_out


def _look(
    database: Database, declared: Mapping[str, Pipeline], watch: Watch, left_out: list[str], only: str | None
) -> Iterator[str]:
    for instance, name in Collector(database).instances():
        if only not in (None, name):
            continue
        events = settings.data_location(instance) / stored_names.EVENTS_FOLDER
        if opening.any_in(events):
            watch(f"{instance}: events")
            yield from _events(database, instance, events)
            left_out += _removed(database, instance)
            watch(f"{instance}: a sample of ids")
            yield from _sample(database, instance, events, declared.get(name))
        elif lost := lost_events(database, instance):
            yield f"{instance}: {lost}"
        pipeline = declared.get(name)
        if pipeline is None:
            left_out.append(f"{instance}: {_not_declared(name)}")
            continue
        for output in pipeline.outputs:
            watch(f"{instance}: {output.name}")
            yield from _output(database, instance, pipeline, output, left_out)


def _not_declared(name: str) -> str:
    """Return why the tables of a pipeline are left out, and the command that compares them."""
    return (
        f"no file that was read declares {name}, so its tables are not known; only its rows of `events` were compared. "
        f"With the file that declares it: onlyonce audit {name} --data --pipelines FILE; if it is gone for good, "
        f"`onlyonce drop {name}` removes it"
    )


def _events(database: Database, instance: str, events: Location) -> Iterator[str]:
    """Yield the disagreements of rows of `events` by batch and fate. Rows of a begun batch are never one.

    Rows that another job has inserted or deleted are reported.
    """
    there: Counter[tuple[str, int, str]] = Counter()
    rows = table_files.dataset_of_events(events)
    columns = [OO_INCARNATION, OO_BATCH, OO_KIND]
    for part in rows.to_batches(columns=columns, filter=pc.field(OO_KIND) != CONTROL):
        for group in pa.Table.from_batches([part]).group_by(columns).aggregate([([], "count_all")]).to_pylist():
            there[group[OO_INCARNATION], group[OO_BATCH], group[OO_KIND]] += group["count_all"]
    for batch in _vouched(database, instance):
        found = there.pop((batch.incarnation, batch.number, batch.fate), 0)
        if batch.is_committed and found not in (batch.left, batch.left - batch.going):
            less = f", {batch.gone} of them removed" if batch.gone else ""
            yield (
                f"{batch.incarnation}/{batch.number}: the log says {batch.said} {batch.fate}{less}, `events` "
                f"has {found} ({events})"
            )
    for (incarnation, number, fate), count in sorted(there.items()):
        yield f"{incarnation}/{number}: `events` has {count} {fate}, the log knows no such batch ({events})"


@dataclass(frozen=True)
class Vouched:
    """How many rows of a batch with one fate the log says are in `events`.

    said    as the batch was committed
    gone    removed since
    going   those that a removal has begun to remove
    """

    incarnation: str
    number: int
    fate: str
    is_committed: bool
    said: int
    gone: int
    going: int

    @property
    def left(self) -> int:
        """Return how many are there until the removal that has begun has ended."""
        return self.said - self.gone


def _vouched(database: Database, instance: str) -> Iterator[Vouched]:
    known, removed = Views(database).rows("received", instance=instance), Removals(database).counts(instance)
    for batch in known:
        for fate in ("kept", "invalid", "expired"):
            key = (batch["incarnation"], batch["batch"], fate)
            yield Vouched(*key, batch["state"] == "committed", batch[fate] or 0, *removed.get(key, (0, 0)))


def _removed(database: Database, instance: str) -> Iterator[str]:
    """Yield how many rows were removed and can't be counted any more."""
    kept, counts = Removals(database).kept_from(instance), Removals(database).counts(instance)
    rows = sum(removed for removed, _ in counts.values())
    if kept is not None or rows:
        old = f", all from before {retention.said(kept)} among them" if kept is not None else ""
        yield (
            f"{instance}: {rows} rows of `events` are removed{old}; the log has their numbers by batch "
            "(onlyonce.removals)"
        )


def _output(
    database: Database, instance: str, pipeline: Pipeline, output: Output, left_out: list[str]
) -> Iterator[str]:
    """Yield the disagreements of the rows of each window in the output's table.

    Rows that another job has inserted or deleted are reported, as a difference of the window's count. `_incomparable`
    decides which tables are not compared.
    """
    root = output.made_beside or output.name
    asked = {"instance": instance, "query": root, "output": output.name}
    [state] = Views(database).rows("comparable", **asked)
    windowed = pipeline.root_of(output).has_windows
    if why := _incomparable(output, state, windowed):
        left_out.append(f"{instance}: {output.name}: {why}")
        return
    meant = _meant(database, instance, output, windowed)
    if meant is None:
        left_out.append(f"{instance}: {output.name}: a backfill left its rows as they were")
        return
    place = target(pipeline, output)
    if output.sink.writes_files:
        winners = Files(database).current(instance, output.name)
        yield from (f"{instance}: {output.name}: {what}" for what in finalize.disagreements(winners))
        there = _recorded(winners)
    else:
        [place] = written(instance, [{"outputs": {output.name: {"target": place}}}])
        at = Place(place)
        try:
            there = target_kinds.functions(at).rows_by_window(at, windowed)
        except Refused as error:
            left_out.append(f"{instance}: {output.name}: {error.what}")
            return
    compared = meant.keys() | there.keys()
    for backfill in _begun_backfills(database, instance, root) if state["backfill_begun"] else ():
        inside = {one for one in compared if one[0] and backfill.window_from <= one[0] < backfill.window_to}
        same = sum(meant[window] == there[window] for window in inside)
        left_out.append(f"{instance}: {output.name}: {_under_way(backfill, len(inside), same)}")
        compared -= inside
    for window in sorted(compared, key=str):
        if meant[window] != there[window]:
            of = f"window [{window[0]}, {window[1]})" if window[0] else "all of it"
            yield (
                f"{instance}: {output.name}: {of}: the log says {meant[window]} rows, the table has "
                f"{there[window]} ({place})" + (_again(instance, output, window) if any(there.values()) else "")
            )


def _begun_backfills(database: Database, instance: str, root: str) -> list[BegunBackfill]:
    found = Health(database).begun().backfills
    return [one for one in found if (one.instance, one.output) == (instance, root)]


def _under_way(backfill: BegunBackfill, windows: int, same: int) -> str:
    """Return what holds for the rows of a begun backfill's windows, and how it ends. Pure.

    windows   how many windows of its interval the log or the table has
    same      those with as many rows in the table as before the backfill
    """
    by, arguments = ends_backfill(backfill)
    running = ", and is running" if backfill.at_work else ""
    then = (
        f"when it has ended: onlyonce audit {backfill.pipeline} --data"
        if backfill.at_work
        else f"to end it: onlyonce {by} {' '.join(arguments)}"
    )
    return (
        f"a backfill of the windows from {console.plain(backfill.window_from)} to {console.plain(backfill.window_to)} "
        f"has begun and has not ended{running}. Each of these windows has all its old rows or all its new rows; "
        f"{same} of {windows} have as many rows as before. The other windows were compared\n{then}"
    )


def _again(instance: str, output: Output, window: tuple[Any, Any]) -> str:
    """Return the command that makes the rows of a window again from `events`; nothing if none does."""
    if "@" in instance or not window[0] or output.sink.writes_files or output.on_backfill in ("skip", "resend"):
        return ""
    start, stop = (time.isoformat().replace("+00:00", "Z") for time in window)
    root = output.made_beside or output.name
    return f". It makes them again: onlyonce backfill {instance} --output {root} --from {start} --to {stop}"


def _meant(database: Database, instance: str, output: Output, windowed: bool) -> Windows | None:
    """Return the rows that a reader must see, by window; None if a backfill was not to change them."""
    if not windowed:
        asked = {"instance": instance, "query": output.made_beside or output.name, "output": output.name}
        [row] = Views(database).rows("written_in_all", **asked)
        return Counter({(None, None): row["rows"]})
    rows = Views(database).rows("written", instance=instance, output=output.name)
    if output.on_backfill in ("skip", "resend") and any(row["generation"] for row in rows):
        return None
    return Counter({(row["window_start"], row["window_end"]): row["rows"] for row in rows})


def _incomparable(output: Output, state: Mapping[str, Any], windowed: bool) -> str | None:
    """Return why a table can't be compared with the log; None if it can. Pure."""
    if output.sink.is_external:
        return "what was sent outside can't be counted from here; onlyonce.outbox has each answer"
    if state["begun"]:
        return (
            "a batch has begun and has not ended, so the table may have some of its rows; if no driver is running, the "
            "next run ends it"
        )
    if state["written_again"]:
        return "at least once: rows were written again, as the log says"
    if state["targets"] > 1:
        return "it was written to more than one target"
    if output.sink.write == "increment" and "window_start" not in output.sink.keys:
        return "an increment adds to rows that don't say their window"
    if output.sink.write == "history":
        return "a history has no row for a delete"
    if output.sink.write == "upsert" and (
        state["as_they_come"] or not (windowed and "window_start" in output.sink.keys)
    ):
        return "an upsert replaces rows of other windows or batches"
    if output.sink.write == "upsert" and output.is_early and not output.has_early_sessions:
        return "of an early pane the log knows only the rows that have changed last"
    return None


def _recorded(winners: list[Winner]) -> Windows:
    """Return the rows of the files that a reader must take, by window."""
    found: Windows = Counter()
    for winner in winners:
        found[winner.window_start, winner.window_end] += winner.rows
    return found


def _sample(database: Database, instance: str, events: Location, pipeline: Pipeline | None) -> Iterator[str]:
    """Yield the disagreements of the ids of the last batches: with the catalog, and with the rows' own columns."""
    rows = table_files.dataset_of_events(events)
    for batch in Views(database).rows("sample", instance=instance, n=SAMPLE):
        name = f"{batch['incarnation']}/{batch['batch']}"
        chosen = (
            (pc.field(OO_KIND) == KEPT)
            & (pc.field(OO_INCARNATION) == batch["incarnation"])
            & (pc.field(OO_BATCH) == batch["batch"])
        )
        table = rows.to_table(columns=[OO_HIGH, OO_LOW], filter=chosen)
        ids = tuple(table.column(half).to_numpy().astype(np.int64).view(np.uint64) for half in (OO_HIGH, OO_LOW))
        known = np.zeros(table.num_rows, dtype=bool)
        for chunk in Chunks(database).in_bucket(instance, batch["incarnation"], batch["bucket"]):
            known |= filters.member(filters.unpack(chunk), (ids[0], ids[1]))
        if not known.all():
            yield f"{name}: {int((~known).sum())} ids of rows in `events` are not in the catalog ({events})"
        if pipeline is not None and (wrong := _wrong_ids(pipeline, rows, chosen)):
            yield f"{name}: {wrong} of its rows have other values than their id says ({events})"


def _wrong_ids(pipeline: Pipeline, rows: Any, chosen: pc.Expression) -> int:
    """Return how many of the first rows have an id that their columns don't give; 0 if only Spark formats a column."""
    columns = list(pipeline.record_id)
    if not set(columns) <= set(rows.schema.names):
        return 0
    wrong = 0
    for row in rows.scanner(columns=[*columns, OO_HIGH, OO_LOW], filter=chosen).head(SAMPLED_ROWS).to_pylist():
        values = {name: _written(row[name]) for name in columns}
        try:
            wrong += record_id.RecordId(row[OO_HIGH], row[OO_LOW]) not in record_id.of_any_source(pipeline, values)
        except OnlyonceError:
            return 0
    return wrong


def _written(value: Any) -> str | bytes:
    """Return a value of an id column as a person would write it; bytes as they are."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


# The audit of the log.


log = structlog.get_logger()

NOT_DECLARED = "pipelines that are not declared"
FILES_WAIT_SECONDS = 3600
"""The DAG `onlyonce_finalize_files` runs twice an hour."""


@dataclass(frozen=True)
class NotConserved:
    """A committed batch whose records do not add up."""

    records_in: int
    instance: str
    stage: str
    incarnation: str
    batch: int
    kept: int | None
    duplicate: int | None
    invalid: int | None
    expired: int | None
    in_time: int | None
    late: int | None
    rejected: int | None
    run_id: str

    def __str__(self) -> str:
        counts = f"in_time {self.in_time}, late {self.late}, rejected {self.rejected}"
        if self.stage == "receive":
            counts = (
                f"in {self.records_in}, kept {self.kept}, duplicate {self.duplicate}, invalid {self.invalid}, "
                f"expired {self.expired}"
            )
        return f"{self.incarnation}/{self.batch} does not add up ({counts}): onlyonce.conservation"


@dataclass(frozen=True)
class BegunWork:
    """A batch or backfill that began and did not commit."""

    instance: str
    incarnation: str
    batch: int
    epoch: int
    run_id: str
    begun_at: datetime


@dataclass(frozen=True)
class OutputAndReceive:
    """How far an output has read in its last incarnation, against what receive has committed."""

    instance: str
    pipeline: str
    output: str
    incarnation: str
    ordinal: int
    state: str
    read_upto: int | None
    from_kept: bool
    pairs: int
    declarations: int
    batches_behind: int
    records_behind: int
    kept_read: int


@dataclass(frozen=True)
class Heartbeats:
    """For how long a pipeline or bounded run has been quiet, what it received, and its outputs that have run."""

    instance: str
    pipeline: str
    quiet_seconds: float
    closed: bool
    received: int
    outputs: list[str] | None


@dataclass(frozen=True)
class FilesWaiting:
    """Files of committed batches without their final names."""

    instance: str
    output: str
    files: int
    since: datetime
    seconds: float


@dataclass(frozen=True)
class Evidence:
    """The rows of the views. Each list has the rows of the query with its name in `sql/statements/views.sql`."""

    not_conserved: list[NotConserved] = field(default_factory=list)
    begun_batches: list[BegunWork] = field(default_factory=list)
    outputs_and_receive: list[OutputAndReceive] = field(default_factory=list)
    heartbeats: list[Heartbeats] = field(default_factory=list)
    files_waiting: list[FilesWaiting] = field(default_factory=list)

    def of(self, pipeline: str) -> Evidence:
        """Return what the views say of one pipeline and its bounded runs. Pure."""
        return Evidence(**{
            name: [row for row in rows if _pipeline_of(row.instance) == pipeline] for name, rows in vars(self).items()
        })  # fmt: skip


def _pipeline_of(instance: str) -> str:
    return instance.partition("@")[0]


def main(argv: list[str]) -> Report:
    """Audit once, and log the findings. Raise what `problem` returns."""
    asked = parse("audit", argv)
    report = examine_log(asked.grace, data=asked.data, files=asked.pipelines, only=asked.pipeline)
    # Logs are not configured here: in Airflow's process that would remove Airflow's own.
    for finding in report.warnings:
        log.error("audit", finding=finding)
    if wrong := problem(report):
        raise wrong
    return report


def examine_log(
    grace: int = AUDIT_GRACE_MINUTES, *, data: bool = False, watch: Callable[[str], None] = lambda _: None,
    files: list[Path] | None = None, only: str | None = None,
) -> Report:  # fmt: skip
    """Return the report, with each finding among its warnings. `watch` is called with what is audited next.

    `only`: the pipeline to audit with its bounded runs; None: all pipelines in the log. Raise Refused if neither the
    log nor a file knows it.
    """
    database = Database(settings.database_url())
    seen, summary, near = gather(database), Views(database).rows("fates"), Collector(database).near_horizon()
    declared = declarations.load(files)
    known = {name for _, name in Collector(database).instances()}
    if only is not None:
        if only not in known | declared.keys():
            raise unknown("pipeline", only, sorted(known | declared.keys()))
        known &= {only}
        seen = seen.of(only)
        summary = [row for row in summary if _pipeline_of(row["pipeline"]) == only]
        near = [one for one in near if _pipeline_of(one.pipeline) == only]
    found = list(findings(seen, declared, grace))
    left_out: list[str] = []
    if data:
        wrong, left_out = examine_data(database, declared, watch, only)
        found += wrong
    facts: dict[str, Any] = {
        "batches": sum(row["batches"] for row in summary),
        "under way": len(seen.begun_batches),
        "found": len(found),
    }
    undeclared = ", ".join(sorted(known - declared.keys())) if data else ""
    if undeclared:
        facts[NOT_DECLARED] = undeclared
    if only is not None:
        facts["pipeline"] = only
    shown = {"conservation": summary}
    if seen.begun_batches:
        shown["begun and not committed"] = [vars(one) for one in seen.begun_batches]
    if near:
        # No finding: each of these duplicates was caught. But the next ones may come too late for that.
        shown["duplicates in the oldest tenth of the dedup horizon: lengthen dedup_horizon"] = [
            vars(one) for one in near
        ]
    if left_out:
        shown["tables that were not compared"] = [{"why": why} for why in left_out]
    title = "audit: every record has one fate" if not found else f"audit: {len(found)} finding(s)"
    title += f"; the tables of {undeclared} were not compared" if undeclared else ""
    return Report(title, f"audit__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, shown, found)


def gather(scope: Scope) -> Evidence:
    """Read the views."""
    wrong, begun, outputs, incarnations, files = Views(scope).at_once(Evidence.__dataclass_fields__)
    return Evidence(
        [NotConserved(row.pop("in"), **row) for row in wrong],
        [BegunWork(**row) for row in begun],
        [OutputAndReceive(**row) for row in outputs],
        [Heartbeats(**row) for row in incarnations],
        [FilesWaiting(**row) for row in files],
    )


def findings(seen: Evidence, declared: Mapping[str, Pipeline], grace: int) -> Iterator[str]:
    """Yield each disagreement as one line that names the view to look at. Pure."""
    at_rest = {row.instance for row in seen.heartbeats if row.quiet_seconds >= grace * 60}
    yield from map(str, seen.not_conserved)
    for batch in seen.begun_batches:
        if batch.instance in at_rest:
            yield (
                f"{batch.incarnation}/{batch.batch} began at {console.plain(batch.begun_at)} and is not committed "
                f"(run {batch.run_id}): onlyonce.batches"
            )
    for output in seen.outputs_and_receive:
        if output.batches_behind and output.instance in at_rest and _is_owed(output, declared):
            yield (
                f"{output.instance}: output {output.output} has not read {output.batches_behind} receive batches "
                f"({output.records_behind} records) that are committed: onlyonce.batches"
            )
        yield from _pairs(output, declared)
    for instance in seen.heartbeats:
        if instance.instance in at_rest:
            yield from _never_ran(instance, declared)
    for waiting in seen.files_waiting:
        if waiting.seconds >= FILES_WAIT_SECONDS:
            yield (
                f"{waiting.instance}: {waiting.files} files of output {waiting.output} are committed since "
                f"{console.plain(waiting.since)} and have no final names (onlyonce finalize): onlyonce.output_files"
            )


def unconserved(seen: Evidence, declared: Mapping[str, Pipeline]) -> Iterator[tuple[str, str]]:
    """Yield (incarnation, finding) of what does not add up, whether a driver is running or not. Pure."""
    for batch in seen.not_conserved:
        yield batch.incarnation, str(batch)
    for output in seen.outputs_and_receive:
        for finding in _pairs(output, declared):
            yield output.incarnation, finding


def problem(report: Report) -> OnlyonceError | None:
    """Return the error that the report amounts to: findings, or else that the named pipeline was not compared.

    If all pipelines are audited, those of another project are only named: the report says how to audit them.
    """
    if report.warnings:
        more = f" (and {len(report.warnings) - 1} more)" if len(report.warnings) > 1 else ""
        return InvariantBroken(
            f"the audit found: {report.warnings[0]}{more}",
            data="nothing was changed; what is committed stays as it is",
            hint="a run of that pipeline finishes work that was left behind. For anything else look at "
            "onlyonce.conservation WHERE conserved IS NOT TRUE before you run anything",
        )
    name = report.facts.get("pipeline")
    if name is not None and NOT_DECLARED in report.facts:
        return Refused(
            f"the tables of {name} were not compared: no file that was read declares it",
            data="nothing was changed; in everything else that was compared nothing was found",
            hint=f"name its file: onlyonce audit {name} --data --pipelines FILE; `onlyonce drop {name}` removes a "
            "pipeline that is gone for good",
        )
    return None


def _is_owed(output: OutputAndReceive, declared: Mapping[str, Pipeline]) -> bool:
    """Return whether an output must still read: not if it was taken out of its pipeline's declaration."""
    pipeline = declared.get(output.pipeline)
    return pipeline is None or any(root.name == output.output for root in pipeline.roots())


def _pairs(output: OutputAndReceive, declared: Mapping[str, Pipeline]) -> Iterator[str]:
    """Yield a finding unless kept = in time + late + rejected, over all that was read under one declaration."""
    pipeline = declared.get(output.pipeline)
    root = next((o for o in pipeline.roots() if o.name == output.output), None) if pipeline else None
    if root is None or output.ordinal != 1 or output.declarations != 1 or output.from_kept:
        return
    expected = output.kept_read * (root.window.per_record if root.window else 1)
    if expected != output.pairs:
        yield (
            f"{output.instance}: output {output.output} has a fate for {output.pairs} (record, window) pairs, "
            f"but receive kept {expected}: onlyonce.conservation"
        )


def _never_ran(instance: Heartbeats, declared: Mapping[str, Pipeline]) -> Iterator[str]:
    """Yield a finding for each declared output that has no incarnation, and so has read nothing.

    Bounded runs that ended owe nothing to a newer declaration.
    """
    pipeline = declared.get(instance.pipeline)
    if pipeline is None or instance.closed or not instance.received:
        return
    for root in pipeline.roots():
        if root.name not in (instance.outputs or []):
            yield (
                f"{instance.instance}: output {root.name} has never run, but receive has committed "
                f"{instance.received} batches: onlyonce.incarnations"
            )


def cli() -> None:
    """Run `python -m onlyonce.operate.audit`."""
    logs.configure(job="audit")
    job_main.run(main)


if __name__ == "__main__":
    cli()
