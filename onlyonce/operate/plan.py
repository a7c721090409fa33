"""Compare what is declared with what has run, and list what each difference needs before anything runs: `onlyonce
plan`.

It reads the log, but no data, and needs no Spark. The declared functions are imported for their source. With --yes it
does what is needed, in order: new incarnations, one run, backfills. Each step is a command of its own that may be
killed and run again. A new plan then lists what is left.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from onlyonce import check, logs, settings
from onlyonce.api import identity
from onlyonce.api import load as declarations
from onlyonce.api.outputs import what_to_do
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.api.target_identity import targets
from onlyonce.asked import parse
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.cuts import KeepEvents, LogCuts
from onlyonce.commitlog.dropping import Drops
from onlyonce.commitlog.incarnations import Declarations, Incarnations, Made, Ran
from onlyonce.commitlog.new_incarnations import NewIncarnations
from onlyonce.commitlog.removals import Removals
from onlyonce.core import retention, stored_names
from onlyonce.core.backfill import Span
from onlyonce.core.batch import to_micros
from onlyonce.core.changes import CONSEQUENCES, Change, Need, Parts, begins_elsewhere, changes, needing_a_name, no_step
from onlyonce.core.durations import in_words
from onlyonce.core.errors import OnlyonceError, Refused, Unexpected
from onlyonce.core.runs import Interrupted, Report
from onlyonce.core.stored_names import FIRST_WINDOW, ROWS_FROM
from onlyonce.core.unrepeatable import staged_rows
from onlyonce.core.windows import Fixed, Micros, first_start
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.engine import failures
from onlyonce.engine.state import PROVIDERS
from onlyonce.operate import compact as log_cut
from onlyonce.outputs import backfill
from onlyonce.run import reset, stream
from onlyonce.tables import checkpoint, stores

HINT = "run once with the declaration (and transform) as it was, so that the batch ends; then change it and plan again"


def half_written_told(
    database: Database, pipeline: Pipeline, ran: Iterable[Ran], begun_from_start: Container[str]
) -> list[str]:
    """Return a sentence for each query whose batch must end first. `begun_from_start`: the queries that get a new
    incarnation.

    A batch without a unit begins again under the changed declaration; a batch with units ends as it was declared. A new
    incarnation withdraws what readers have not seen (`onlyonce.run.reset`), so only what readers have seen must end
    before. The run and the new incarnation refuse such batches; the plan names them earlier.
    """
    return [text for one in ran if (text := _half_written_told(database, pipeline, one, begun_from_start))]


def _half_written_told(
    database: Database, pipeline: Pipeline, ran: Ran, begun_from_start: Container[str]
) -> str | None:
    begun, committed = Incarnations(database).last_batches(ran.incarnation)
    if begun is None or begun == committed:
        return None
    under = Batches(database).find(ran.incarnation, begun).plan.declaration_hash
    if under == declarations.fingerprint(pipeline, ran.query):
        return None
    found = NewIncarnations(database).left_so_far(ran.incarnation, pipeline.name, ran.query, begun)
    there = found.units
    if ran.query in begun_from_start:
        left = reset.left_by_batch(pipeline.name, found)
        seen = {one.sink for one in left if one.must_stay and reset.is_written(one, begun)}
        there = [unit for unit in there if unit.sink in seen]
    if not there:
        return None
    return (
        f"batch {ran.incarnation}/{begun} is half written: {len(there)} of its units are committed under declaration "
        f"{under}"
    )


# Outputs whose open windows are kept in another way than the settings say. Spark reads from the checkpoint where a
# query keeps its state and in how many partitions, so only a new incarnation changes it. A cluster's own settings are
# not read.


def kept_state_told(instance: str, staying: Iterable[Ran]) -> list[str]:
    """Return a sentence for each query whose incarnation continues with another state than the settings say."""
    return [text for one in staying if one.query != "receive" and (text := _kept_state_told(instance, one))]


def _kept_state_told(instance: str, ran: Ran) -> str | None:
    folder = (
        settings.data_location(instance)
        / stored_names.CHECKPOINTS_FOLDER
        / ran.query
        / ran.incarnation.rsplit("/", 1)[1]
    )
    there = checkpoint.state_of(folder) if any(stores.of(folder).names(folder / "state")) else None
    if there is None:
        return None
    asked = settings.spark()
    kept = next((kind for kind, provider in PROVIDERS.items() if provider == there.provider), there.provider)
    differs = [f"state is {kept}, and the settings say {asked.state}"] if kept != asked.state else []
    if asked.shuffle_partitions not in (None, there.partitions):
        differs.append(f"it is in {there.partitions} partitions, and the settings say {asked.shuffle_partitions}")
    return (
        f"{ran.incarnation}: {', '.join(differs)}; onlyonce reset {instance}/{ran.query} changes it"
        if differs
        else None
    )


# The steps that a changed declaration needs: new incarnations, a run, backfills. Pure.
#
# The log has the windows that need a backfill: readers see them and an older declaration has made them. So the plan of
# a half-finished change lists what is left, and the plan of a finished change is empty.


@dataclass(frozen=True)
class Step:
    """One command.

    start         what a new incarnation begins with, in addition to what the log says
    rows_again    how many rows it reads that were read before, by the log; None: it reads new rows only
    readers       what readers see until it has ended
    """

    kind: Literal["incarnation", "run", "backfill"]
    command: str
    arguments: tuple[str, ...]
    start: dict[str, Any] = field(default_factory=dict)
    rows_again: int | None = None
    readers: str | None = None


def reset_step(
    instance: str, root: Output, found: Iterable[Change], last_start: Micros | None, last_end: Micros | None
) -> Step | None:
    """Return the new incarnation that the changes of an output need; None if they need none.

    `last_start`: the start of its newest closed window. `last_end`: the end of its last written window.
    """
    asking = [change for change in found if change.need in (Need.INCARNATION, Need.BOTH)]
    if not asking:
        return None
    changed = {change.part.split(" of ")[0] for change in asking}
    start: dict[str, Any] = {}
    if root.stateful:
        start = {}  # always from the start: `onlyonce.run.reset`
    elif root.window is None:
        start = {"version": 0}  # its state sums up all records that ever came
    elif "window" in changed and last_end is not None:
        start = {FIRST_WINDOW: first_start(root.window, last_end)}
    elif "watermark_delay" in changed and last_start is not None:
        # Records that a longer wait admits would come in time for windows that are written.
        start = {FIRST_WINDOW: last_start + 1}
    waited = any(change.part.startswith("panes of") and begins_elsewhere(change) for change in asking)
    if waited and not root.sink.writes_files:
        # If its function keeps no state, rows come with their records from now on: those of windows that were open too.
        start = {ROWS_FROM: 0} | ({} if last_start is None else {FIRST_WINDOW: last_start + 1}) | start
    target = f"{instance}/{root.name}"
    by_hand = f"onlyonce reset {target} --yes"
    command = f"onlyonce plan {instance} --yes   (a new incarnation of {target})" if start else by_hand
    return Step("incarnation", command, (target,), start)


def run_step(instance: str) -> Step:
    """Return the run that gives new incarnations their first batch."""
    return Step("run", f"onlyonce run {instance}", (instance,))


def backfill_step(
    instance: str,
    root: Output,
    now: str,
    parts: Parts,
    made: Sequence[Made],
    first_window: Micros | None,
    kept_from: Micros | None = None,
) -> Step | None:
    """Return the backfill of the windows that an older declaration has made; None if there are none.

    `first_window` is where the windows of the new declaration begin, if they differ from the old ones. Windows that
    start before `kept_from` stay as they are, since some of their records are removed.
    """
    old = [m for m in made if m.hash != now and m.parts is not None and outdated(root.name, m.parts, parts)]
    if not old or root.window is None:
        return None
    # A backfill selects windows by their start; windows of fixed size may be named by their ends, which reads better.
    past_last = max(m.upto if isinstance(root.window, Fixed) else m.last + timedelta(microseconds=1) for m in old)
    stop = max(to_micros(past_last) or 0, first_window or 0)
    start = max(to_micros(min(m.first for m in old)) or 0, kept_from or 0)
    if start >= stop:
        return None
    times = ("--from", retention.said(start), "--to", retention.said(stop))
    arguments = (instance, "--output", root.name, *times)
    return Step("backfill", f"onlyonce backfill {' '.join(arguments)}", arguments)


def outdated(query: str, made_under: Parts, now: Parts) -> bool:
    """Return whether windows that were made under one declaration differ from windows that another would make."""
    return any(change.need in (Need.BACKFILL, Need.BOTH) for change in changes(query, made_under, now))


# The entry point.


FOR_EVER = "for ever"


@dataclass(frozen=True)
class Plan:
    """The changes of a pipeline, and the steps that they need.

    found          the changes
    todo           the steps, in order
    unknown        what can't be compared, what only a new incarnation changes, and what holds up a run
    half_written   the batches that must end before anything is done
    staged         output -> why its rows are stored before they are written
    no_step        why nothing can be done: a change needs another name; else None
    """

    pipeline: str
    found: list[Change]
    todo: list[Step]
    unknown: list[str]
    half_written: list[str]
    staged: Mapping[str, str] = field(default_factory=dict)
    no_step: str | None = None


def main(argv: list[str]) -> Report:
    """Plan one pipeline or all; with --yes do what one needs. Raise the platform's errors."""
    asked = parse("plan", argv)
    if asked.yes and not asked.pipeline:
        raise Refused("plan --yes is for one pipeline", hint="name it: onlyonce plan PIPELINE --yes")
    known = declarations.load(asked.pipelines)
    chosen = [declarations.one(asked.pipeline, asked.pipelines)] if asked.pipeline else list(known.values())
    database = Database(settings.database_url())
    migrate(database.url)
    plans = [made(database, pipeline) for pipeline in chosen]
    if asked.yes:
        return apply(database, chosen[0], plans[0], asked)
    found = report(plans, chosen)
    found.warnings.extend(text for one in chosen for text in Declarations(database).renamed(one, known))
    return found


