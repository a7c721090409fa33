"""Entry point: check the commit log against itself. No Spark. The DAG `onlyonce_audit` and `onlyonce audit` run it.

It asks the views five questions. Does each committed batch add up? Was a batch begun and never ended? Has each output
read all that receive has committed? Is what an output has read, in (record, window) pairs, what receive has kept? Has
each committed file its final name? A batch that is being worked on is not ended either, so the second and third
question count only for a pipeline that has given no sign of life for a while (`--grace`).

With `--data` the tables are counted too (`onlyonce.operate.audit_data`). That is slower, since it reads a few columns
of every row.

Not promised: without `--data`, that the tables hold what the log says. Within the grace time a
killed run looks like one that works. The records of an output's later lives are not added up, since
a later life begins in the middle of `events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from onlyonce import job_main, logs, settings, tables
from onlyonce.asked import AUDIT_GRACE_MINUTES, parse
from onlyonce.catalog.collector import Collector
from onlyonce.commitlog.views import Views
from onlyonce.database.connect import Database
from onlyonce.database.transactions import Scope
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.errors import InvariantBroken
from onlyonce.model.report import Report

log = structlog.get_logger()

FILES_WAIT_SECONDS = 3600
"""The DAG `onlyonce_finalize` runs twice an hour."""


@dataclass(frozen=True)
class NotConserved:
    """A committed batch whose records do not add up."""

    records_in: int
    instance: str
    stage: str
    lineage: str
    batch: int
    kept: int | None
    duplicate: int | None
    invalid: int | None
    remnant: int | None
    in_time: int | None
    late: int | None
    rejected: int | None
    run_id: str

    def __str__(self) -> str:
        counts = f"in_time {self.in_time}, late {self.late}, rejected {self.rejected}"
        if self.stage == "receive":
            counts = (
                f"in {self.records_in}, kept {self.kept}, duplicate {self.duplicate}, invalid {self.invalid}, "
                f"remnant {self.remnant}"
            )
        return f"{self.lineage}/{self.batch} does not add up ({counts}): onlyonce.conservation"


@dataclass(frozen=True)
class BegunWork:
    """A batch or backfill that began and did not commit."""

    instance: str
    lineage: str
    batch: int
    epoch: int
    run_id: str
    begun_at: datetime


@dataclass(frozen=True)
class OutputAndReceive:
    """How far an output has read in its last life, against what receive has committed."""

    instance: str
    pipeline: str
    output: str
    lineage: str
    life: int
    state: str
    read_upto: int | None
    from_kept: bool
    pairs: int
    declarations: int
    batches_behind: int
    records_behind: int
    kept_read: int


@dataclass(frozen=True)
class SignsOfLife:
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
    """What the views say; each list is of the query of that name in `sql/statements/views.sql`."""

    not_conserved: list[NotConserved] = field(default_factory=list)
    begun_batches: list[BegunWork] = field(default_factory=list)
    outputs_and_receive: list[OutputAndReceive] = field(default_factory=list)
    signs_of_life: list[SignsOfLife] = field(default_factory=list)
    files_waiting: list[FilesWaiting] = field(default_factory=list)


def main(argv: list[str]) -> Report:
    """Audit once; raises InvariantBroken, with the findings in the log, when there are any."""
    asked = parse("audit", argv)
    report = examine(asked.grace, data=asked.data)
    # Logs are not configured here: in Airflow's process that would take away Airflow's own.
    for finding in report.warnings:
        log.error("audit", finding=finding)
    if report.warnings:
        raise broken(report)
    return report


def examine(
    grace: int = AUDIT_GRACE_MINUTES, *, data: bool = False, watch: Callable[[str], None] = lambda _: None
) -> Report:
    """The report, with each finding among its warnings.

    Called by `main` and by `onlyonce audit`; `watch` is told how far it is.
    """
    database = Database(settings.database_url())
    seen, summary, near = gather(database), Views(database).rows("fates"), Collector(database).near_horizon()
    declared = declarations.load()
    found = list(findings(seen, declared, grace))
    left_out: list[str] = []
    if data:
        from onlyonce.operate import audit_data  # with it come Delta and Arrow

        wrong, left_out = audit_data.examine(database, declared, watch)
        found += wrong
    facts = {
        "batches": sum(row["batches"] for row in summary),
        "under way": len(seen.begun_batches),
        "found": len(found),
    }
    shown = {"conservation": summary}
    if seen.begun_batches:
        shown["begun and not committed"] = [vars(one) for one in seen.begun_batches]
    if near:
        # No finding: all of them were told. But the next ones may come too late for that.
        shown["duplicates in the oldest tenth of the dedup horizon: lengthen dedup_horizon"] = [
            vars(one) for one in near
        ]
    if left_out:
        shown["tables that were not compared"] = [{"why": why} for why in left_out]
    title = "audit: every record has one fate" if not found else f"audit: {len(found)} finding(s)"
    return Report(title, f"audit__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, shown, found)


def gather(scope: Scope) -> Evidence:
    """Ask the views."""
    wrong, begun, outputs, lives, files = Views(scope).at_once(Evidence.__dataclass_fields__)
    return Evidence(
        [NotConserved(row.pop("in"), **row) for row in wrong],
        [BegunWork(**row) for row in begun],
        [OutputAndReceive(**row) for row in outputs],
        [SignsOfLife(**row) for row in lives],
        [FilesWaiting(**row) for row in files],
    )


def findings(seen: Evidence, declared: Mapping[str, Pipeline], grace: int) -> Iterator[str]:
    """Each disagreement as one line that names the view to look at. Pure."""
    at_rest = {row.instance for row in seen.signs_of_life if row.quiet_seconds >= grace * 60}
    yield from map(str, seen.not_conserved)
    for batch in seen.begun_batches:
        if batch.instance in at_rest:
            yield (
                f"{batch.lineage}/{batch.batch} began at {tables.plain(batch.begun_at)} and is not committed "
                f"(run {batch.run_id}): onlyonce.batches"
            )
    for output in seen.outputs_and_receive:
        if output.batches_behind and output.instance in at_rest and _is_owed(output, declared):
            yield (
                f"{output.instance}: output {output.output} has not read {output.batches_behind} receive "
                "batches "
                f"({output.records_behind} records) that are committed: onlyonce.batches"
            )
        yield from _pairs(output, declared)
    for instance in seen.signs_of_life:
        if instance.instance in at_rest:
            yield from _never_ran(instance, declared)
    for waiting in seen.files_waiting:
        if waiting.seconds >= FILES_WAIT_SECONDS:
            yield (
                f"{waiting.instance}: {waiting.files} files of output {waiting.output} are committed since "
                f"{tables.plain(waiting.since)} and have no final names (onlyonce finalize): onlyonce.output_files"
            )


def unconserved(seen: Evidence, declared: Mapping[str, Pipeline]) -> Iterator[tuple[str, str]]:
    """(lineage, finding) of what does not add up, whoever is at work. Called by `onlyonce.operate.alerts`. Pure."""
    for batch in seen.not_conserved:
        yield batch.lineage, str(batch)
    for output in seen.outputs_and_receive:
        for finding in _pairs(output, declared):
            yield output.lineage, finding


def broken(report: Report) -> InvariantBroken:
    """The error that the findings amount to."""
    more = f" (and {len(report.warnings) - 1} more)" if len(report.warnings) > 1 else ""
    return InvariantBroken(
        f"the audit found: {report.warnings[0]}{more}",
        data="nothing was changed; what is committed stays as it is",
        hint="a run of that pipeline finishes work that was left behind. For anything else look at "
        "onlyonce.conservation WHERE conserved IS NOT TRUE before you run anything",
    )


def _is_owed(output: OutputAndReceive, declared: Mapping[str, Pipeline]) -> bool:
    """An output that was taken out of its pipeline's declaration reads no more."""
    pipeline = declared.get(output.pipeline)
    return pipeline is None or any(root.name == output.output for root in pipeline.roots())


