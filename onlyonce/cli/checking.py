"""The commands that check or test a user's pipeline, and the commands for a changed pipeline.

The first are check, replay, conform and crashtest; the others plan and reprocess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from onlyonce import check_warnings, console, logs, settings
from onlyonce.api import load, resolve
from onlyonce.api.pipeline import Pipeline
from onlyonce.asked import comma_list
from onlyonce.cli.shell import (
    InstanceName,
    Json,
    Limit,
    PipelineFiles,
    PipelineName,
    asking,
    declared,
    give,
    note,
    progress,
    there,
)
from onlyonce.cli.work import quiet, watched, with_modules
from onlyonce.core.database_url import address
from onlyonce.core.errors import DatabaseAway, OnlyonceError, Refused
from onlyonce.core.runs import Report, refusal
from onlyonce.core.unrepeatable import staged_rows

if TYPE_CHECKING:
    from onlyonce.check import Checked
    from onlyonce.database.connect import Database

PANEL = "Change"
Master = Annotated[
    str | None, typer.Option(help="Spark's master; by default local[1] for a check, ONLYONCE_MASTER else.")
]

CHECK_SECONDS = 3.0
"""How long a check waits for a database."""


def add_check_commands(app: typer.Typer) -> None:
    """Register the commands `check` and `replay`."""
    for command in (check, replay):
        app.command(rich_help_panel=PANEL)(command)


def check(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="A declared pipeline; by default all.")
    ] = None,
    master: Master = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Check declarations, types, functions and sinks before anything runs.

    Starts a local Spark only where something has changed. Exit code 64: a declaration or function is wrong. A change
    that needs a step of `onlyonce plan` before the next run is a warning, with exit code 0.
    """
    known = load.load()
    if not known and (empty := load.empty_lists()):
        raise Refused(
            f"{empty[0]}: the list PIPELINES is empty, so nothing runs", data=load.NOTHING_DONE, hint=load.FILL_LIST
        )
    chosen = [declared(pipeline)] if pipeline else list(known.values())
    with log_if_there() as log, one_attempt() if log.why else nullcontext():
        found = checked(chosen, master)
        by_log = {one.name: _by_log(one, known, log.database) for one in chosen}
    from onlyonce import check as onlyonce_check  # imports Spark's modules

    rows = [
        {"pipeline": one.name, "outputs": len(one.outputs), "asked Spark": found[one.name].asked_spark}
        for one in chosen
    ]
    staged = {name: one.staged for name, one in found.items()}
    tables = {"checked": rows} | staged_rows(staged, onlyonce_check.places_of_staged(chosen, staged))
    warnings = [
        *([f"the log was not asked, so what runs have done was not compared: {log.why}"] if log.why else []),
        *_silent({f"{one.name}/{name}": error for one in chosen for name, error in found[one.name].away.items()}, log),
    ]
    unsent = {one.name: check_warnings.undeliverable(one) for one in chosen}
    warnings += [
        warning
        for one in chosen
        for warning in (
            *check_warnings.missing_inboxes(one),
            *(line for lines in unsent[one.name].values() for line in lines),
            *check_warnings.doubtful_event_times(one),
            *check_warnings.without_delay(one),
            *check_warnings.names_in_quotes(one),
            *check_warnings.changing_values(one, found[one.name].staged),
            *by_log[one.name].warnings,
        )
    ]
    facts: dict[str, Any] = {"pipelines": len(rows)}
    if by_place := [one.name for one in chosen if one.by_position]:
        facts["identified by place"] = f"{', '.join(by_place)} (record_id=(): a second copy of a record is kept too)"
    if brokers := sorted({broker for one in chosen for broker in check_warnings.unasked_brokers(one)}):
        facts["not asked"] = f"{', '.join(brokers)} (onlyonce lag does{check_warnings.lag_lacks()})"
    held_up = ", ".join(name for name, said in by_log.items() if said.refuses)
    waiting = ", ".join(f"{name}/{output}" for name, outputs in unsent.items() for output in outputs)
    silent = ", ".join(f"{one.name}/{output}" for one in chosen for output in found[one.name].away)
    but = [
        *([f"no run of {held_up} begins"] if held_up else []),
        *([f"the rows of {waiting} can't be sent from here"] if waiting else []),
        *(["the commit log did not answer, so no run begins now"] if log.why else []),
        *([f"the database of {silent} did not answer"] if silent else []),
    ]
    stored = ", ".join(f"{name}/{output}" for name, outputs in staged.items() for output in outputs)
    and_stored = f"; the rows of {stored} are stored before they are written (below)" if stored else ""
    title = f"what is declared is right, but {but[0]}" if but else f"{ALL_RIGHT}{and_stored}"
    give(Report(title, "check", facts, tables, warnings), as_json)


