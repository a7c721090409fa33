"""Entry point: compare what is declared with what has run, and say what each difference needs before anything runs.

It reads the log, but no data, and needs no Spark. The declared functions are imported for their source. With `apply` it
does what is needed, in order: new lives, one run, backfills. Each is a command of its own that may be killed and run
again; a new plan then says what is left.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

from onlyonce import logs, settings
from onlyonce.asked import parse
from onlyonce.commitlog.declared import Declarations, Ran
from onlyonce.commitlog.operate.keep_events import KeepEvents
from onlyonce.commitlog.operate.log_cuts import LogCuts
from onlyonce.commitlog.operate.removals import Removals
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.declare import identity
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.batch import to_micros
from onlyonce.model.errors import OnlyonceError, Refused
from onlyonce.model.operate import keeping_log, retaining
from onlyonce.model.operate.consequences import CONSEQUENCES, Need
from onlyonce.model.operate.plan import Change, changes
from onlyonce.model.report import Report
from onlyonce.model.stored_names import FIRST_WINDOW
from onlyonce.operate.change import half_written, kept_state, steps
from onlyonce.operate.change.steps import Step
from onlyonce.operate.compact import log as log_cut
from onlyonce.outputs import backfill
from onlyonce.run import lineage, stream

FOR_EVER = "for ever"


@dataclass(frozen=True)
class Plan:
    """What has changed in a pipeline, what is to be done, what can't be told or only a new life changes, and which
    batches must end before anything is done."""

    pipeline: str
    found: list[Change]
    todo: list[Step]
    unknown: list[str]
    half_written: list[str]


def main(argv: list[str]) -> Report:
    """Plan one pipeline or all; with --apply --yes do what one needs. Raises the platform's errors."""
    asked = parse("plan", argv)
    known = declarations.load(asked.pipelines)
    chosen = [declarations.one(asked.pipeline, asked.pipelines)] if asked.pipeline else list(known.values())
    database = Database(settings.database_url())
    migrate(database.url)
    plans = [made(database, pipeline) for pipeline in chosen]
    if not asked.apply:
        return report(plans)
    if not asked.pipeline:
        raise Refused("--apply is for one pipeline", hint="name it: onlyonce plan PIPELINE --apply --yes")
    if not asked.yes:
        return report(plans, ["nothing was done yet: add --yes"] if plans[0].todo else [])
    return apply(database, chosen[0], plans[0], asked)


def made(database: Database, pipeline: Pipeline) -> Plan:
    """The plan of a pipeline, by the log."""
    ran = {r.query: r for r in Declarations(database).all_that_ran(pipeline.name)}
    found: list[Change] = []
    unknown: list[str] = []
    for last in ran.values():
        found += _changes(pipeline, last, unknown)
    lives = Declarations(database).lives(pipeline.name)
    if "receive" in ran:
        new = [root.name for root in pipeline.roots() if root.name not in lives]
        need, why = CONSEQUENCES["output added"]
        kept = Removals(database).kept_from(pipeline.name)
        if kept is not None:
            why = (
                f"records from before {retaining.said(kept)} are removed: `onlyonce lineage new {pipeline.name}/… "
                "--from-kept --yes` begins it"
            )
        found += [Change(n, f"output {n}", None, n, need, why) for n in new]
        found += _retention(database, pipeline) + _log(database, pipeline)
    waiting = [root.name for root in pipeline.roots() if root.name in lives and root.name not in ran]
    begun_anew = {change.query for change in found if change.need in (Need.LINEAGE, Need.BOTH)}
    roots = {"receive", *(root.name for root in pipeline.roots())}
    going_on = [last for last in ran.values() if last.query in roots]
    half = half_written.told(database, pipeline, going_on, begun_anew)
    unknown += kept_state.told(pipeline.name, [last for last in going_on if last.query not in begun_anew])
    return Plan(pipeline.name, found, _todo(database, pipeline, lives, found, waiting), unknown, half)


def apply(database: Database, pipeline: Pipeline, plan: Plan, asked: Namespace) -> Report:
    """Do the steps of a plan; what a later run must do is a warning. Raises Refused for what needs another name."""
    if names := [change for change in plan.found if change.need is Need.NAME]:
        raise Refused(
            f"{names[0].part} of {pipeline.name} can't change under this name",
            data="nothing was done",
            hint=f"{names[0].why}. Put it back, or declare the new one beside it",
        )
    if plan.half_written:
        raise Refused(plan.half_written[0], data="nothing was done; the committed units stay", hint=half_written.HINT)
    logs.configure(pipeline=pipeline.name, run_id=asked.run_id)
    common = ["--run-id", asked.run_id, *(["--master", asked.master] if asked.master else [])]
    common += [word for file in asked.pipelines or [] for word in ("--pipelines", str(file))]
    done: list[dict[str, Any]] = []
    warnings: list[str] = []
    for step in plan.todo:
        try:
            _do(step, common)
            done.append({"done": step.command})
        except OnlyonceError as error:
            if step.kind != "backfill":
                raise
            warnings.append(f"{step.command}: {error.what}. {error.hint}")
    left = made(database, pipeline)
    tables = {"done": done, "left": _rows([left])["steps"]}
    return Report(f"{pipeline.name}: the plan is carried out", asked.run_id, {"steps": len(done)}, tables, warnings)