def _pairs(output: OutputAndReceive, declared: Mapping[str, Pipeline]) -> Iterator[str]:
    """What receive kept = in time + late + rejected, over all that the output has read under one declaration."""
    pipeline = declared.get(output.pipeline)
    root = next((o for o in pipeline.roots() if o.name == output.output), None) if pipeline else None
    if root is None or output.life != 1 or output.declarations != 1 or output.from_kept:
        return
    expected = output.kept_read * (root.window.per_record if root.window else 1)
    if expected != output.pairs:
        yield (
            f"{output.instance}: output {output.output} has a fate for {output.pairs} (record, window) pairs, "
            f"but receive kept {expected}: onlyonce.conservation"
        )


def _never_ran(instance: SignsOfLife, declared: Mapping[str, Pipeline]) -> Iterator[str]:
    """A declared output without a lineage has read nothing.

    Bounded runs that ended owe nothing to a newer declaration.
    """
    pipeline = declared.get(instance.pipeline)
    if pipeline is None or instance.closed or not instance.received:
        return
    for root in pipeline.roots():
        if root.name not in (instance.outputs or []):
            yield (
                f"{instance.instance}: output {root.name} has never run, but receive has committed "
                f"{instance.received} batches: onlyonce.lineages"
            )


def cli() -> None:
    """`python -m onlyonce.operate.audit`."""
    logs.configure(job="audit")
    job_main.run(main)


if __name__ == "__main__":
    cli()