def _silent(away: Mapping[str, DatabaseAway], log: Log) -> Iterator[str]:
    """Yield a warning for each database that does not answer, with all its outputs. That of the log has one already."""
    of_database: dict[str, list[str]] = {}
    for name, error in away.items():
        of_database.setdefault(_place_of_silent(error.what), []).append(name)
    if log.why:
        of_database.pop(address(settings.database_url()), None)
    for first, *others in of_database.values():
        nor = f", nor for {', '.join(others)}" if others else ""
        yield f"{away[first].what}. So nothing was compared there{nor}: {away[first].hint}"


def _place_of_silent(what: str) -> str:
    """Return the address that the error of a database that did not answer names; the whole error if it names none."""
    found = SILENT.search(what)
    return found[1] if found else what


SILENT = re.compile(r"database at (\S+) did not answer")


ALL_RIGHT = "all that can be known before a run is right"


class ByLog(NamedTuple):
    """The log's answer to a pipeline as it is declared now.

    refuses    whether no run begins, which is the first warning then
    warnings   the changes after which one table has rows from before and after them, and the columns that a table has
               and the function does not give, or the other way round
    """

    refuses: bool
    warnings: list[str]


def _by_log(pipeline: Pipeline, names: Collection[str], database: Database | None) -> ByLog:
    """Compare a pipeline with what runs have done. Raise Refused if another pipeline has the table of an output.

    `names`: of all declared pipelines.
    """
    from onlyonce import check as onlyonce_check  # imports Spark's modules
    from onlyonce.commitlog.incarnations import Declarations
    from onlyonce.context import check_declarations

    if database is None:
        return ByLog(False, [])
    try:
        changed = check_declarations(database, pipeline, pipeline.name)
        taken = onlyonce_check.taken_tables(database, pipeline)
    except Refused as error:
        if resolve.needs_session(error):
            return ByLog(False, [])
        apart = onlyonce_check.columns_apart(pipeline, (), pipeline.queries())
        return ByLog(True, [onlyonce_check.no_run(error), *apart])
    if taken:
        raise taken[0]
    warnings = Declarations(database).renamed(pipeline, names)
    new = onlyonce_check.not_begun(database, pipeline, pipeline.name)
    warnings += onlyonce_check.warnings_of_changes(pipeline, changed, new)
    return ByLog(False, warnings)


class Log(NamedTuple):
    """The commit log's database; without one, why it can't be asked. Neither: there is none yet."""

    database: Database | None
    why: str | None


@contextmanager
def log_if_there() -> Iterator[Log]:
    """Yield the commit log if it answers at once. Raise Refused for a wrong URL or password."""
    with few_seconds():
        yield _log()


def _log() -> Log:
    from sqlalchemy.exc import ProgrammingError

    from onlyonce.commitlog.health import Views
    from onlyonce.database.connect import Database

    try:
        found = Database(there(settings.database_url), "onlyonce-check")
    except Refused as error:  # no platform yet, or its server is stopped
        return Log(None, None if isinstance(error.__cause__, FileNotFoundError) else f"{error.what}: {error.hint}")
    try:
        with one_attempt():
            Views(found).rows("at_work")
    except ProgrammingError:  # no tables of ours in it
        return Log(None, None)
    except Refused:
        raise
    except OnlyonceError as error:
        return Log(None, f"{error.what}: {error.hint}")
    return Log(found, None)


@contextmanager
def one_attempt() -> Iterator[None]:
    """Ask a database once, and wait for its answer as briefly as libpq can."""
    with settings.within({"ONLYONCE_DATABASE_PATIENCE": "0"}):
        yield


