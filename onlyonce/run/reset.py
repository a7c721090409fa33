"""Begin a new incarnation of a query whose checkpoint is lost, swapped or damaged. Refusals name this command as the
way out.

Receive continues from the logged offsets. An output reads `events` from the first row of its oldest open window, and
leaves out windows that are final by the log. An output that keeps totals reads all of `events`. A processor's output is
computed from the start, and its rows replace all earlier ones (`onlyonce.outputs.query`). A join is refused. No Spark
is needed, unless a half-written batch must be finished: the next run makes the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.joins_and_state import FROM_START
from onlyonce.api.outputs import Output, check_from_start
from onlyonce.api.pipeline import unknown
from onlyonce.commitlog import incarnations, units
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Declarations, Declared, Incarnations
from onlyonce.commitlog.new_incarnations import Begun, LeftUnits, NewIncarnations, Start
from onlyonce.commitlog.removals import Removals
from onlyonce.commitlog.units import Authorities, Unit
from onlyonce.core import retention, stored_names
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.locations import Location
from onlyonce.core.runs import Report
from onlyonce.core.stored_names import BATCH_NO, FIRST_WINDOW, SOURCE_BATCH_NO
from onlyonce.core.windows import Micros
from onlyonce.database.connect import Database
from onlyonce.sources import listing
from onlyonce.tables import opening
from onlyonce.tables.own_tables import exactly
from onlyonce.tables.table_files import beside, is_ours

AskedStart = dict[str, Any] | None

FROM_THE_START: Start = {stored_names.START_VERSION: 0, FROM_START: True}
"""Where each new incarnation of an output with state of its own begins."""


def start_asked(instance: str, query: str, start: AskedStart) -> AskedStart:
    """Return what a new incarnation begins with, in addition to the log. `start` is what a changed declaration asks
    for.

    Raise Refused for a join: its rows depend on the state of its stream, which a new stream would not have.
    """
    root = _declared_root(instance, query)
    if root and root.join:
        raise Refused(
            f"{instance}/{query} is a join: which of its rows are written is in the state of its stream, and a new "
            "incarnation would not have that",
            data="nothing was changed; the rows that are written stay",
            hint="put its checkpoint back from a backup; or declare the join under another name, with a target of "
            "its own: it reads `events` from the start",
        )
    if root is None or root.stateful is None:
        return start
    check_from_start(f"{instance}/{query}", root)
    return (start or {}) | FROM_THE_START


def _declared_root(instance: str, query: str) -> Output | None:
    known = declarations.load().get(instance.partition("@")[0])
    return next((output for output in known.roots() if output.name == query), None) if known else None


def cost_of(database: Database, instance: str, query: str, root: Output | None, start: Start | None) -> tuple[int, str]:
    """Return what a new incarnation costs, by the log: the rows of `events` that it reads again, and what readers see.

    `start` is where it begins. `root` is None if the query is receive, or an output that is not declared.
    """
    if query == "receive":
        return 0, "no gap: `events` and all results stay"
    return NewIncarnations(database).rows_again(instance, start), seen_by_readers(root, start or {})


def seen_by_readers(root: Output | None, start: Start) -> str:
    """Say what readers of an output see until a new incarnation has caught up."""
    if root is None:
        return "not known: the output is not declared"
    if start.get(FROM_START):
        return "a gap: the next run removes all rows of the target, and writes them again as it reads `events`"
    seen = []
    if FIRST_WINDOW in start:
        first = retention.said(int(start[FIRST_WINDOW]))
        seen.append(f"windows that start before {first} stay as they are: only a backfill adds or changes rows there")
    if root.gives_changed_rows:
        what = "open windows" if root.window else "totals"
        seen.append(f"no row is lost, but {what} may be too small until the next run has read these rows again")
    elif root.window and FIRST_WINDOW not in start:
        seen.append("no gap: closed windows stay, and open windows are written when they close")
    elif not root.window:
        seen.append("no gap: the rows that are written stay")
    return "; ".join(seen)


def is_start_possible(root: Output) -> bool:
    """Return whether a new incarnation of an output writes no row twice."""
    try:
        if root.stateful:
            check_from_start(root.name, root)
    except Refused:
        return False
    return root.join is None


# An incarnation that begins with what retention has left of `events`, because a person says that this will do.
# docs/specification/removal.md.
#
# A new output, one that keeps totals, and sessions read `events` from the beginning. If that is removed, they are
# refused, until `onlyonce reset --from-kept` says otherwise. Such an incarnation leaves out windows that start before
# what is kept. Totals and the first sessions have the kept records alone.


def kept_start_of(instance: str, query: str, kept: Micros | None, begins: Start | None) -> Start:
    """Return what a new incarnation begins with, in addition to the log; nothing if it would begin later anyway.

    Raise Refused if nothing is removed, or if the output is not declared.
    """
    root = _needed_root(instance, query)
    if kept is None:
        raise Refused(
            f"{instance}: no record of `events` is removed", data="nothing was changed", hint="leave --from-kept out"
        )
    if (begins or {}).get(stored_names.START_VERSION, 0) > 0:
        return {}
    return retention.with_what_is_kept(root.window, kept, (begins or {}).get(FIRST_WINDOW))


def first_kept(database: Database, target: str, *, yes: bool) -> Report | None:
    """Register the first incarnation of a new output; return None if it has an incarnation."""
    instance, _, query = target.strip("/").partition("/")
    start = NewIncarnations(database).first(
        instance, query, lambda kept: kept_start_of(instance, query, kept, None), register=yes
    )
    if start is None:
        return None
    facts = {"instance": instance, "query": query, "starts from": retention.said(start[stored_names.KEPT_FROM])}
    title = f"{target}: its first incarnation" if yes else f"{target}: what its first incarnation would be (add --yes)"
    return Report(title, "reset" if yes else "dry run", facts)


def _needed_root(instance: str, query: str) -> Output:
    pipeline = declarations.one(instance)
    roots = {root.name: root for root in pipeline.roots()}
    if query not in roots:
        raise unknown("output that reads `events`", query, sorted(roots))
    return roots[query]


# Withdraw an output's batch that began, did not end, and has lost its checkpoint. First find what the batch has left
# behind in the sinks.
#
# | left in the sink                                    | seen by a reader | a new incarnation        |
# |-----------------------------------------------------|------------------|-------------------|
# | nothing, or units without rows                      | no               | writes the rows   |
# | Delta: a reference unit whose transaction is not committed | no               | writes the rows   |
# | files that no batch has given a pane                | no               | writes them again |
# | an upsert, a history, rows at least once            | yes              | writes over them  |
# | an append, an increment, rows in the outbox         | yes              | would write twice |
#
# In the last case the batch must be finished (`onlyonce.outputs.recover`). In all others the whole batch is withdrawn.
# The epoch in each database of the incarnation is raised before, so PostgreSQL refuses units of an older epoch. A Delta
# table can't, so an empty commit takes the batch's transaction id there before its unit is removed.


WRITTEN_OVER = ("upsert", "history", "FileSink(")
"""How `Left.write` begins for sinks whose rows a new incarnation replaces, or whose rows no reader has seen.

