"""Find what is stuck, report what it means and how to repair it, and carry out the safe repairs: `onlyonce doctor`.

It reads the log, the checkpoints and the Delta tables; `onlyonce.core.diagnosis` decides. A finding counts only if a
second check a moment later has it too, so that unfinished work is not a finding. Looking needs no Spark and changes
nothing. `onlyonce audit` asks other questions.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from sqlalchemy.exc import DBAPIError

from onlyonce import failed_runs, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api import resolve
from onlyonce.api.pipeline import Pipeline, target, unknown
from onlyonce.asked import parse
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.drivers import DriverClock
from onlyonce.commitlog.dropping import Drops
from onlyonce.commitlog.health import Health, Views, damaged_filters
from onlyonce.commitlog.incarnations import Declarations, Declared, Incarnations
from onlyonce.commitlog.sources import Arrivals
from onlyonce.commitlog.units import Authorities
from onlyonce.core import stored_names
from onlyonce.core.diagnosis import (
    Evidence,
    Finding,
    findings,
    half_dropped,
    of_pipeline,
    other_version,
    shared_account,
    views_missing,
    wider_permissions,
)
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.locations import Location, location
from onlyonce.core.ownership import Place
from onlyonce.core.runs import Report, for_good
from onlyonce.core.stuck import BegunBatch, LiveQuery
from onlyonce.database.connect import Database, Scope
from onlyonce.database.migrate import migrate, missing
from onlyonce.engine.options import jar_folder
from onlyonce.operate import in_use, unread
from onlyonce.receive import at_least_once
from onlyonce.sources import folders, manifest
from onlyonce.sources.backlog import Answer, ask
from onlyonce.tables import checkpoint, opening, stores

STALE_SECONDS = 3600
"""A hidden file that has not changed for so long was left by a process that is dead."""
LEFT_BY_SPARK = re.compile(r"\.+.*\.tmp(\.crc)?|\.metadata\.(?!crc$).*")
LEFT_BY_REPROCESS = re.compile(r"\.reprocessed-.*\.jsonl\.[0-9a-f]{32}")
LEFT_BY_LANDING = re.compile(r"\.pubsub-.*\.jsonl")
LEFT_BY_ARCHIVE = re.compile(r"\..*\.part")
LEFT_AT_THE_PREFIX = re.compile(r"onlyonce\.json\.[0-9a-f]{32}|crashtest-[0-9a-f]{8}")
SHARED = "nobody"
"""The account that runs the embedded server if root has no other account for it (`onlyonce.local.postgres`)."""
DELTA_JAR = re.compile(r"delta-spark_([\d.]+)_[\d.]+-(.+)\.jar")


def checkpoints(queries: Sequence[LiveQuery]) -> dict[str, Refused]:
    """Return what is wrong with the checkpoints of incarnations that have run and have no running driver."""
    found = {}
    for query in queries:
        if query.begun is None or query.at_work:
            continue
        incarnation = query.incarnation
        incarnations = settings.data_location(query.instance) / stored_names.CHECKPOINTS_FOLDER
        folder = incarnations / query.query / str(query.ordinal)
        try:
            checkpoint.is_its_own(folder, incarnation, query.checkpoint_id, query.begun)
            checkpoint.compare(folder, incarnation, query.committed)
        except Refused as error:
            found[incarnation] = error
    return found


class Tables:
    """Read the Delta tables of the platform; `unreadable` has the tables that can't be read, each with the reason."""

    def __init__(self) -> None:
        self.unreadable: dict[str, str] = {}

    def landed(
        self, platform: UUID | None, queries: Sequence[LiveQuery], declared: Mapping[str, Pipeline]
    ) -> dict[tuple[str, str], int]:
        """Return (incarnation, table) → the highest batch of the incarnation that is in the table, by its
        transactions.
        """
        found = {}
        for query in queries:
            for path, app_id in _written_by(platform, query, declared):
                table = self._open(path)
                there = table.transaction_version(app_id) if table else None
                if there is not None:
                    found[query.incarnation, str(path)] = there
            for place, output in _in_catalogs(query, declared):
                there = self._in_catalog(place, stored_names.writer(platform, query.incarnation), output)
                if there is not None:
                    found[query.incarnation, place.text] = there
        return found

    def events(self, instances: list[str]) -> dict[str, int]:
        """Return the version of `events` of each instance that has it."""
        opened = {
            instance: self._open(settings.data_location(instance) / stored_names.EVENTS_FOLDER)
            for instance in instances
        }
        return {instance: table.version() for instance, table in opened.items() if table}

    def _in_catalog(self, place: Place, writer: str, output: str) -> int | None:
        from onlyonce.sinks.iceberg import iceberg_commits  # imports pyiceberg, an extra

        try:
            return iceberg_commits.landed(place, writer, output)
        except OnlyonceError as error:
            self.unreadable[place.text] = error.what
            return None

    def _open(self, path: Location) -> DeltaTable | None:
        if not opening.any_in(path) or str(path) in self.unreadable:
            return None
        try:
            return opening.table(path)
        except (DeltaError, OnlyonceError) as error:  # OnlyonceError: the table has a feature that nothing here reads
            self.unreadable[str(path)] = (str(error).splitlines() or [type(error).__name__])[0]
            return None