def made(database: Database, pipeline: Pipeline) -> Plan:
    """Return the plan of a pipeline, by the log."""
    ran = {r.query: r for r in Declarations(database).all_that_ran(pipeline.name)}
    found: list[Change] = []
    unknown = _held_up(database, pipeline)
    for last in ran.values():
        found += _changes(pipeline, last, unknown)
    unknown += check.columns_apart(pipeline, found)
    incarnations = Declarations(database).starts(pipeline.name)
    if "receive" in ran:
        new = [root.name for root in pipeline.roots() if root.name not in incarnations]
        need, why = CONSEQUENCES["output added"]
        kept = Removals(database).kept_from(pipeline.name)
        if kept is not None:
            why = (
                f"records from before {retention.said(kept)} are removed: `onlyonce reset {pipeline.name}/… "
                "--from-kept --yes` begins it"
            )
        found += [Change(n, f"output {n}", None, n, need, why) for n in new]
        found += _retention(database, pipeline) + _log(database, pipeline)
    waiting = [root.name for root in pipeline.roots() if root.name in incarnations and root.name not in ran]
    begun_from_start = {change.query for change in found if change.need in (Need.INCARNATION, Need.BOTH)}
    roots = {"receive", *(root.name for root in pipeline.roots())}
    going_on = [last for last in ran.values() if last.query in roots]
    half = half_written_told(database, pipeline, going_on, begun_from_start)
    unknown += kept_state_told(pipeline.name, [last for last in going_on if last.query not in begun_from_start])
    lost = Declarations(database).invalid_lost(pipeline.name) if needing_a_name(found) else None
    stops = no_step(pipeline.name, found, lost)
    todo = [] if stops else _todo(database, pipeline, incarnations, found, waiting)
    unknown += [stops] if stops else []
    return Plan(pipeline.name, found, todo, unknown, half, check.kept_staged(pipeline), stops)


