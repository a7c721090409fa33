"""Remove a pipeline, a bounded run, or one output of a pipeline: `onlyonce drop`. No Spark.

What is declared is not removed, except a pipeline that has kept nothing: so it starts over with a corrected
declaration, under its name.

It removes the pipeline's rows in the log and its own folder: `events`, manifest, checkpoints, staged rows. Input,
archive and the tables of its sinks stay; `--tables` removes the tables too. Without `--yes` it only reports what would
be removed and what would stay. If it is killed, the same command finishes (docs/specification/drop.md).

An unknown name is not an error, since a dropped pipeline is unknown too. A live driver without a session may leave
files, but can commit nothing.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any

from onlyonce import failed_runs, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Pipeline, each_input, folder
from onlyonce.api.target_identity import declared_identity
from onlyonce.asked import parse
from onlyonce.commitlog import units
from onlyonce.commitlog.dropping import Claimed, Dropped, Drops, Left, Targets
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.units import Authorities
from onlyonce.console import plain
from onlyonce.core import stored_names
from onlyonce.core.changes import only_copies
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.near_names import did_you_mean, near
from onlyonce.core.ownership import Place, folders, in_database, other_databases, written
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.failpoints import passing
from onlyonce.sinks import target_kinds
from onlyonce.tables import removal


def main(argv: list[str]) -> Report:
    """Report what is removed and what stays, and with `--yes` remove it. A repeated call removes nothing more.

    Raise Refused while the pipeline is declared, unless it has kept no record and written no row, or if the variable of
    a sink's database is not set. Raise Retryable while one of its drivers has a session.
    """
    asked = parse("drop", argv)
    logs.configure(job="drop")
    database = Database(settings.database_url(), "onlyonce-drop")
    migrate(database.url)
    declared = declarations.load(asked.pipelines)
    found, before = Drops(database).look(asked.name, asked.output), Drops(database).left(asked.name, asked.output)
    elsewhere = _elsewhere(database, asked) if asked.name.partition("@")[0] not in declared else ""
    is_declared = _is_declared(declared.get(asked.name), asked.output)
    if is_declared:
        found.refuse_kept(asked.name)
    _refuse(found, asked)
    leaves = list(_leaves(found, before, _in_use(Targets(database).claimed(), found, before), tables=asked.tables))
    for place in (Place(left.place) for left in leaves if left.state == "going"):
        if in_database(place) or place.kind == "units":
            units.url_of(place.variable)  # refuse an unset variable before anything is removed
    if asked.yes:
        Drops(database).begin(asked.name, asked.output, leaves, declared=is_declared)
        passing("drop-after-log")
        for left in leaves:
            _settle(database, left)
        if asked.output is None:
            failed_runs.forget(asked.name)
    report = _report(asked, found, leaves, Drops(database).known(), _inputs(asked, declared.get(asked.name)))
    report.warnings.extend([elsewhere] if found.incarnations and elsewhere else [])
    return report


def _elsewhere(database: Database, asked: Namespace) -> str:
    """Return the warning for a pipeline that a file that was not read may declare. Call it before the drop."""
    rows = Views(database).rows("status")
    last = next((row["last_commit"] for row in rows if row["pipeline"] == asked.name), None)
    at = f", and its last batch was committed at {plain(last)}" if last else ""
    then = (
        "if another project still declares it, its next run begins it again and takes in its whole input"
        if asked.yes
        else "if another project declares it, leave it, or name its file (--pipelines FILE)"
    )
    return f"no file that was read declares {asked.name.partition('@')[0]}{at}: {then}"


def _is_declared(pipeline: Pipeline | None, output: str | None) -> bool:
    return pipeline is not None and (output is None or output in [one.name for one in pipeline.outputs])


def _refuse(found: Dropped, asked: Namespace) -> None:
    if asked.output == "receive":
        raise Refused("receive is not an output; it is dropped with its pipeline", hint=f"onlyonce drop {asked.name}")
    if found.at_work:
        raise Retryable(
            f"a driver of {found.at_work[0]} is running",
            data="nothing was removed",
            hint=f"onlyonce stop {asked.name.partition('@')[0]} waits for its end; then run the same command again",
        )


def _in_use(claimed: list[Claimed], found: Dropped, before: list[Left]) -> set[str]:
    """Return the identities of the places that are claimed by what is not dropped: another pipeline or output."""
    going = {*found.instances, *(left.instance for left in before)}
    outputs = {name for row in found.parts for name in row.parts.get("outputs", {})}
    left_before = {declared_identity(left.place) for left in before}
    in_use = set()
    for claim in claimed:
        same = declared_identity(claim.place)
        is_dropped = found.query is None or claim.output in outputs or same in left_before
        if claim.instance not in going or not is_dropped:
            in_use.add(same)
    return in_use


def _leaves(found: Dropped, before: list[Left], in_use: Collection[str], *, tables: bool) -> Iterator[Left]:
    """Yield each place outside the log with what becomes of it, except tables that another pipeline or output has.

    `in_use`: the identities of their places.
    """
    state = "going" if tables else "left"
    # An output of which the log knows no incarnation has no folder either: the name is wrong, or it is dropped already.
    for instance in found.instances if found.incarnations or found.query is None else ():
        mine = [row.parts for row in found.parts if row.instance == instance]
        places = [place for place in written(instance, mine) if declared_identity(place) not in in_use]
        known = [one.authority for one in found.elsewhere if found.incarnations[one.incarnation] == instance]
        outputs = [name for part in mine for name in part.get("outputs", {})]
        for place in (
            *other_databases(instance, found.query, places, known),
            *places,
            *folders(instance, found.query, dict.fromkeys(outputs)),
        ):
            becomes = state if Place(place).of_target else "going"
            yield Left(place, instance, found.query, found.of(instance), becomes)
    for left in before:
        going = left.state == "going" or (tables and declared_identity(left.place) not in in_use)
        yield Left(left.place, left.instance, left.query, left.incarnations, "going" if going else "left")


def _settle(database: Database, left: Left) -> None:
    """Remove what is at a place, then its note in the log. Each step may be done already."""
    place = Place(left.place)
    if left.state == "left":
        return
    if place.kind == "units":
        ours = Authorities(database).identity()
        Drops(Database(units.url_of(place.variable), "onlyonce-drop")).forget_units(left.incarnations, ours)
    elif place.kind == "data":
        removal.remove(removal.folder_of(place, settings.root_of(stored_names.DATA_FOLDER)))
    else:
        target_kinds.functions(place).drop(place)
    passing("drop-after-place")
    Drops(database).settle(left)


def _inputs(asked: Namespace, pipeline: Pipeline | None) -> list[str]:
    """Return the folders or objects of input that stay. Without a declaration only the folder in the home is known."""
    if asked.output:
        return []
    if pipeline is None:
        return [str(settings.inbox(asked.name))]
    return [str(folder(view)) for view in each_input(pipeline) if view.source.has_inbox]


def _report(asked: Namespace, found: Dropped, leaves: list[Left], known: list[str], inputs: list[str]) -> Report:
    name = f"{asked.name}/{asked.output}" if asked.output else asked.name
    goes = [{"what": "rows of the log", "where": ", ".join(found.incarnations)}] if found.incarnations else []
    goes += [_told(left) for left in leaves if left.state == "going"]
    stays = [_told(left) for left in leaves if left.state == "left"]
    stays += [{"what": "input", "where": inbox} for inbox in inputs]
    title = f"{name}: dropped" if asked.yes else f"{name}: what a drop would take (add --yes)"
    warnings = []
    if not goes:
        title = f"{name}: nothing is left to drop"
        meant = did_you_mean(near(asked.name, known)) if asked.name not in known else ""
        warnings = [f"{meant}the log has {', '.join(known) or 'no pipeline'}"]
        stays = [row for row in stays if row["what"] != "input"]
    if any(left.state == "left" for left in leaves):
        warnings.append("tables that stay keep their rows: no run may write there, until `onlyonce drop` with --tables")
    if (invalid := found.rows["invalid records"]) and not asked.yes:
        warnings.append(only_copies(asked.name, invalid))
    facts = {"incarnations": len(found.incarnations), **found.rows, "done": bool(asked.yes)}
    return Report(
        title, f"drop__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, {"goes": goes, "stays": stays}, warnings
    )


def _told(left: Left) -> dict[str, Any]:
    place = Place(left.place)
    if place.kind == "units":
        what, where = "units in its database", place.where
    else:
        what, where = place.of_target.in_words if place.of_target else "folder", place.where
        folder = place.of_target.folder if place.of_target else stored_names.DATA_FOLDER
        if folder and "://" not in where:
            where = str(removal.folder_of(place, settings.root_of(folder)))
    return {"what": what, "where": where + (f" ({place.variable})" if place.variable else "")}