def _written_by(
    platform: UUID | None, query: LiveQuery, declared: Mapping[str, Pipeline]
) -> Iterator[tuple[Location, str]]:
    """Yield (table, transaction id) of each Delta table that a query writes."""
    data, incarnation, pipeline = (
        settings.data_location(query.instance),
        query.incarnation,
        declared.get(query.pipeline),
    )
    if query.query == "receive":
        yield data / stored_names.EVENTS_FOLDER, stored_names.transaction(incarnation, stored_names.EVENTS_BY)
    elif pipeline and query.query in [root.name for root in pipeline.roots()]:
        root = pipeline.output(query.query)
        suffix = query.instance.removeprefix(pipeline.name)
        for output in (root, *pipeline.made_from(root)):
            for path in in_use.tables(query.instance, output.name):
                yield path, stored_names.transaction(incarnation, stored_names.STAGED_BY)
            if table := output.sink.delta_table(Place(target(pipeline, output)).of_run(suffix)):
                yield table, stored_names.result_transaction(platform, incarnation, output.name)


def _in_catalogs(query: LiveQuery, declared: Mapping[str, Pipeline]) -> Iterator[tuple[Place, str]]:
    """Yield (table, output) of each table in Iceberg catalogs that a query writes."""
    pipeline = declared.get(query.pipeline)
    if pipeline and query.query in [root.name for root in pipeline.roots()]:
        root = pipeline.output(query.query)
        for output in (root, *pipeline.made_from(root)):
            place = Place(target(pipeline, output))
            if place.of_target and place.of_target.in_catalog:
                yield place.of_run(query.instance.removeprefix(pipeline.name)), output.name


def forgotten_files(instances: list[str], queries: Sequence[LiveQuery]) -> dict[str, str]:
    """Return folders of instances or of later incarnations that the log should know and does not, each with the
    reason.
    """
    folder = settings.data_root() / stored_names.DATA_FOLDER
    store = stores.of(folder)
    found = {
        str(folder / name): "it holds `events`, but the log has no pipeline of that name"
        for name in sorted(store.names(folder))
        if name not in instances
        and not name.startswith(stored_names.DROPPED_PREFIX)
        and opening.any_in(folder / name / stored_names.EVENTS_FOLDER)
    }
    for query in queries:
        incarnations = settings.data_location(query.instance) / stored_names.CHECKPOINTS_FOLDER / query.query
        for name in store.names(incarnations):
            if name.isdigit() and int(name) > query.ordinal:
                found[str(incarnations / name)] = (
                    f"it is the checkpoint of an incarnation that the log does not know; its last is "
                    f"{query.incarnation}"
                )
    return found


def temporaries(instance: str, pipeline: Pipeline | None) -> list[str]:
    """Return hidden files with our own names that killed processes left half written."""
    found = _left_by_spark(settings.data_location(instance))
    if pipeline and instance == pipeline.name:
        for inbox in api_pipeline.folders(pipeline):
            for left in (LEFT_BY_REPROCESS, LEFT_BY_LANDING):
                found += _left_in(inbox, left, deep=False) if isinstance(inbox, Path) else []
        if isinstance(archive := settings.archive(), Path):  # in a store no object is half written
            found += _left_in(archive / pipeline.name, LEFT_BY_ARCHIVE)
    return sorted(found)


