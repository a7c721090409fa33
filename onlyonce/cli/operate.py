"""The commands for a person on call, and the commands that only read.

The first are doctor, pause, resume, stop, inbox, drop, forget, alerts and metrics. The others are sql, status, lag,
commits, batches, files, trace, late, rejected, invalid and expired.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from contextlib import suppress
from typing import Annotated, Any, Literal

import typer

from onlyonce import console, failed_runs, settings
from onlyonce.cli.checking import log_if_there
from onlyonce.cli.shell import (
    InstanceName,
    Json,
    Limit,
    OnlyOfFiles,
    OnlyPipeline,
    PipelineFiles,
    PipelineName,
    asking,
    declared,
    give,
    note,
    only_declared,
    progress,
    read,
    refuse_unknown_run,
    rows_of,
    there,
)
from onlyonce.cli.work import watched
from onlyonce.console import Row
from onlyonce.core.errors import InvariantBroken, OnlyonceError, Refused
from onlyonce.core.near_names import choose
from onlyonce.core.runs import Report

PANEL = "When something is stuck"


def add_operate_commands(app: typer.Typer) -> None:
    """Register the commands for a person on call."""
    for command in (doctor, pause, resume, stop, inbox, drop, forget, alerts, metrics):
        app.command(rich_help_panel=PANEL)(command)


@asking("doctor")
def doctor(given: Any, words: list[str], as_json: bool) -> None:
    """Find what is stuck, say what it means for the data and how it is repaired. Exit code 1 if something was found.

    A last run that failed is named, with exit code 1. With PIPELINE: of this pipeline, and of what belongs to no
    pipeline, such as the database.
    """
    there(settings.database_url)
    refuse_unknown_run(given.pipeline or "")

    from onlyonce.operate import doctor as doctoring  # imports Delta and the database's driver

    with watched("doctor") if given.fix else progress("looks at the log, the checkpoints and the tables, twice"):
        report = doctoring.main(words)
    if as_json:
        give(report, as_json)
    else:
        _tell(report)
    if report.tables["findings"] or report.tables.get(failed_runs.TABLE):
        raise typer.Exit(1)


def pause(pipeline: PipelineName, pipelines: PipelineFiles = None) -> None:
    """Hold the schedules of a pipeline in Airflow: its stream and what is queued.

    A run in progress continues to its end.
    """
    _hold(pipeline, held=True)


def resume(pipeline: PipelineName, pipelines: PipelineFiles = None) -> None:
    """Resume the schedules of a pipeline. The next run reads the input that has arrived meanwhile."""
    _hold(pipeline, held=False)


def stop(
    pipeline: PipelineName,
    patience: Annotated[
        float, typer.Option(metavar="MINUTES", min=0, help="Minutes to wait until the current run ends.")
    ] = 60.0,
    shell: Annotated[
        bool, typer.Option("--shell", help="Don't use Airflow: wait only for runs that were started at a shell.")
    ] = False,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Hold the schedules of a pipeline, ask its continuous run to stop, and wait until the current run has ended.

    Kills nothing; `resume` lets the schedules run again.
    """
    declared(pipeline)
    there(settings.database_url)

    from onlyonce.local import airflow_api
    from onlyonce.local.airflow_api import AirflowApi

    with progress("waits for nothing") as show:
        report = airflow_api.stop_runs(
            pipeline,
            patience_seconds=patience * 60,
            airflow=None if shell else AirflowApi,
            watch=lambda working: show("waits for: " + "; ".join(working)),
        )
    give(report, as_json)