@contextmanager
def few_seconds() -> Iterator[None]:
    """Wait a few seconds for a database: a person waits for a check, and a run waits longer."""
    with settings.within({"ONLYONCE_DATABASE_PATIENCE": str(min(CHECK_SECONDS, settings.database_patience()))}):
        yield


@one_attempt()
def checked(chosen: list[Pipeline], master: str | None = None) -> dict[str, Checked]:
    """Check pipelines. Return what was found of each, by name. Raise Refused for the first that is wrong.

    A sink's database that does not answer is no mistake of a declaration.
    """
    from onlyonce import check as onlyonce_check  # imports Spark's modules and the database's driver

    logs.configure(job="check")
    with quiet("checks declarations and functions") as say:
        found = _without_spark(chosen, away=True)
        untried = [one for one in chosen if found[one.name].asked_spark]

        def session() -> Any:
            from onlyonce.engine import session as sessions

            say(f"starts Spark: {onlyonce_check.why_asked(untried)}")
            return sessions.start("onlyonce check", master or "local[1]")

        found |= {one.name: onlyonce_check.check_pipeline(one, session) for one in untried}
    _refuse_wrong(found.values(), away=True)
    return found


@few_seconds()
def unchecked(chosen: list[Pipeline]) -> list[Pipeline]:
    """Check pipelines as far as that needs no Spark. Return the pipelines whose functions only Spark can check."""
    found = _without_spark(chosen)
    return [one for one in chosen if found[one.name].asked_spark]


def _without_spark(chosen: list[Pipeline], *, away: bool = False) -> dict[str, Checked]:
    """Return what a check without Spark found, by pipeline. Raise Refused for the first that is wrong."""
    from onlyonce import check as onlyonce_check  # imports Spark's modules and the database's driver

    found = {one.name: onlyonce_check.check_pipeline(one, None) for one in chosen}
    _refuse_wrong(found.values(), away=away)
    return found


def _refuse_wrong(found: Iterable[Checked], *, away: bool) -> None:
    """Raise the first refusal. `away`: a database that does not answer is none."""
    for one in found:
        if wrong := {name: error for name, error in one.wrong.items() if not (away and name in one.away)}:
            raise refusal(wrong)