def apply(database: Database, pipeline: Pipeline, plan: Plan, asked: Namespace) -> Report:
    """Do the steps of a plan; a backfill that fails becomes a warning.

    Raise Refused for a change that needs another name, and the error of another step that fails (`stopped_at`).
    """
    if names := needing_a_name(plan.found):
        raise Refused(
            f"{names[0].part} of {pipeline.name} can't change under this name",
            data=f"nothing was done: {names[0].why}",
            hint=plan.no_step or "",
        )
    if plan.half_written:
        raise Refused(plan.half_written[0], data="nothing was done; the committed units stay", hint=HINT)
    Drops(database).refuse_left(pipeline.name, targets(pipeline, pipeline.name))
    logs.configure(pipeline=pipeline.name, run_id=asked.run_id)
    common = ["--run-id", asked.run_id, *(["--master", asked.master] if asked.master else [])]
    common += [word for file in asked.pipelines or [] for word in ("--pipelines", str(file))]
    done: list[dict[str, Any]] = []
    warnings: list[str] = []
    of_run = Report("", asked.run_id)
    for at, step in enumerate(plan.todo):
        try:
            of_run = _do(step, common) or of_run
            done.append({"done": step.command})
        except KeyboardInterrupt as end:
            of_run = end.report if isinstance(end, Interrupted) else of_run
            raise Interrupted(stopped_by_ctrl_c(plan, at, done, of_run)) from None
        except Exception as error:
            known = failures.ended_with(error)
            if step.kind != "backfill" or isinstance(known, Unexpected):
                raise stopped_at(plan, at, known) from error
            warnings.append(f"{step.command}: {known.what}. {known.hint}")
    left = _rows([made(database, pipeline)])["steps"]
    tables = {"done": done, **of_run.tables, **({"left": left} if left else {})}
    told = f"{len(done)} of the plan's {len(plan.todo)} steps are done" if warnings else "the plan is carried out"
    told = told if plan.todo else "no step is needed"
    return Report(f"{pipeline.name}: {told}", asked.run_id, {"steps": len(done)}, tables, [*of_run.warnings, *warnings])