It is the sink's mode, or the declaration of a sink that has no mode.
"""


@dataclass(frozen=True)
class Left:
    """Rows of a batch that one sink may hold. `app_id`: their transaction id if they are in a Delta table."""

    sink: str
    write: str
    table: Location | None
    app_id: str

    @property
    def must_stay(self) -> bool:
        """Return whether a new incarnation would write the rows a second time."""
        return not self.write.startswith(WRITTEN_OVER)


def left_by_batch(instance: str, found: LeftUnits) -> list[Left]:
    """Return what a begun batch has left behind in its sinks, with rows that readers can see.

    It includes rows that a fenced driver may still commit.
    """
    # Plain units are of rows at least once, which may be written twice anyway.
    with_rows = {unit.sink: unit for unit in found.units if unit.rows and unit.kind != "plain"}
    return [
        _left(instance, unit, found.declared, stored_names.result_transaction(found.platform, found.incarnation, sink))
        for sink, unit in with_rows.items()
    ]


def is_written(one: Left, batch_id: int) -> bool:
    """Return whether the rows are written: in Delta by the table's transaction, elsewhere always with their unit."""
    return one.table is None or batch_holds(one.table, one.app_id, batch_id)


def batch_holds(path: Location, app_id: str, batch_id: int) -> bool:
    """Return whether a Delta table has the rows of a transaction.

    It has them if the transaction is in the table's snapshot and is not the empty one of `take_back`. The history is
    read last, since the table's owner may clean it. It outlives a transaction only if
    `delta.setTransactionRetentionDuration` is set.
    """
    if not opening.any_in(path):
        return False
    table = opening.table(path)
    if _has(table, app_id, batch_id):
        return not _has(table, app_id + stored_names.USED_UP, batch_id)
    return _version_with(table, app_id, batch_id) is not None