def report(plans: list[Plan], warnings: list[str] | None = None) -> Report:
    """Changes and steps as tables."""
    facts = {"pipelines": len(plans), "changes": sum(len(p.found) for p in plans)}
    facts["steps"] = sum(len(p.todo) for p in plans)
    unknown = [text for plan in plans for text in plan.unknown]
    unknown += [f"{text}: {half_written.HINT}" for plan in plans for text in plan.half_written]
    return Report("what the changed declarations need", "plan", facts, _rows(plans), unknown + (warnings or []))


def _changes(pipeline: Pipeline, last: Ran, unknown: list[str]) -> list[Change]:
    roots = [root.name for root in pipeline.roots()]
    if last.query != "receive" and last.query not in roots:
        kind = "from_output" if last.query in [o.name for o in pipeline.outputs] else "output removed"
        return [Change(last.query, f"output {last.query}", last.query, None, *CONSEQUENCES[kind])]
    if last.parts is None:
        if last.hash != declarations.fingerprint(pipeline, last.query):
            unknown.append(
                f"{last.lineage} ran under declaration {last.hash}, which was not kept yet: it can't be compared"
            )
        return []
    now = declarations.parts(pipeline, last.query)
    now |= {"mode": identity.mode(pipeline)} if last.query == "receive" else {}
    return changes(last.query, last.parts, now, stateless=last.stateless)


def _retention(database: Database, pipeline: Pipeline) -> list[Change]:
    """What another `keep_events` gives up."""

    before, kept = Removals(database).last_keep(pipeline.name), Removals(database).kept_from(pipeline.name)
    keep = pipeline.keep_events
    decision = KeepEvents(database).decide(pipeline, keep) if keep else None
    why = retaining.given_up(before, keep, kept, decision)
    if why is None:
        return []
    now = str(keep or FOR_EVER)
    return [Change("receive", "keep_events", str(before or FOR_EVER), now, Need.NOTHING, why)]


def _log(database: Database, pipeline: Pipeline) -> list[Change]:
    """What another `keep_log` gives up."""
    before = LogCuts(database).kept(pipeline.name).keep
    limit, lives, _ = log_cut.due(database, pipeline) if pipeline.keep_log else (None, [], [])
    why = keeping_log.given_up(before, pipeline.keep_log, limit if lives else None)
    if why is None:
        return []
    now = str(pipeline.keep_log or FOR_EVER)
    return [Change("receive", "keep_log", str(before or FOR_EVER), now, Need.NOTHING, why)]


def _todo(
    database: Database, pipeline: Pipeline, there: dict[str, dict[str, Any]], found: list[Change], waiting: list[str]
) -> list[Step]:
    lives: list[Step] = []
    again: list[Step] = []
    for root in pipeline.roots():
        of_root = [change for change in found if change.query == root.name]
        life = _life(database, pipeline, root, of_root)
        lives += [life] if life else []
        start = life.start if life else there.get(root.name, {})
        again += _backfill(database, pipeline, root, start.get(FIRST_WINDOW))
    added = [c for c in found if c.need is Need.NOTHING and c.part == f"output {c.query}" and c.after]
    runs = [steps.run_of(pipeline.name)] if lives or waiting or added else []
    return [*lives, *runs, *again]


def _life(database: Database, pipeline: Pipeline, root: Output, of_root: list[Change]) -> Step | None:
    start, end = Declarations(database).last_final(pipeline.name, root.name)
    return steps.new_life(pipeline.name, root, of_root, to_micros(start), to_micros(end))


def _backfill(database: Database, pipeline: Pipeline, root: Output, first_window: int | None) -> list[Step]:
    windows = Declarations(database).made(pipeline.name, root.name, root.name)
    if not windows:
        return []
    now, parts = declarations.fingerprint(pipeline, root.name), declarations.parts(pipeline, root.name)
    kept = Removals(database).kept_from(pipeline.name)
    first = None if kept is None else retaining.first_moment(kept, root.window)
    step = steps.backfill(pipeline.name, root, now, parts, windows, first_window, first)
    return [step] if step else []


def _do(step: Step, common: list[str]) -> None:
    if step.kind == "lineage":
        lineage.new(step.arguments[0], yes=True, start=step.start)
    elif step.kind == "run":
        stream.main([*step.arguments, *common])
    else:
        backfill.main([*step.arguments, *common])


def _rows(plans: list[Plan]) -> dict[str, list[dict[str, Any]]]:
    return {
        "changes": [
            {
                "pipeline": plan.pipeline, "query": c.query, "what": c.part, "before": c.before, "after": c.after,
                "needs": str(c.need), "why": c.why,
            }
            for plan in plans for c in plan.found
        ],
        "steps": [{"pipeline": plan.pipeline, "command": step.command} for plan in plans for step in plan.todo],
    }  # fmt: skip
