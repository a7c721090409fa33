"""Entry point: recompute closed windows. The DAG `<pipeline>_backfill` and `onlyonce backfill` run it.

Each output with windows, or the named one, is recomputed from `events` by the functions of the stream, now with late
rows. The result replaces the old rows as a new generation. The stream may run meanwhile.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from onlyonce import logs
from onlyonce.api import load as declarations
from onlyonce.api.outputs import not_backfilled, what_to_do
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.asked import parse
from onlyonce.asked import written as written
from onlyonce.commitlog import backfills, drivers, units
from onlyonce.commitlog.backfills import Backfills
from onlyonce.commitlog.health import Views
from onlyonce.core.backfill import (
    FIRST,
    LAST,
    OpenWindows,
    Span,
    ahead_of_now,
    as_options,
    off_borders,
    on_borders,
)
from onlyonce.core.batch import to_micros
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.engine import failures
from onlyonce.outputs import events

if TYPE_CHECKING:
    from onlyonce.context import RunContext


ALL_LATE = "all windows that have late records"
"""The range of a backfill with --late-only and without times."""


def main(argv: list[str]) -> Report:
    """Backfill one pipeline once, and return the report of what is committed. Raise the platform's errors."""
    asked, pipeline, roots, span = arguments(argv)
    logs.configure(pipeline=asked.pipeline, run_id=asked.run_id)
    database = units.database_of(None)
    migrate(database.url)
    if asked.dry_run:
        return dry_run(database, pipeline, roots, span, asked.lookups, late_only=asked.late_only)
    with drivers.noted_run(database, asked.dag_id, asked.run_id, pipeline.name) as since:
        # The sinks of all outputs first: what is refused for good must not wait for a window to close.
        check_sinks(pipeline, roots)
        if asked.late_only:
            left = _include_late(database, pipeline, roots, span, asked)
            return report(
                database, pipeline, span, asked.run_id, [*left, *between_borders(pipeline, roots, span, late_only=True)]
            )
        try:
            for root in roots:
                check(database, pipeline, root, span)
        except OpenWindows as error:
            raise ahead_of_now(pipeline.name, span, to_micros(datetime.now(UTC)), error) from error
        _recompute(database, pipeline, roots, span, asked, since)
        return report(database, pipeline, span, asked.run_id, between_borders(pipeline, roots, span))


def arguments(argv: list[str]) -> tuple[Namespace, Pipeline, list[Output], Span]:
    """Parse the arguments of a backfill. Return them, the pipeline, its outputs, and the span. Raise Refused."""
    asked = parse("backfill", argv)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)
    roots = chosen(pipeline, asked.output)
    return asked, pipeline, roots, span_of(roots, asked.start, asked.stop, late_only=asked.late_only)


def chosen(pipeline: Pipeline, name: str | None) -> list[Output]:
    """Return the outputs that read `events` and have windows, or the output that is named. Raise Refused.

    Outputs that are made from their closed windows are recomputed with them.
    """
    if name is not None:
        root = pipeline.root_of(pipeline.output(name))
        if root.stateful:
            raise not_backfilled(root)
        if root.window is None:
            raise Refused(
                f"output {name} has no windows",
                data="nothing was read or written",
                hint="a backfill recomputes windows; without windows nothing is late",
            )
        return [root]
    found = [root for root in pipeline.roots() if root.has_windows and not pipeline.upstream(root)]
    if not found:
        raise Refused(
            f"pipeline {pipeline.name} has no output with windows",
            data="nothing was read or written",
            hint="there is nothing to backfill",
        )
    return found


def span_of(roots: list[Output], start: datetime | None, stop: datetime | None, *, late_only: bool = False) -> Span:
    """Return the span that a person asks for, or raise Refused.

    A time without a zone is in the zone of the outputs' windows. If `late_only`, both times may be missing: then the
    span has all windows.
    """
    if start is None and stop is None and late_only:
        return Span(FIRST, LAST)
    if start is None or stop is None:
        missing = " and ".join(option for option, time in (("--from", start), ("--to", stop)) if time is None)
        raise Refused(
            f"a backfill of which windows? {missing} {'are' if start is stop else 'is'} missing",
            data="nothing was read or written",
            hint="give --from and --to; or --late-only, for all windows with late records that are not in their result",
        )
    return Span.of(start, stop, [root.window for root in roots])


def between_borders(pipeline: Pipeline, roots: list[Output], span: Span, *, late_only: bool = False) -> list[str]:
    """Return a warning if --from or --to is inside a window: what is recomputed, and the command of whole windows.

    An interval that is shorter than the windows is allowed: a DAG's intervals may be.
    """
    if span == Span(FIRST, LAST):
        return []
    off = [(root, root.window, off_borders(root.window, span)) for root in roots if root.window is not None]
    near = {on_borders(window, span) for _, window, _ in off}
    alike = len({said for *_, said in off}) == 1 and len(near) == 1
    named = not alike or [root.name for root in roots] != [root.name for root in chosen(pipeline, None)]
    warnings = []
    for root, window, said in off[:1] if alike else off:
        names = ", ".join(one.name for one, *_ in off) if alike else root.name
        command = ["onlyonce backfill", pipeline.name, as_options(window, on_borders(window, span))]
        command += ["--late-only"] * late_only + [f"--output {root.name}"] * named
        if said:
            warnings.append(f"{names}: {said}. The nearest borders: {' '.join(command)}")
    return warnings