def _version_with(table: DeltaTable, app_id: str, batch_id: int) -> int | None:
    """Return the version that committed the rows of a transaction, by the table's history; None if it has none."""
    for entry in table.history():
        note = opening.note(entry.get("userMetadata"))
        noted = (note.get(stored_names.NOTE_APP_ID), note.get(stored_names.NOTE_VERSION))
        if noted == (app_id, batch_id) and note.get(stored_names.NOTE_UNIT) != stored_names.WITHDRAWN:
            return int(entry["version"])
    return None


def _has(table: DeltaTable, app_id: str, batch_id: int) -> bool:
    there = table.transaction_version(app_id)
    return there is not None and there >= batch_id


def take_all_back(path: Location, app_id: str, batch_id: int) -> None:
    """Commit an empty transaction under this id, so that a fenced driver can't commit.

    Deletes are committed before the batch's rows. So if the table of deletes lacks the batch's deletes, do this there
    first.
    """
    if is_ours(beside(path)) and not batch_holds(beside(path), app_id, batch_id):
        take_back(beside(path), app_id, batch_id)
    take_back(path, app_id, batch_id)


def take_back(path: Location, app_id: str, batch_id: int) -> None:
    """Take a transaction id by an empty commit, so that a fenced driver can't commit its rows under the id.

    Raise Retryable if another commit came in between, even one with just these rows. Raise Refused if deltalake can't
    commit to the table.
    """
    if not opening.any_in(path):
        return
    table = opening.table(path)
    if batch_holds(path, app_id, batch_id):
        raise _between(path, f"a driver that was running has committed batch {batch_id}")
    if _has(table, app_id, batch_id):
        return  # taken before, by a new incarnation that was not completed
    mark = CommitProperties(
        custom_metadata={"userMetadata": _mark(app_id, batch_id)},
        app_transactions=[Transaction(name, batch_id) for name in (app_id, app_id + stored_names.USED_UP)],
    )
    try:
        table.create_write_transaction(
            [], "append", table.schema(), table.metadata().partition_columns, commit_properties=mark
        )
    except CommitFailedError as error:
        raise _between(path, str(error).splitlines()[0]) from error
    except DeltaError as error:
        raise Refused(
            f"the table {path} can't be guarded against a driver that was running: {str(error).splitlines()[0]}",
            data="nothing was withdrawn",
            hint="is the table of a version that deltalake can't write? Take that feature out of it, or put the "
            "checkpoint back",
        ) from error


def _between(path: Location, told: str) -> Retryable:
    return Retryable(
        f"another commit to {path} came in between: {told}",
        data="nothing was withdrawn",
        hint="run the same command again",
    )


def _mark(app_id: str, batch_id: int) -> str:
    return opening.text(
        {
            stored_names.NOTE_APP_ID: app_id,
            stored_names.NOTE_VERSION: batch_id,
            stored_names.NOTE_UNIT: stored_names.WITHDRAWN,
        }
    )


def _left(instance: str, unit: Unit, declared: dict[str, dict[str, str]], app_id: str) -> Left:
    """Return what a sink may hold, by its declaration in the log.

    There `target` is kind:place. The bounded run name@7 writes into place@7. A sink that is not in the declaration has
    no `write`, so its rows must stay.
    """
    told = declared.get(unit.sink, {"write": "", "target": ""})
    kind, _, where = told["target"].partition(":")
    _, at, number = instance.partition("@")
    table = settings.table_location(where + at + number) if (unit.kind, kind) == ("reference", "delta") else None
    return Left(unit.sink, told["write"], table, app_id)


