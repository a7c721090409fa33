"""Entry point: find what is stuck, say what that means and how it is repaired, and carry out the safe repairs.

Looking needs no Spark.

It reads the log, the checkpoints and the Delta tables; `onlyonce.model.operate.diagnosis` decides. A finding counts
only if a second look a moment later has it too, so that unfinished work is no finding. `repairs` carries out the
commands that findings name.

Who calls it: `onlyonce doctor`, the DAG `onlyonce_audit`. Errors: DatabaseAway if the log can't be asked; Refused if
the database is of a newer version. A repair that fails is reported, and the others go on. Not promised: that everything
is found; `onlyonce audit` asks other questions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import DBAPIError

from onlyonce import logs, settings
from onlyonce.asked import parse
from onlyonce.catalog.collector import Collector
from onlyonce.commitlog import declared
from onlyonce.commitlog.authorities import Authorities
from onlyonce.commitlog.declared import Declarations
from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.operate.dropping import Drops
from onlyonce.commitlog.operate.health import Health, damaged_filters
from onlyonce.database.connect import Database
from onlyonce.database.migrate import missing
from onlyonce.database.transactions import Scope
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline
from onlyonce.model.errors import OnlyonceError
from onlyonce.model.operate.diagnosis import Evidence, findings
from onlyonce.model.operate.finding import Finding, half_dropped, views_missing
from onlyonce.model.operate.stuck import BegunBatch, LiveQuery
from onlyonce.model.report import Report
from onlyonce.model.run.isolation import for_good
from onlyonce.operate import disk_state, repairs
from onlyonce.sources.files import folders

SECOND_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Platform:
    """What is looked at."""

    database: Database
    pipelines: dict[str, Pipeline]
    grace_seconds: float


def main(argv: list[str]) -> Report:
    """Look, repair what is asked for, look again; the findings that are left are in the report's table `findings`."""
    logs.configure(job="doctor")
    return visit(argv)