def stopped_by_ctrl_c(plan: Plan, at: int, done: list[dict[str, Any]], of_run: Report) -> Report:
    """Return the report of a plan that Ctrl-C has ended in a step: what is done and left, and how it continues.

    `of_run`: the report of the plan's run, if it has begun.
    """
    title = f"{plan.pipeline}: stopped by Ctrl-C: {len(done)} of the plan's {len(plan.todo)} steps are done"
    left = [{"left": name} for name in _names(plan)[at:]]
    told = f"what is committed stays. {_again(plan)}"
    return Report(title, of_run.run_id, {"steps": len(done)}, {"done": done, "left": left, **of_run.tables}, [told])


def stopped_at(plan: Plan, at: int, error: OnlyonceError) -> OnlyonceError:
    """Return the error of a step that failed, with the steps of the plan that are done, and those that are left."""
    names = _names(plan)
    told = [f"done: {'; '.join(names[:at]) or 'no step'}"]
    told += [f"This step, {names[at]}: {error.data}"] if error.data else []
    told += [f"Left: {'; '.join(names[at:])}"]
    return type(error)(error.what, data=". ".join(told), hint=". ".join(filter(None, (error.hint, _again(plan)))))


def _names(plan: Plan) -> list[str]:
    """Return the steps as a person names them."""
    return [
        f"a new incarnation of {one.arguments[0]}" if one.kind == "incarnation" else one.command for one in plan.todo
    ]


def _again(plan: Plan) -> str:
    return f"`onlyonce plan {plan.pipeline} --yes` then does only the steps that are left"