def left_at_the_prefix() -> dict[str, list[str]]:
    """Return, if data is in a store, its place and the objects that a killed first start or crash test left there.

    On a disk these have folders of their own.
    """
    root = settings.data_root()
    if isinstance(root, Path):
        return {}
    store, found = stores.of(root), list[str]()
    for name in store.names(root):
        if LEFT_AT_THE_PREFIX.fullmatch(name):
            there = [*store.entries(root / name), *filter(None, [store.look(root / name)])]
            if all(time.time() - one.modified > STALE_SECONDS for one in there):
                found += [str(one.at) for one in there]
    return {str(root): sorted(found)}


def _left_by_spark(data: Location) -> list[str]:
    if isinstance(data, Path):
        return _left_in(data, LEFT_BY_SPARK)
    there = stores.of(data).entries(
        data / stored_names.CHECKPOINTS_FOLDER
    )  # the other objects are many, and none got its name by a rename
    return [
        str(one.at)
        for one in there
        if LEFT_BY_SPARK.fullmatch(one.at.name) and time.time() - one.modified > STALE_SECONDS
    ]


def _left_in(folder: Path, names: re.Pattern[str], *, deep: bool = True) -> list[str]:
    found = []
    for place, below, files in os.walk(folder):
        # The rows of `events` and staged rows: many files, and none of our hidden files.
        below[:] = [name for name in below if deep and not name.startswith("oo_")]
        for name in files:
            path = Path(place, name)
            if names.fullmatch(name) and _is_old(path):
                found.append(str(path))
    return found


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > STALE_SECONDS
    except OSError:
        return False


def permissions() -> list[Finding]:
    """Return the folders of the embedded home that other users may enter, and the server's if it runs under a shared
    account."""
    if not settings.embedded():
        return []
    found = [
        wider_permissions(str(path), found, allowed) for path, found, allowed in settings.wider_folders(settings.home())
    ]
    server = settings.home() / "postgres"
    if (server / "data").exists() and (account := owner_of(server / "data")) == SHARED:
        found.append(shared_account(str(server), account))
    return found


def owner_of(path: Path) -> str | None:
    """Return the account that owns a path; None if it has no name."""
    try:
        return path.owner()
    except KeyError:
        return None


def table_versions() -> list[Finding]:
    """Return what is installed and does not fit: the two packages of Spark, and Delta's jar."""
    spark, client, delta = (metadata.version(name) for name in ("pyspark", "pyspark-client", "delta-spark"))
    folder, found = jar_folder(), []
    if spark != client:
        what = f"pyspark is {spark} and pyspark-client {client}; both install the same module"
        found.append(other_version("pyspark-client", what))
    jars = [match for path in sorted(folder.glob("delta-spark_*.jar")) if (match := DELTA_JAR.fullmatch(path.name))]
    if not jars and not folder.exists() and not settings.jars():
        return found  # Spark fetches them by their coordinates, as a run without a folder does
    if not jars:
        found.append(other_version(str(folder), f"the jars of Delta are not in {folder}"))
    for jar in jars:
        if jar[2] != delta or not spark.startswith(f"{jar[1]}."):
            what = f"the jar {jar[0]} is there, but delta-spark is {delta} and pyspark {spark}"
            found.append(other_version(str(folder / jar[0]), what))
    if len(jars) > 1:
        found.append(other_version(str(folder), f"{len(jars)} versions of Delta's jar are in {folder}"))
    return found


# Repairs: each finding names a command, and the command's own entry point runs. Each repair is noted in
# <home>/logs/doctor.log.


log = structlog.get_logger()


def may_repair(finding: Finding, yes: bool) -> bool:
    """Return whether the repair may run without a person. A repair that gives something up for good needs `yes`."""
    return finding.repair.by != "person" and (yes or not finding.repair.for_good)