def visit(argv: list[str]) -> Report:
    """The same where logs are configured already, as in Airflow. What is left is in the view `findings` too."""
    asked = parse("doctor", argv)
    pipelines = declarations.load(asked.pipelines)
    platform = Platform(Database(settings.database_url(), "onlyonce-doctor"), pipelines, asked.grace * 60)
    found = examine(platform)
    done: list[dict[str, Any]] = []
    if asked.fix and any(repairs.may(finding, asked.yes) for finding in found):
        # One run may be the way out of several findings.
        due = {(finding.repair.by, finding.repair.arguments): finding for finding in reversed(found)}
        done = [
            repairs.repaired(platform.database, finding, asked)
            for finding in found
            if finding in due.values() and repairs.may(finding, asked.yes)
        ]
        found = examine(platform)
    rows = [finding.row() for finding in found]
    warnings = _keep(platform, rows)
    facts = {"found": len(found), "repaired": sum(repair["outcome"] == "done" for repair in done)}
    shown = {"findings": rows, "repairs": done}
    title = f"doctor: {len(found)} finding(s)" if found else "doctor: nothing is stuck"
    return Report(title, f"doctor__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, shown, warnings)


def examine(platform: Platform) -> list[Finding]:
    """What two looks in a row have found."""
    first = _look(platform)
    if not first:
        return []
    time.sleep(SECOND_LOOK_SECONDS)
    again = {finding.key for finding in _look(platform)}
    return [finding for finding in first if finding.key in again]


def _keep(platform: Platform, rows: list[dict[str, Any]]) -> list[str]:
    """Note the look for the page. A place that can't be written to hides nothing: the findings are told in any case."""
    try:
        with Health.once(platform.database) as health:
            # A database that lacks our tables has no place for it, and the finding says so.
            if not missing(health.connection):
                health.note(rows)
    except (OnlyonceError, DBAPIError) as error:
        reason = str(getattr(error, "orig", error)).partition("\n")[0]
        return [f'this look could not be noted ({reason}): the page "Exactly once" shows the one before']
    return []


def _look(platform: Platform) -> list[Finding]:
    machine = [*disk_state.versions(), *disk_state.permissions()]
    with Drops.once(platform.database) as dropping:
        lacking = missing(dropping.connection)
        drops = [] if lacking else dropping.begun()
    if lacking:
        return [views_missing(lacking), *machine]
    half = [half_dropped(*drop) for drop in drops]
    return [*machine, *half, *findings(gather(platform, {drop[0] for drop in drops}), platform.grace_seconds)]


def gather(platform: Platform, dropped: Collection[str]) -> Evidence:
    """Ask everything. The tables come before the log: what has landed was begun in the log before."""
    database, pipelines = platform.database, platform.pipelines
    with Health.once(database) as health:
        known, instances = health.queries(), dict(Collector(health.scope).instances())
        this = Authorities(health.scope).identity()
    tables = disk_state.Tables()
    landed = tables.landed(this, known, pipelines)
    forgotten = disk_state.forgotten([*instances, *dropped], known)
    with Health.at_one_moment(database) as health:
        queries, begun = health.queries(), health.begun()
        batches, away = health.with_units_elsewhere(begun.batches)
        begun = replace(begun, batches=batches)
        orphans, uneven, vouched = health.orphans(), health.uneven(), health.vouched()
        waits = replace(health.waits(), away=away)
        changed = dict(_changed(health.scope, pipelines, queries))
    refused_tables, refused_functions = _refused(pipelines)
    return Evidence(
        frozenset(pipelines),
        queries,
        begun,
        orphans,
        uneven,
        vouched,
        tables.events(list(instances)),
        disk_state.checkpoints(queries),
        landed,
        tables.unreadable,
        forgotten,
        changed,
        frozenset(_redeclared(pipelines, queries, begun.batches)),
        list(damaged_filters(database)),
        {instance: disk_state.temporaries(instance, pipelines.get(name)) for instance, name in instances.items()}
        | disk_state.left_at_the_prefix(),
        waits,
        {name: folders.told(found) for name, one in pipelines.items() if (found := folders.skipped(one))},
        refused_tables,
        refused_functions,
    )


def _changed(
    scope: Scope, pipelines: dict[str, Pipeline], queries: Sequence[LiveQuery]
) -> Iterator[tuple[str, OnlyonceError]]:
    """The lineages that can't go on as they are declared now, each with the refusal that its next run would get."""
    for query in queries:
        pipeline = pipelines.get(query.pipeline)
        names = pipeline.queries() if pipeline else []
        if pipeline is None or query.begun is None or query.query not in names:
            continue
        try:
            live = Lineages(scope).live(query.instance, query.query)
            if live:
                Declarations(scope).check(live, _declared(pipeline, query.instance, query.query))
        except OnlyonceError as error:
            yield query.lineage, error


def _refused(
    pipelines: dict[str, Pipeline],
) -> tuple[dict[tuple[str, str], OnlyonceError], dict[str, OnlyonceError]]:
    """Return the outputs whose tables can't take their rows, and the pipelines whose functions let no run begin.

    Tables are not compared if a function has changed since the last check: that needs Spark.
    """
    from onlyonce.check import look  # with it come Spark's modules

    tables, functions = dict[tuple[str, str], OnlyonceError](), dict[str, OnlyonceError]()
    for name, pipeline in pipelines.items():
        try:
            wrong = look.wrong_tables(pipeline, look.found(pipeline) or {})
        except OnlyonceError as error:
            functions[name] = error
        else:
            tables |= {
                (name, output): error
                for output, error in wrong.items()
                if isinstance(error, OnlyonceError) and for_good(error)
            }
    return tables, functions


def _declared(pipeline: Pipeline, instance: str, query: str) -> declared.Declared:
    mark, parts = declarations.fingerprint(pipeline, query), declarations.parts(pipeline, query)
    return declared.Declared(instance, query, mark, parts)


def _redeclared(
    pipelines: dict[str, Pipeline], queries: Sequence[LiveQuery], begun: Sequence[BegunBatch]
) -> Iterator[str]:
    """The lineages with a begun batch that has units, under another declaration than the one of now."""
    known = {query.lineage: query for query in queries}
    for batch in begun:
        query = known.get(batch.lineage)
        pipeline = pipelines.get(query.pipeline) if query else None
        if query is None or pipeline is None or not batch.units:
            continue
        now = declarations.fingerprint(pipeline, query.query) if query.query in pipeline.queries() else None
        if now != batch.declaration_hash:
            yield batch.lineage