def report(plans: list[Plan], pipelines: list[Pipeline]) -> Report:
    """Report changes and steps of these pipelines as tables."""
    facts = {"pipelines": len(plans), "changes": sum(len(p.found) for p in plans)}
    facts["steps"] = sum(len(p.todo) for p in plans)
    unknown = [text for plan in plans for text in plan.unknown]
    unknown += [f"{text}: {HINT}" for plan in plans for text in plan.half_written]
    title = "what the changed declarations need" + (" (add --yes)" if len(plans) == 1 and facts["steps"] else "")
    title = title if facts["changes"] or facts["steps"] else "nothing to do: no declaration differs from what has run"
    staged = {plan.pipeline: plan.staged for plan in plans}
    tables = _rows(plans) | staged_rows(staged, check.places_of_staged(pipelines, staged))
    return Report(title, "plan", facts, tables, unknown)


def _held_up(database: Database, pipeline: Pipeline) -> list[str]:
    """Return what a run refuses however it is declared: a place that a dropped pipeline, or another one, has."""
    try:
        Drops(database).refuse_left(pipeline.name, targets(pipeline, pipeline.name))
    except Refused as error:
        return [check.no_run(error)]
    return [f"{one.what}, so no run writes there: {one.hint}" for one in check.taken_tables(database, pipeline)]


def _changes(pipeline: Pipeline, last: Ran, unknown: list[str]) -> list[Change]:
    roots = [root.name for root in pipeline.roots()]
    if last.query != "receive" and last.query not in roots:
        kind = "from_output" if last.query in [o.name for o in pipeline.outputs] else "output removed"
        return [Change(last.query, f"output {last.query}", last.query, None, *CONSEQUENCES[kind])]
    if last.parts is None:
        if last.hash != declarations.fingerprint(pipeline, last.query):
            unknown.append(
                f"{last.incarnation} ran under declaration {last.hash}, which was not kept yet: it can't be compared"
            )
        return []
    now = declarations.parts(pipeline, last.query)
    now |= {"mode": identity.mode(pipeline)} if last.query == "receive" else {}
    return changes(last.query, last.parts, now, stateless=last.stateless)


def _retention(database: Database, pipeline: Pipeline) -> list[Change]:
    """Return what another `keep_events` gives up."""

    before, kept = Removals(database).last_keep(pipeline.name), Removals(database).kept_from(pipeline.name)
    keep = pipeline.keep_events
    decision = KeepEvents(database).decide(pipeline, keep) if keep else None
    why = retention.given_up(before, keep, kept, decision)
    if why is None:
        return []
    return [Change("receive", "keep_events", _kept_for(before), _kept_for(keep), Need.NOTHING, why)]


def _log(database: Database, pipeline: Pipeline) -> list[Change]:
    """Return what another `keep_log` gives up."""
    before = LogCuts(database).kept(pipeline.name).keep
    limit, incarnations, _ = log_cut.is_log_cut_due(database, pipeline) if pipeline.keep_log else (None, [], [])
    why = retention.log_given_up(before, pipeline.keep_log, limit if incarnations else None)
    if why is None:
        return []
    return [Change("receive", "keep_log", _kept_for(before), _kept_for(pipeline.keep_log), Need.NOTHING, why)]


def _kept_for(length: timedelta | None) -> str:
    return in_words(length) if length else FOR_EVER


def _todo(
    database: Database, pipeline: Pipeline, there: dict[str, dict[str, Any]], found: list[Change], waiting: list[str]
) -> list[Step]:
    resets: list[Step] = []
    again: list[Step] = []
    for root in pipeline.roots():
        of_root = [change for change in found if change.query == root.name]
        reset = _reset(database, pipeline, root, of_root)
        resets += [reset] if reset else []
        start = reset.start if reset else there.get(root.name, {})
        again += _backfill(database, pipeline, root, start.get(FIRST_WINDOW))
    added = [c for c in found if c.need is Need.NOTHING and c.part == f"output {c.query}" and c.after]
    runs = [run_step(pipeline.name)] if resets or waiting or added else []
    return [*resets, *runs, *again]