def new(target: str, *, yes: bool = False, start: dict[str, Any] | None = None, from_kept: bool = False) -> Report:
    """Close the live incarnation of INSTANCE/QUERY and register the next. Raise Refused.

    Without `yes` only report what would be done. Drivers of the old incarnation are fenced first, in each database to
    which they may commit; raise DatabaseAway if one does not answer. `start` is what a changed declaration asks of the
    new incarnation, in addition to the log (`onlyonce.operate.plan`). `from_kept`: if the beginning of `events` is
    removed, begin with what is kept (`kept_start_of`).
    """
    instance, _, query = target.strip("/").partition("/")
    start = start_asked(instance, query, start)
    database = units.database_of(None)
    # A first incarnation needs no other `start`: its target has no rows that it would have to remove.
    if from_kept and (first := first_kept(database, target, yes=yes)):
        return first
    old = NewIncarnations(database).old(instance, query)
    _refuse_bounded(instance, query)
    pipeline = declarations.load().get(instance.partition("@")[0])
    if pipeline and query in pipeline.queries():
        Declarations(database).check_next(old, Declared.of(pipeline, instance, query), by_plan=start is not None)
    if query == "receive":
        _refuse_forgotten(database, instance, old.incarnation)
    plan = NewIncarnations(database).begins_at(instance, query, old.incarnation, start)
    if from_kept:
        start = (start or {}) | kept_start_of(instance, query, Removals(database).kept_from(instance), plan)
        plan = (plan or {}) | start
    Removals(database).refuse_incarnation(instance, query, plan)
    rows, readers = cost_of(database, instance, query, _declared_root(instance, query), plan)
    facts = {
        "instance": instance, "query": query, "old": old.incarnation, "starts from": str(plan or "the beginning"),
        "rows read again": rows, "readers": readers,
    }  # fmt: skip
    if not yes:
        return Report(f"{target}: what a new incarnation would do (add --yes)", "dry run", facts)
    driver = Incarnations(database).bump(old, "reset")
    Authorities(database).refuse_forgotten(driver)
    Authorities(database).fence(driver)
    if query == "receive":
        _fence_events(database, instance, driver)
    else:
        _settle_outputs(database, driver, instance, query, from_start=FROM_START in (start or {}))
    made = NewIncarnations(database).begin(instance, query, driver, start)
    return Report(f"{target}: a new incarnation", "reset", facts | {"new": made})


def _refuse_bounded(instance: str, query: str) -> None:
    """Raise Refused for an output of a bounded run: its one batch is over all records."""
    if "@" in instance and query != "receive":
        raise Refused(
            f"{instance}/{query} is an output of a bounded run: a new incarnation would write all of its rows again",
            data="nothing was changed; the rows that are written stay",
            hint=f"run the same command again, which finishes the bounded run; if it can't: onlyonce drop {instance} "
            "--tables removes the run and its rows, and another bounded run writes them",
        )


def _refuse_forgotten(database: Database, instance: str, incarnation: str) -> None:
    """Raise Refused if `events` has batches that the log does not know: a new incarnation would take their records in
    again.

    Then the log was restored from an older backup than `events`.
    """
    path = settings.data_location(instance) / stored_names.EVENTS_FOLDER
    there = (
        opening.table(path).transaction_version(stored_names.transaction(incarnation, stored_names.EVENTS_BY))
        if opening.any_in(path)
        else None
    )
    begun = Incarnations(database).last_batches(incarnation)[0]
    if there is not None and there > (-1 if begun is None else begun):
        raise Refused(
            f"the table {path} holds batch {there} of incarnation {incarnation}, but the log knows none after {begun}",
            data="nothing was changed; a new incarnation would write the records of the forgotten batches again",
            hint="PostgreSQL was restored from an older backup: restore it, the tables and the checkpoints from "
            "one moment",
        )