def replay(
    pipeline: InstanceName,
    batch: Annotated[
        int,
        typer.Argument(
            metavar="BATCH", min=0, help="The number of a committed batch of receive, as shown by `onlyonce batches`."
        ),
    ],
    output: Annotated[str | None, typer.Option(help="Only this output; by default all.")] = None,
    limit: Limit = 20,
    master: Master = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Run the functions over the rows of one committed batch and show what they give. Writes nothing."""
    known = declared(pipeline)
    there(settings.database_url)
    from onlyonce import replay as job  # imports Spark

    logs.configure(job="replay")
    with quiet("runs the functions over the batch"):
        report = job.replay(known, pipeline, batch, output, limit, master)
    give(report, as_json)


# The commands for a changed pipeline.


def add_change_commands(app: typer.Typer) -> None:
    """Register the commands `plan` and `reprocess`."""
    for command in (plan, reprocess):
        app.command(rich_help_panel=PANEL)(command)


@asking("plan")
def plan(given: Any, words: list[str], as_json: bool) -> None:
    """Compare what is declared with what has run: what each difference needs, before anything runs."""
    if given.pipeline:
        declared(given.pipeline)
    there(settings.database_url)
    from onlyonce.operate import plan as planner  # imports the declared functions, and Spark's modules

    if given.yes:  # the runs that it starts check themselves
        with watched(f"plan-{given.pipeline}"):
            report = planner.main(words)
    else:
        known = load.load()
        with progress("compares what is declared with what has run"):
            left = unchecked([load.one(given.pipeline)] if given.pipeline else list(known.values()))
        report = with_modules("plan", lambda: planner.main(words))
        report.warnings.extend(
            f"the functions of {one.name} are not checked yet: `onlyonce check {one.name}` starts Spark for it"
            for one in left
        )
    if not as_json:  # a script may ask for each table
        report = replace(report, tables={name: rows for name, rows in report.tables.items() if rows})
    give(report, as_json)


@asking("reprocess")
def reprocess(given: Any, words: list[str], as_json: bool) -> None:
    """Take invalid or expired rows in again after a correction, each set of rows once.

    An invalid row is read again from the line that `events` keeps, an expired row from its columns, and a file that
    could not be read from the inbox. They become a new file of JSON lines. Sources in other formats are refused.
    """
    if given.invalid == given.expired:
        raise Refused("which rows shall be reprocessed?", hint="say --invalid or --expired, one of the two")
    declared(given.pipeline)
    there(settings.database_url)

    from onlyonce.outputs import reprocess as reprocesser  # imports Spark

    with watched(f"reprocess-{given.pipeline}"):
        report = reprocesser.main(words)
    give(report, as_json)


# The commands that test a pipeline: `crashtest` kills its runs at every step, `conform` tests its source.


CRASH_PANEL = "Work"


def add_crash_commands(app: typer.Typer) -> None:
    """Register the commands `crashtest` and `conform`."""
    for command in (crashtest, conform):
        app.command(rich_help_panel=CRASH_PANEL)(command)


@asking("conform")
def conform(given: Any, words: list[str], as_json: bool) -> None:
    """Test a pipeline's source: read at once, in batches, and again, it must give the same records with the same ids.

    Exit code 0: it does.
    """
    declared(given.pipeline)

    from onlyonce.testing import conformance as job  # imports Spark

    with watched(f"conform-{given.pipeline}"):
        found = job.main(words)
    give(found, as_json)
    if found.warnings:
        raise typer.Exit(1)


def crashtest(
    pipeline: PipelineName,
    folder: Annotated[
        Path,
        typer.Option(
            "--input", metavar="DIR", exists=True, file_okay=False, help="Files as in the inbox; a copy is read."
        ),
    ],
    points: Annotated[
        list[str] | None,
        typer.Option(
            "--points",
            metavar="POINT[:NTH]",
            help="Kill here only, at its first or nth pass; may be repeated, or 'a,b'.",
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=1, help="Run only this number of the kills, chosen at random.")
    ] = None,
    seed: Annotated[
        int,
        typer.Option(metavar="NUMBER", help="Seed of the random choice: which pass of each point, and which sample."),
    ] = 1,
    chain: Annotated[
        int,
        typer.Option(
            metavar="NUMBER",
            min=1,
            help="How many kills one copy of the input goes through before the results are compared.",
        ),
    ] = 6,
    every: Annotated[bool, typer.Option("--all", help="Continue after the first difference.")] = False,
    max_files: Annotated[int | None, typer.Option(metavar="NUMBER", min=1, help="Most files in one batch.")] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(metavar="OUTPUT.COLUMN", help="Don't compare this column; may be repeated.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the scratch folder, so that you can look into it.")
    ] = False,
    master: Annotated[str, typer.Option(help="Spark's master: local[…] only.")] = "local[2]",
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Kill a pipeline at every step, over a copy of real input, and say whether its results stayed the same.

    Exit code 0: they did.
    """
    declared(pipeline)  # a wrong name is refused before anything starts

    from onlyonce.local.processes import sigterm_like_ctrl_c
    from onlyonce.testing import crash_results  # imports Delta and the database's driver
    from onlyonce.testing import crashtest as testing_crashtest

    named = [part for text in points or [] for part in comma_list(text)]
    asked = crash_results.Asked(
        pipeline, folder, [file.resolve() for file in pipelines or []], named, sample, seed, chain, every, max_files,
        leave_out or [], master, keep,
    )  # fmt: skip
    with sigterm_like_ctrl_c(), _shown() as tell:  # SIGTERM must end its server, too
        found = testing_crashtest.play(asked, tell)
    give(found, as_json)
    if not found.facts["all held"]:
        raise typer.Exit(1)


@contextmanager
def _shown() -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on a terminal; in a log one line for each step."""
    out = console.console(stderr=True)
    if not out.is_terminal:
        yield lambda done, of, text: note(f"{done} of {of}: {text}" if of else text)
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        BarColumn(20),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, transient=True) as progress:
        bar = progress.add_task("", total=None)

        def tell(done: int, of: int, text: str) -> None:
            # Steps other than kills have no count of their own: the bar stays as it is.
            if of:
                progress.update(bar, completed=done, total=of, description=text)
            else:
                progress.update(bar, description=text)

        yield tell