def _reset(database: Database, pipeline: Pipeline, root: Output, of_root: list[Change]) -> Step | None:
    start, end = Declarations(database).last_final(pipeline.name, root.name)
    step = reset_step(pipeline.name, root, of_root, to_micros(start), to_micros(end))
    if step is None:
        return None
    old = NewIncarnations(database).old(pipeline.name, root.name)
    asked = step.start | (reset.FROM_THE_START if root.stateful else {})
    begins = NewIncarnations(database).begins_at(pipeline.name, root.name, old.incarnation, asked)
    rows, readers = reset.cost_of(database, pipeline.name, root.name, root, begins)
    return replace(step, rows_again=rows, readers=readers)


def _backfill(database: Database, pipeline: Pipeline, root: Output, first_window: int | None) -> list[Step]:
    windows = Declarations(database).made(pipeline.name, root.name, root.name)
    if not windows:
        return []
    now, parts = declarations.fingerprint(pipeline, root.name), declarations.parts(pipeline, root.name)
    kept = Removals(database).kept_from(pipeline.name)
    first = None if kept is None else retention.first_moment(kept, root.window)
    step = backfill_step(pipeline.name, root, now, parts, windows, first_window, first)
    if step is None:
        return []
    span = Span.of(datetime.fromisoformat(step.arguments[4]), datetime.fromisoformat(step.arguments[6]))
    log = Backfills(database)
    met = log.met(pipeline.name, root.name, span, log.reach(pipeline.name, root.name).consumed)
    since = [c for m in windows if m.hash != now and m.parts for c in changes(root.name, m.parts, parts)]
    return [replace(step, rows_again=met["in_time"] + met["late"], readers=_readers_of_backfill(pipeline, root, since))]


def _readers_of_backfill(pipeline: Pipeline, root: Output, since: list[Change]) -> str:
    """Say what readers see until a backfill has ended. `since`: how its windows were declared otherwise."""
    new = [c.part.removeprefix("target of ") for c in since if c.part.startswith("target of ")]
    new += [c.part for c in since if c.part.startswith("output ") and c.after]
    if new:
        return f"a gap: the target of {', '.join(dict.fromkeys(new))} lacks these windows until the backfill has ended"
    outputs = [made for one in backfill.with_downstream(pipeline, [root]) for made in [one, *pipeline.made_from(one)]]
    return "; ".join(dict.fromkeys(_readers_of_sink(output) for output in outputs))


def _readers_of_sink(output: Output) -> str:
    try:
        does = what_to_do(output)
    except Refused as error:
        return f"output {output.name} refuses it: {error.hint}"
    return {
        "replace": "no gap: each table has a window's old rows until the new ones take their place",
        "correct": "no gap: the sums are corrected in one transaction",
        "resend": f"no gap: output {output.name} keeps its old rows, and the new ones are written or sent in addition",
        "skip": f"no gap: output {output.name} keeps its old rows and gets no new ones",
    }[does]


def _do(step: Step, common: list[str]) -> Report | None:
    """Do a step; return the report if it is a run."""
    if step.kind == "run":
        return stream.main([*step.arguments, *common])
    if step.kind == "incarnation":
        reset.new(step.arguments[0], yes=True, start=step.start)
    else:
        backfill.main([*step.arguments, *common])
    return None


def _rows(plans: list[Plan]) -> dict[str, list[dict[str, Any]]]:
    return {
        "changes": [
            {
                "pipeline": plan.pipeline, "query": c.query, "what": c.part, "before": c.before, "after": c.after,
                "diff": c.diff, "needs": str(c.need), "why": c.why,
            }
            for plan in plans for c in plan.found
        ],
        "steps": [
            {
                "pipeline": plan.pipeline, "command": step.command, "rows_read_again": step.rows_again,
                "readers": step.readers,
            }
            for plan in plans for step in plan.todo
        ],
    }  # fmt: skip