def check(database: Database, pipeline: Pipeline, root: Output, span: Span) -> None:
    """Raise before Spark starts: OpenWindows (the same backfill passes later), or Refused for a sink.

    The DAG calls this before it starts a backfill.
    """
    check_sinks(pipeline, [root])
    backfills.closed_reach(database, pipeline.name, root, span)
    events.check_below(database, pipeline, root, span)


def check_sinks(pipeline: Pipeline, roots: list[Output]) -> None:
    """Raise Refused for the first output whose sink can't take its rows back."""
    for root in with_downstream(pipeline, roots):
        for output in [root, *pipeline.made_from(root)]:
            what_to_do(output)


def with_downstream(pipeline: Pipeline, roots: list[Output]) -> list[Output]:
    """Return the outputs, and the outputs that are made from their closed windows."""
    found = [output for root in roots for output in (root, *pipeline.downstream(root))]
    return list({output.name: output for output in found}.values())


def dry_run(
    database: Database,
    pipeline: Pipeline,
    roots: list[Output],
    span: Span,
    lookups: str = "then",
    *,
    late_only: bool = False,
) -> Report:
    """Report from the log what would be recomputed: the windows with their rows in time and late, and each sink's part.

    If `late_only`, report only windows with late records that no backfill has included.
    """
    names = [root.name for root in (with_downstream(pipeline, roots) if late_only else roots)]
    windows = Backfills(database).windows_in(pipeline.name, names, span, late_only=late_only)
    warnings = between_borders(pipeline, roots, span, late_only=late_only)
    sinks = []
    for root in roots:
        try:
            if late_only:
                check_sinks(pipeline, [root])
            else:
                check(database, pipeline, root, span)
        except OnlyonceError as error:
            warnings.append(f"{error.what}. {error.hint}")
    for root in with_downstream(pipeline, roots):
        sinks += [_of_sink(output) for output in [root, *pipeline.made_from(root)]]
    if late_only and not windows:
        warnings.append("no window has late records that are not in its result: nothing would be recomputed or written")
    facts = {**_asked_for(span), "windows": len(windows), "late rows not in a result": _total(windows)}
    if any(pipeline.lookups(root) for root in roots):
        facts["lookups"] = "as each window saw them" if lookups == "then" else "as they are now"
    tables = {"sinks": sinks, "windows": windows}
    return Report(f"{pipeline.name}: a backfill would recompute", "dry run", facts, tables, warnings)


def _asked_for(span: Span) -> dict[str, Any]:
    """Return the times that a person has asked for, or which windows are meant without times."""
    start, stop = span.times
    return {"range": ALL_LATE} if span == Span(FIRST, LAST) else {"from": start, "to": stop}


def report(database: Database, pipeline: Pipeline, span: Span, run_id: str, warnings: Sequence[str] = ()) -> Report:
    """Report from the log what a run has recomputed and committed."""
    done = Views(database).rows("run_backfills", run_id=run_id)
    commits = Views(database).rows("run_commits", run_id=run_id)
    facts = {"pipeline": pipeline.name, **_asked_for(span)}
    title = f"{pipeline.name}: " + (f"recomputed by {run_id}" if done else "nothing to recompute, nothing was written")
    shown = {"backfills": done, "commits": commits}
    nothing = ["no record has its window between these times, so no row was written or replaced"]
    empty = bool(done) and not any(row["windows"] for row in done)
    return Report(title, run_id, facts, shown, [*warnings, *(nothing if empty else [])])


def _recompute(
    database: Database,
    pipeline: Pipeline,
    roots: list[Output],
    span: Span,
    asked: Namespace,
    since: datetime | None,
) -> None:
    from onlyonce.outputs import backfill_windows as backfill

    context = _context(database, pipeline, asked)
    for root in roots:
        backfill.with_those_below(context, root, span, lookups=asked.lookups, since=since)


def _include_late(
    database: Database, pipeline: Pipeline, roots: list[Output], span: Span, asked: Namespace
) -> list[str]:
    """Recompute the windows with late records, each output after its upstream output.

    Return what was left to the stream.
    """
    outputs = with_downstream(pipeline, roots)
    if not any(events.late_spans(database, pipeline, pipeline.name, output, span) for output in outputs):
        return []  # without a Spark start
    from onlyonce.outputs import backfill_windows as backfill

    context, left = _context(database, pipeline, asked), []
    for output in outputs:
        # Queried again: the outputs made from an upstream output were recomputed with it.
        for late in events.not_included(partial(events.late_spans, database, pipeline, pipeline.name, output, span)):
            try:
                check(database, pipeline, output, late)
                backfill.with_those_below(context, output, late, lookups=asked.lookups)
            except OpenWindows as error:
                left.append(f"{error.what}. Left to the stream: a later --late-only includes these late records")
    return left


def _context(database: Database, pipeline: Pipeline, asked: Namespace) -> RunContext:
    from onlyonce.context import RunContext
    from onlyonce.engine import session

    spark = session.start(f"onlyonce backfill {pipeline.name}", asked.master)
    return RunContext(spark, pipeline, pipeline.name, asked.run_id, database)


def _of_sink(output: Output) -> dict[str, Any]:
    try:
        does = what_to_do(output)
    except Refused as error:
        does = f"refused: {error.hint}"
    return {
        "output": output.name,
        "sink": output.sink.target(output.name).partition(":")[0],
        "write": output.sink.write,
        "a backfill would": does,
    }


def _total(windows: list[dict[str, Any]]) -> int:
    return sum(row["late_not_included"] or 0 for row in windows)


def cli() -> None:
    """Run the application that spark-submit starts: print the report, and exit with the error's exit code."""
    failures.run_application(main)


if __name__ == "__main__":
    cli()