def repaired(database: Database, finding: Finding, asked: argparse.Namespace) -> dict[str, Any]:
    """Carry out one repair and note its outcome. A repair that fails does not raise."""
    try:
        carry_out(database, finding, asked)
        outcome = "done"
    except OnlyonceError as error:
        outcome = f"failed: {error}"
    except OSError as error:
        outcome = f"failed: {error.strerror}"
    noted = {"finding": finding.kind, "where": finding.where, "repair": finding.repair.command, "outcome": outcome}
    log.info("repair", **noted)
    journal = settings.inside_home(settings.home(), "logs") / "doctor.log"
    with journal.open("a") as lines:
        lines.write(json.dumps({"at": datetime.now(UTC).isoformat(), **noted}) + "\n")
    return noted


def carry_out(database: Database, finding: Finding, asked: argparse.Namespace) -> None:
    """Carry out a finding's repair. Raise what its entry point raises."""
    by, arguments = finding.repair.by, finding.repair.arguments
    if by in ("run", "backfill", "reprocess"):
        _entry(by)([*arguments, *_common(asked)])
    elif by == "incarnation":
        from onlyonce.run import reset

        reset.new(arguments[0], yes=True)
    elif by == "drop":
        from onlyonce.operate import drop

        drop.main([*arguments, *_files(asked)])
    elif by == "finalize":
        from onlyonce.sinks.files import finalize

        finalize.main([*arguments, *_files(asked)])
    elif by == "deliver":
        from onlyonce.sinks.outbox import deliver

        deliver.main([*arguments, *_files(asked)])
    elif by == "migrate":
        migrate(database.url)
    elif by == "ids":
        instance, of, bucket = arguments
        at_least_once.rebuild_again(
            database, instance, settings.data_location(instance) / stored_names.EVENTS_FOLDER, of, bucket
        )
    elif by == "filter":
        instance, *keys = arguments
        for key in keys:
            Health(database).repair_filter(instance, key)
    elif by == "arrivals":
        DriverClock(database).check()  # the next arrival is taken from this clock
        Arrivals(database).correct(arguments[0], lambda: manifest.last_batches(arguments[0]))
    else:
        assert by == "files", by
        for file in arguments:
            at = location(file)
            stores.of(at).delete(at)


def _entry(by: str) -> Callable[[list[str]], Report]:
    """Return the entry points that start Spark, which only a repair needs."""
    from onlyonce.outputs import backfill, reprocess
    from onlyonce.run import stream

    entries: dict[str, Callable[[list[str]], Report]] = {
        "run": stream.main, "backfill": backfill.main, "reprocess": reprocess.main,
    }  # fmt: skip
    return entries[by]


def _common(asked: argparse.Namespace) -> list[str]:
    master = ["--master", asked.master] if asked.master else []
    return [*master, *_files(asked)]


def _files(asked: argparse.Namespace) -> list[str]:
    return [word for file in asked.pipelines or [] for word in ("--pipelines", str(file))]


# The entry point.


SECOND_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Platform:
    """The objects that the doctor checks. `only`: the pipeline whose findings were asked for; None: of all."""

    database: Database
    pipelines: dict[str, Pipeline]
    grace_seconds: float
    only: str | None = None


def main(argv: list[str]) -> Report:
    """Check, carry out the requested repairs, check again; report the findings that are left.

    Raise DatabaseAway if the log can't be read, and Refused if the database is of a newer version.
    """
    logs.configure(job="doctor")
    return visit(argv)