def inbox(
    pipeline: PipelineName,
    moved: Annotated[
        bool, typer.Option("--moved", help="The files that were already read are now in this folder.")
    ] = False,
    another: Annotated[
        bool, typer.Option("--another", help="This is another folder, and each file in it is new input.")
    ] = False,
    source: Annotated[
        str | None, typer.Option("--source", help="The source whose inbox this is, if the pipeline has several.")
    ] = None,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Show where the inbox of a pipeline was and where it is now.

    If a run found it at another place: say whether its files were moved there, or are new.
    """
    if moved and another:
        raise Refused("--moved and --another exclude each other", hint="say one of them")

    from onlyonce.sources import discovery as inboxes

    known = declared(pipeline)
    if source is not None and source not in known.sources:
        raise Refused(
            f"{pipeline} has no source {source!r}",
            hint=choose(source, list(known.sources)) if known.sources else "it has one source: leave out --source",
        )
    said: Literal["moved", "another"] | None = "moved" if moved else "another" if another else None
    give(inboxes.look_at_inbox(known.of_source(source), said), as_json)


@asking("drop")
def drop(given: Any, words: list[str], as_json: bool) -> None:
    """Remove a pipeline (a bounded run, an output) that is no longer declared, or a pipeline that has kept no record:
    its rows in the log and its own folder."""
    there(settings.database_url)

    from onlyonce.operate import drop as dropper

    give(dropper.main(words), as_json)


@asking("forget")
def forget(given: Any, words: list[str], as_json: bool) -> None:
    """Erase a person's records for good: from events, input files and results.

    Says what it can't reach, and leaves a receipt without the values. Exit code 1 if a line was not found or an output
    could not be computed again.
    """
    declared(given.pipeline)
    there(settings.database_url)

    from onlyonce.operate import forget as forgetting

    with watched(f"forget-{given.pipeline}"):
        report = forgetting.main(words)
    give(report, as_json)
    if not forgetting.complete(report):
        raise typer.Exit(1)


@asking("alerts")
def alerts(given: Any, words: list[str], as_json: bool) -> None:
    """Raise alerts and call ONLYONCE_ALERT_HOOK, each cause once until it clears. Exit code 1 if any is raised.

    Each source is asked what no run has read yet, and its answer is stored. It has two seconds to answer.
    """
    there(settings.database_url)

    from onlyonce.operate import alerts as telling

    report = telling.ask_first(words)
    give(report, as_json)
    if report.tables["alerts"]:
        raise typer.Exit(1)


def metrics(
    serve: Annotated[
        int | None, typer.Option(metavar="PORT", min=0, help="Serve the metrics to Prometheus at /metrics.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. There is no login, so open it only to your own network.")
    ] = "127.0.0.1",
    push: Annotated[
        bool, typer.Option("--push", help="Send the metrics by OTLP to OTEL_EXPORTER_OTLP_ENDPOINT.")
    ] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="With --push: seconds between two transmissions.")
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Show the figures of the views as metrics once, or serve or send them by OpenTelemetry until Ctrl-C."""
    if serve is not None and push:
        raise Refused("--serve and --push at once", hint="start one command for each")
    url = there(settings.reading_url)

    from onlyonce.database.connect import Database
    from onlyonce.operate import metrics as figures

    known = figures.Figures(Database(url, "onlyonce-metrics"))
    if serve is None and not push:
        give(figures.table(known), as_json)
        return
    end = figures.push(known, every).shutdown if push else figures.serve(known, host, serve or 0)
    note(
        "sends metrics; Ctrl-C ends it" if push else f"serves metrics at http://{host}:{serve}/metrics; Ctrl-C ends it"
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        end()


def _hold(pipeline: str, *, held: bool) -> None:
    declared(pipeline)
    there(settings.reading_url)

    from onlyonce.local import airflow_api

    give(airflow_api.hold_schedules(pipeline, held=held), as_json=False)


def _tell(report: Report) -> None:
    out = console.console()
    out.print(report.title, style="bold", markup=False)
    for repair in report.tables["repairs"]:
        out.print(
            f"repair of {repair['finding']} at {repair['where']}: {repair['outcome']}", markup=False, soft_wrap=True
        )
    for found in report.tables["findings"]:
        by_fix = {"yes": "  (--fix does it)", "with --yes": "  (--fix --yes does it)", "no": ""}[found["fix"]]
        where = "" if found["where"] in found["what"] else f" at {found['where']}"
        what = InvariantBroken(
            f"{found['finding']}{where}: {found['what']}", data=found["data"], hint=f"{found['repair']}{by_fix}"
        )
        console.show_error(what, out)
    _tell_failed(report.tables.get(failed_runs.TABLE, []))
    for warning in report.warnings:
        out.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)


def _tell_failed(rows: list[console.Row]) -> None:
    """Print the last runs that failed, from rows with the fields of `RunEnd`."""
    out = console.console()
    for end in (failed_runs.RunEnd(**row) for row in rows):
        out.print(end.said, style="yellow", markup=False, soft_wrap=True)
        out.print(f"  the whole error: {end.whole}", markup=False, soft_wrap=True)
        out.print("  next: correct its cause; the next run that ends well removes this message", soft_wrap=True)


LOOK_PANEL = "Look"


def add_look_commands(app: typer.Typer) -> None:
    """Register the commands that only read."""
    for command in (status, lag, sql, commits, batches, files, trace, late, rejected, invalid, expired):
        app.command(rich_help_panel=LOOK_PANEL)(command)


def sql(
    statement: Annotated[str, typer.Argument(help='Like "select * from onlyonce.batches".')] = "",
    url: Annotated[
        bool,
        typer.Option(
            "--url",
            help='Print the reader\'s address with its password, for other tools: psql "$(onlyonce sql --url)".',
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask the views. The role sees the views and the results, and can change nothing."""
    from onlyonce import settings
    from onlyonce.core.errors import Refused

    if url and statement:
        raise Refused(
            "sql takes a statement or --url, not both",
            hint="leave out --url to run the statement; leave out the statement to print the reader's address",
        )
    if not url and not statement.strip():
        raise Refused("sql needs a statement or --url", hint='onlyonce sql "select * from onlyonce.batches"')
    if url:
        address = there(settings.reader_url).replace("+psycopg2", "")
        print(address)
        if "require_auth=" in address and (old := _old_psql()):
            note(
                f"psql {old} of this machine does not know require_auth, by which it gives no password to another "
                'server: take psql 16 or newer, or ask by onlyonce sql "select …"'
            )
        return
    # A statement may end its read-only transaction, so it never runs as the writer.
    give(read(lambda views: views.free(statement), settings.reader_url), as_json, whole=True)
    if (number := statements_in(statement)) > 1:
        note(f"{number} statements were run, and only the rows of the last one are shown")


NO_END = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)"""
    r"""|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$""",
    re.DOTALL,
)
"""Comments and quoted strings of PostgreSQL, in which a semicolon ends no statement."""


def statements_in(text: str) -> int:
    """Return how many statements a string of SQL has. Pure."""
    bare = NO_END.sub(lambda found: " " if found["comment"] else "x", text)
    return sum(bool(part.strip()) for part in bare.split(";"))


def _old_psql() -> str | None:
    """Return the version of psql if it is older than 16; None if it is newer, or is not found."""
    if (psql := shutil.which("psql")) is None:
        return None
    told = subprocess.run([psql, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)[.\w]*", told)
    return found[0] if found and int(found[1]) < 16 else None


def status(pipeline: OnlyPipeline = None, pipelines: OnlyOfFiles = None, as_json: Json = False) -> None:
    """Show one row for each pipeline and bounded run: last batch, max event time, conservation, epoch, unread input.

    Each source is asked what no run has read yet. It has two seconds to answer. A last run that failed is named below.
    """
    runs, taken_in = read(lambda views: views.rows("status")), read(lambda views: views.rows("taken_in"))
    rows = only_declared(_unread().of_pipelines(runs, taken_in, *_asked(pipeline, "status")), pipelines)
    rows = _only(rows, pipeline)
    if not as_json:
        rows, unknown = _unread().status_for_people(rows)
        for line in unknown:
            note(line)
    give(rows, as_json, empty="no pipeline has run yet")
    if not as_json:
        only = pipeline.partition("@")[0] if pipeline else None
        failed = failed_runs.found(read(lambda views: views.rows("last_ends")), runs, only)
        _tell_failed(only_declared([vars(end) for end in failed], pipelines))


def lag(pipeline: OnlyPipeline = None, pipelines: OnlyOfFiles = None, as_json: Json = False) -> None:
    """Show how far each stage of each pipeline is behind, and ask each source what no run has read yet.

    Unread input comes first. The rows have the age of its oldest waiting input, and of what it has committed. A source
    has two seconds to answer.
    """
    stages, taken_in = read(lambda views: views.rows("lag")), read(lambda views: views.rows("taken_in"))
    rows = only_declared(_unread().with_backlog(stages, taken_in, *_asked(pipeline, "lag")), pipelines)
    rows = _only(rows, pipeline)
    if not as_json:
        at_work = {row["instance"] for row in read(lambda views: views.rows("at_work"))}
        for line in _unread().in_words(rows, at_work):
            console.console().print(line, markup=False, soft_wrap=True)
        for line in _unread().unknown_in_words(row for row in rows if not row["asked_at"]):
            note(line)
        rows = _unread().for_people(rows)
    give(rows, as_json, empty="no pipeline has run yet, and none is declared")
    if not as_json and len({row["pipeline"] for row in rows}) > 1:
        note("all columns of one pipeline: onlyonce lag PIPELINE; of all: --json")


def _unread() -> Any:
    from onlyonce.operate import unread  # imports Delta and Spark's modules

    return unread


def _asked(pipeline: str | None, command: str) -> tuple[dict[str, Any], str]:
    """Return the declarations whose sources to ask, of one pipeline or of all, and why another is not loaded.

    Return no declaration if a file can't be loaded, and say why.
    """
    from onlyonce.api import load as declarations

    try:
        known = declarations.load()
    except OnlyonceError as error:
        note(f"no source is asked: {error.what}")
        return {}, f"not loaded: {error.what}; {error.hint or 'correct the file'}, then: onlyonce {command}"
    asked = known if pipeline is None else {name: one for name, one in known.items() if name == pipeline}
    return asked, f"not loaded: no file that was read declares it; name its file: onlyonce {command} --pipelines FILE"


def _only(rows: list[Row], pipeline: str | None) -> list[Row]:
    """Return the rows of one pipeline and its bounded runs, or of one of these; all rows if None is given.

    Raise Refused for a name that neither the log nor a declaration has.
    """
    if pipeline is None:
        return rows
    found = [row for row in rows if pipeline in (row["pipeline"], str(row["pipeline"]).partition("@")[0])]
    if not found:
        declared(pipeline)
    return found


def commits(pipeline: InstanceName, limit: Limit = 20, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """Show the last lines of the commit log, newest first: one for each unit."""
    give(rows_of(pipeline, "commits_of", n=limit), as_json, empty="nothing is committed yet")


def batches(pipeline: InstanceName, limit: Limit = 20, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """Show the last batches of each query, newest first, with what became of their records."""
    give(rows_of(pipeline, "batches_of", n=limit), as_json, empty="no batch has begun yet")


def files(pipeline: InstanceName, limit: Limit = 20, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """Show the last files of each sharded output: window, pane, shard, and whether it has its final name."""
    give(rows_of(pipeline, "files_of", n=limit), as_json, empty="no files are written yet")


def trace(
    pipeline: InstanceName,
    record: Annotated[
        list[str],
        typer.Argument(
            metavar="RECORD_ID",
            help='The values of its id columns in order, or JSON, or 32 hexadecimal digits. "--" before a minus.',
        ),
    ],
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Show what became of one record: its fate, its unit, its windows. Exit code 1 if it was never seen."""
    from onlyonce import settings
    from onlyonce.database.connect import Database
    from onlyonce.records import trace as tracing
    from onlyonce.sources import record_id

    known = declared(pipeline)
    asked = record_id.asked(known, record)
    with progress("looks through the log and `events`"):
        report, seen = tracing.trace(Database(there(settings.reading_url), "onlyonce-trace"), known, pipeline, asked)
    give(report, as_json)
    if not seen:
        raise typer.Exit(1)


def late(pipeline: InstanceName, limit: Limit = 20, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """Show the records that came after their window had closed, one row for each output and window.

    `included` says whether a backfill has included the record; nothing if the log does not have its batch any more.
    """
    from onlyonce.commitlog.ids import Traces
    from onlyonce.database.connect import Database
    from onlyonce.records import left_out

    total, rows = left_out.late(declared(pipeline), pipeline, limit)
    if rows:
        log = Traces(Database(there(settings.reading_url), "onlyonce-late"))
        rows = [row | {"included": one} for row, one in zip(rows, log.included(pipeline, rows), strict=True)]
    _give_some("late", pipeline, (total, rows), limit, as_json)


def rejected(
    pipeline: InstanceName,
    output: Annotated[str | None, typer.Option(help="Of this output only.")] = None,
    limit: Limit = 20,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """Show the records that the function of an output has rejected, with the reason, a row for each window."""
    from onlyonce import settings
    from onlyonce.database.connect import Database
    from onlyonce.records import left_out as found

    known = declared(pipeline)
    if output is not None:
        known.output(output)
    database = Database(there(settings.reading_url), "onlyonce-rejected")
    rows = found.rejected_rows(database, known, pipeline, limit, output)
    _give_some("rejected", pipeline, rows, limit, as_json)


def invalid(pipeline: InstanceName, limit: Limit = 20, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """Show the invalid records, with the reason, the place and the line as it came, and what to do next."""
    from onlyonce.records import left_out

    known = declared(pipeline)
    total, rows = left_out.invalid(known, pipeline, limit)
    _give_some("invalid", pipeline, (total, left_out.with_lines(rows)), limit, as_json, blocks=True)
    if total and not as_json:
        lines = [row["raw"] for row in rows]
        if look := (
            left_out.of_other_format(known, rows)
            or left_out.of_lines(known, lines)
            or left_out.other_encoding(known, (row["reason"] for row in rows))
            or left_out.other_header(known, (row["reason"] for row in rows))
        ):
            note(look)
        note(left_out.after_invalid(known, pipeline, invalid_lost=_invalid_lost(pipeline)))


def _invalid_lost(pipeline: str) -> int | None:
    """Return how many invalid records are removed if a pipeline starts over.

    Return None if it has kept something, for a bounded run, or if the log can't be asked.
    """
    from sqlalchemy.exc import DBAPIError

    from onlyonce.commitlog.incarnations import Declarations

    try:
        with log_if_there() as log:
            is_bounded, database = "@" in pipeline, log.database
            return None if is_bounded or database is None else Declarations(database).invalid_lost(pipeline)
    except (OnlyonceError, DBAPIError):
        return None


def expired(pipeline: InstanceName, limit: Limit = 20, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """Show the records from before the dedup horizon, which can't be checked for duplicates any more."""
    from onlyonce.records import left_out

    _give_some("expired", pipeline, left_out.expired(declared(pipeline), pipeline, limit), limit, as_json)


def _give_some(
    fate: str, pipeline: str, found: tuple[int, list[dict[str, object]]], limit: int, as_json: bool, *,
    blocks: bool = False,
) -> None:  # fmt: skip
    total, rows = found
    give(rows, as_json, empty="" if rows or as_json else _none_of(fate, pipeline), blocks=blocks)
    if total > limit:
        note(f"{limit:,} of {total:,}; --limit shows more")


def _none_of(fate: str, pipeline: str) -> str:
    """Return that a pipeline has no records of a fate, and of how many that was found out, if the log can be asked."""
    from onlyonce.records import left_out

    none = f"{pipeline} has no {fate} records"
    with suppress(OnlyonceError):
        # Rejected records are in the log.
        if fate != "rejected" and (lost := read(lambda views: left_out.lost_events(views.scope, pipeline))):
            return f"no {fate} record can be read: {lost}. onlyonce doctor says what to do"
        stages = read(lambda views: views.rows("progress", instances=[pipeline]))
        received = sum(row["in"] for row in stages if row["query"] == "receive")
        return f"{none}, of {received:,} received" if received else f"{none}: it has not received any record yet"
    return none