def _settle_outputs(
    database: Database, driver: incarnations.Driver, instance: str, query: str, *, from_start: bool
) -> None:
    """Settle each output batch that began and did not end.

    If its sinks hold rows that a new incarnation would write a second time, finish it. Otherwise, or if the new
    incarnation removes all rows from the target, make sure that no fenced driver can commit it to a Delta table: then
    `NewIncarnations.begin` withdraws it.
    """
    for row in NewIncarnations(database).begun(driver.incarnation):
        left = left_by_batch(instance, NewIncarnations(database).left(driver, instance, query, row.batch_id))
        staying = [one.sink for one in left if one.must_stay and not from_start and is_written(one, row.batch_id)]
        if staying:
            _finish_output(database, driver, instance, query, row.batch_id)
            continue
        for one in left:
            if one.table is not None and not is_written(one, row.batch_id):
                take_all_back(one.table, one.app_id, row.batch_id)


def _finish_output(database: Database, driver: incarnations.Driver, instance: str, query: str, batch_id: int) -> None:
    """Finish a batch whose written rows a new incarnation would write a second time: write what is missing, and end
    it.
    """
    from onlyonce.context import Query, RunContext
    from onlyonce.engine import session
    from onlyonce.outputs import recover

    pipeline = declarations.one(instance.partition("@")[0])
    root = pipeline.output(query)
    old = NewIncarnations(database).old(instance, query)
    context = RunContext(
        session.start(f"onlyonce reset {instance}/{query}"), pipeline, instance, driver.run_id, database
    )
    recover.finish(
        context, Query(driver, context.folder, driver.session(database), old.start_from or {}), root, batch_id
    )


def _fence_events(database: Database, instance: str, driver: incarnations.Driver) -> None:
    """Take the transaction id of a begun receive batch, so that a zombie's Delta commit fails.

    If `events` has the commit already, the batch is ended instead of withdrawn. A begun watermark marker is ended too:
    outputs may have read its control row, and the next incarnation judges late records by committed markers alone.
    """
    from onlyonce.receive import loop

    path = settings.data_location(instance) / stored_names.EVENTS_FOLDER
    app_id = stored_names.transaction(driver.incarnation, stored_names.EVENTS_BY)
    for row in NewIncarnations(database).begun(driver.incarnation):
        if batch_holds(path, app_id, row.batch_id):
            _finish_receive(database, driver, row, path, app_id)
        else:
            take_back(path, app_id, row.batch_id)
    loop.finish_marker(database, driver, path)


def _finish_receive(database: Database, driver: incarnations.Driver, row: Begun, path: Location, app_id: str) -> None:
    """End a begun receive batch whose rows are in `events` and whose units are in the log."""
    found = Batches(database).find(driver.incarnation, row.batch_id)
    version = exactly(path, _version_with(opening.table(path), app_id, row.batch_id))
    must = _must(path.parent, row.source_to, found.plan.facts)
    if found.without_catalog:
        from onlyonce.receive import at_least_once

        at_least_once.end(database, driver, found, path, must, version)
        return
    read = must(Batches(database).fated(found.plan))
    Batches(database).end_receive(driver, found, read, version, bounded=False)


def _must(folder: Location, source_to: dict[str, Any], facts: dict[str, Any]) -> Callable[[int], int]:
    """Return a function from the number of judged records to the number that a batch must have.

    The caller compares the two. Of files the manifest has the number of records. Of a topic it has only offsets, which
    are an upper bound, since transaction markers take offsets too. So fewer records are right, and more are not.

    facts   has an entry for each unreadable input of the batch, which is one record
    """
    if stored_names.OFFSETS in source_to:
        most = int(source_to[stored_names.LINES]) + int(source_to.get(stored_names.LOST, 0)) + len(facts)
        return lambda fated: min(fated, most)
    of_source = incarnations.SOURCE in source_to
    manifest = folder / stored_names.SOURCES_FOLDER / source_to[incarnations.SOURCE] if of_source else folder
    read = _records(
        manifest / stored_names.FILES_MANIFEST, int(source_to[SOURCE_BATCH_NO if of_source else BATCH_NO]), facts
    )
    return lambda _: read


def _records(manifest: Location, batch_no: int, unreadable: dict[str, Any]) -> int:
    """Return how many records a batch of the manifest must have."""
    files = opening.table(manifest).to_pyarrow_table(columns=["path", "lines"], filters=[(BATCH_NO, "=", batch_no)])
    return listing.records(((row["path"], row["lines"]) for row in files.to_pylist()), unreadable)