def visit(argv: list[str]) -> Report:
    """Do the same when logs are configured already, as in Airflow. The view `findings` gets what is left, too."""
    asked = parse("doctor", argv)
    pipelines = declarations.load(asked.pipelines)
    only = asked.pipeline.partition("@")[0] if asked.pipeline else None
    platform = Platform(Database(settings.database_url(), "onlyonce-doctor"), pipelines, asked.grace * 60, only)
    found = examine(platform)
    done: list[dict[str, Any]] = []
    if asked.fix and any(may_repair(finding, asked.yes) for finding in found):
        # One run may resolve several findings.
        due = {(finding.repair.by, finding.repair.arguments): finding for finding in reversed(found)}
        done = [
            repaired(platform.database, finding, asked)
            for finding in found
            if finding in due.values() and may_repair(finding, asked.yes)
        ]
        found = examine(platform)
    rows = [finding.row() for finding in found]
    # The page shows what is stuck of all pipelines: a check of one pipeline is not kept.
    warnings = _keep(platform, rows) if only is None else []
    facts = {"found": len(found), "repaired": sum(repair["outcome"] == "done" for repair in done)}
    shown = {"findings": rows, "repairs": done}
    said = [f"{len(found)} finding(s)"] if found else []
    if failed := _failed(platform):
        shown[failed_runs.TABLE] = [vars(end) for end in failed]
        said.append(f"the last run of {', '.join(end.pipeline for end in failed)} failed")
    if left_out := _not_looked_at(platform):
        said = [*(said or ["nothing stuck was found"]), f"not looked at: {left_out}"]
        warnings.append(f"{left_out}: {NOT_DECLARED}")
    title = f"doctor: {'; '.join(said) or 'nothing is stuck'}"
    return Report(title, f"doctor__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, shown, warnings)


NOT_DECLARED = (
    "no file that was read declares it, and no recent answer of its sources is stored. Whether it has unread input or "
    "can continue is not known. Name its file: onlyonce doctor --pipelines FILE, or add it to ONLYONCE_PIPELINES"
)
"""Why a pipeline of the log was not looked at, and what to do."""


def _not_looked_at(platform: Platform) -> str:
    """Return the pipelines of the log that no declaration and no stored answer could be asked of, with commas."""
    with Views.once(platform.database) as views:
        if missing(views.connection):
            return ""
        names = {row["pipeline"] for row in views.rows("status")}
        found = unread.not_looked_at(names, views.rows("backlog"), platform.pipelines)
    return ", ".join(name for name in found if platform.only in (None, name))


def _failed(platform: Platform) -> list[failed_runs.RunEnd]:
    """Return the last run of each pipeline if it failed and nothing was committed since.

    It is not among the findings: the next run may pass, and the doctor has no repair.
    """
    with Views.once(platform.database) as views:
        if missing(views.connection):
            return []
        return failed_runs.found(views.rows("last_ends"), views.rows("status"), platform.only)


def examine(platform: Platform) -> list[Finding]:
    """Return the findings that two consecutive checks have in common."""
    first = _look(platform)
    if not first:
        return []
    time.sleep(SECOND_LOOK_SECONDS)
    again = {finding.key for finding in _look(platform)}
    return [finding for finding in first if finding.key in again]


def _keep(platform: Platform, rows: list[dict[str, Any]]) -> list[str]:
    """Store the findings for the page. If it can't be noted, return a warning: the findings are reported in any
    case."""
    try:
        with Health.once(platform.database) as health:
            # A database that lacks our tables can't store the result, and the finding says so.
            if not missing(health.connection):
                health.note(rows)
    except (OnlyonceError, DBAPIError) as error:
        reason = str(getattr(error, "orig", error)).partition("\n")[0]
        return [f'this check could not be noted ({reason}): the page "onlyonce" shows the one before']
    return []


def _look(platform: Platform) -> list[Finding]:
    machine = [*table_versions(), *permissions()]
    with Drops.once(platform.database) as dropping:
        lacking = missing(dropping.connection)
        drops = [] if lacking else dropping.begun()
    if lacking:
        return [views_missing(lacking), *machine]
    half = [half_dropped(*drop) for drop in drops]
    seen = gather(platform, {drop[0] for drop in drops})
    if platform.only is not None and platform.only not in seen.pipelines:
        raise unknown("pipeline", platform.only, sorted(seen.pipelines))
    return [*machine, *of_pipeline([*half, *findings(seen, platform.grace_seconds)], platform.only, seen.pipelines)]


def gather(platform: Platform, dropped: Collection[str]) -> Evidence:
    """Gather all evidence. Read the tables before the log, which notes each batch before a table has it."""
    database, pipelines = platform.database, platform.pipelines
    with Health.once(database) as health:
        known, instances = health.queries(), dict(Collector(health.scope).instances())
        this = Authorities(health.scope).identity()
    tables = Tables()
    landed = tables.landed(this, known, pipelines)
    forgotten = forgotten_files([*instances, *dropped], known)
    with Health.at_one_moment(database) as health:
        queries, begun = health.queries(), health.begun()
        batches, away = health.with_units_elsewhere(begun.batches)
        begun = replace(begun, batches=batches)
        orphans, uneven, vouched = health.orphans(), health.uneven(), health.vouched()
        waits = replace(health.waits(), away=away)
        taken_in, stored = Views(health.scope).rows("taken_in"), Views(health.scope).rows("backlog")
        changed = dict(_changed(health.scope, pipelines, queries))
    # A source of another pipeline is not asked: its answer would be left out.
    answers = ask([one for one in pipelines.values() if platform.only in (None, one.name)], taken_in)
    bound = settings.alert_lag_minutes() * 60
    waits = replace(waits, unread=unread.waiting(answers, bound) + unread.stored(stored, pipelines, bound))
    refused_tables, refused_functions = _refused(pipelines)
    return Evidence(
        frozenset(pipelines),
        queries,
        begun,
        orphans,
        uneven,
        vouched,
        tables.events(list(instances)),
        checkpoints(queries),
        landed,
        tables.unreadable,
        forgotten,
        changed,
        frozenset(_redeclared(pipelines, queries, begun.batches)),
        list(damaged_filters(database)),
        {instance: temporaries(instance, pipelines.get(name)) for instance, name in instances.items()}
        | left_at_the_prefix(),
        waits,
        _skipped(answers),
        refused_tables,
        refused_functions,
    )


def _changed(
    scope: Scope, pipelines: dict[str, Pipeline], queries: Sequence[LiveQuery]
) -> Iterator[tuple[str, OnlyonceError]]:
    """Yield the incarnations that can't continue as they are declared now, each with the refusal that its next run
    would get."""
    for query in queries:
        pipeline = pipelines.get(query.pipeline)
        names = pipeline.queries() if pipeline else []
        if pipeline is None or query.begun is None or query.query not in names:
            continue
        try:
            live = Incarnations(scope).live(query.instance, query.query)
            if live:
                Declarations(scope).check(live, Declared.of(pipeline, query.instance, query.query))
        except OnlyonceError as error:
            if not resolve.needs_session(error):
                yield query.incarnation, error


def _refused(
    pipelines: dict[str, Pipeline],
) -> tuple[dict[tuple[str, str], OnlyonceError], dict[str, OnlyonceError]]:
    """Return the outputs whose tables can't take their rows, and the pipelines whose functions let no run begin.

    Tables are not compared if a function has changed since the last check: that needs Spark.
    """
    from onlyonce import check  # imports Spark's modules

    tables, functions = dict[tuple[str, str], OnlyonceError](), dict[str, OnlyonceError]()
    for name, pipeline in pipelines.items():
        try:
            shapes = check.kept_shapes(pipeline)
            wrong = check.wrong_tables(pipeline, shapes.schemas if shapes else {})
        except OnlyonceError as error:
            if not resolve.needs_session(error):
                functions[name] = error
        else:
            tables |= {
                (name, output): error
                for output, error in wrong.items()
                if isinstance(error, OnlyonceError) and for_good(error)
            }
    return tables, functions


def _skipped(answers: Iterable[Answer]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for one in answers:
        found.setdefault(one.pipeline, set()).update(one.backlog.skipped)
    return {pipeline: folders.told(names) for pipeline, names in found.items() if names}


def _redeclared(
    pipelines: dict[str, Pipeline], queries: Sequence[LiveQuery], begun: Sequence[BegunBatch]
) -> Iterator[str]:
    """Yield the incarnations with a begun batch that has units under another declaration than the present one."""
    known = {query.incarnation: query for query in queries}
    for batch in begun:
        query = known.get(batch.incarnation)
        pipeline = pipelines.get(query.pipeline) if query else None
        if query is None or pipeline is None or not batch.units:
            continue
        now = declarations.fingerprint(pipeline, query.query) if query.query in pipeline.queries() else None
        if now != batch.declaration_hash:
            yield batch.incarnation
