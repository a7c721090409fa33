"""The commands that only read: sql, status, commits, batches, the rows of late, rejected, invalid and remnant records,
and one record's trace."""

from __future__ import annotations

from typing import Annotated

import typer

from onlyonce.cli.shell import (
    InstanceName,
    Json,
    Limit,
    PipelineFiles,
    declared,
    give,
    note,
    progress,
    read,
    rows_of,
    there,
)

PANEL = "Look"


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (status, lag, sql, commits, batches, files, trace, late, rejected, invalid, remnant):
        app.command(rich_help_panel=PANEL)(command)


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
    from onlyonce.model.errors import Refused

    if url == bool(statement):
        raise Refused("sql needs a statement or --url", hint='onlyonce sql "select * from onlyonce.batches"')
    if url:
        print(there(settings.reader_url).replace("+psycopg2", ""))
        return
    give(read(lambda views: views.free(statement)), as_json)


def status(as_json: Json = False) -> None:
    """One row for each pipeline and bounded run: last batch, max event time, conservation, epoch."""

    give(read(lambda views: views.rows("status")), as_json, empty="no pipeline has run yet")


def lag(as_json: Json = False) -> None:
    """How far each stage of each pipeline is behind: the age of its oldest waiting input, and of what it has
    committed."""

    give(read(lambda views: views.rows("lag")), as_json, empty="no pipeline has run yet")


def commits(pipeline: InstanceName, limit: Limit = 20, as_json: Json = False) -> None:
    """The last lines of the commit log, newest first: one for each unit."""
    give(rows_of(pipeline, "commits_of", n=limit), as_json, empty="nothing is committed yet")


def batches(pipeline: InstanceName, limit: Limit = 20, as_json: Json = False) -> None:
    """The last batches of each query, newest first, with what became of their records."""
    give(rows_of(pipeline, "batches_of", n=limit), as_json, empty="no batch has begun yet")


def files(pipeline: InstanceName, limit: Limit = 20, as_json: Json = False) -> None:
    """The last files of each sharded output, newest first: window, pane, shard, and whether it has its final name."""
    give(rows_of(pipeline, "files_of", n=limit), as_json, empty="no files are written yet")


def trace(
    pipeline: InstanceName,
    record: Annotated[
        list[str],
        typer.Argument(
            metavar="RECORD_ID...",
            help='The values of its id columns in order, or JSON, or 32 hexadecimal digits. "--" before a minus.',
        ),
    ],
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """What became of one record: its fate, its unit, its windows. Exit code 1 if it was never seen."""
    from onlyonce import settings
    from onlyonce.database.connect import Database
    from onlyonce.records import trace as tracing
    from onlyonce.sources.parse import record_id

    known = declared(pipeline, pipelines)
    asked = record_id.asked(known, record)
    with progress("looks through the log and `events`"):
        report, seen = tracing.trace(Database(there(settings.reader_url), "onlyonce-trace"), known, pipeline, asked)
    give(report, as_json)
    if not seen:
        raise typer.Exit(1)


def late(pipeline: InstanceName, limit: Limit = 20, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """The records that came after their window had closed, one row for each output and window."""
    from onlyonce.records import left_out

    _give_some(left_out.late(declared(pipeline, pipelines), pipeline, limit), limit, as_json)


def rejected(
    pipeline: InstanceName,
    output: Annotated[str | None, typer.Option(help="Of this output only.")] = None,
    limit: Limit = 20,
    pipelines: PipelineFiles = None,
    as_json: Json = False,
) -> None:
    """The records that the function of an output has rejected, with the reason, one row for each output and window."""
    from onlyonce import settings
    from onlyonce.database.connect import Database
    from onlyonce.records import rejected as found

    known = declared(pipeline, pipelines)
    if output is not None:
        known.output(output)
    database = Database(there(settings.reader_url), "onlyonce-rejected")
    _give_some(found.rows(database, known, pipeline, limit, output), limit, as_json)


def invalid(pipeline: InstanceName, limit: Limit = 20, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """The invalid records, with the reason, the place and the line as it came."""
    from onlyonce.records import left_out

    _give_some(left_out.invalid(declared(pipeline, pipelines), pipeline, limit), limit, as_json)


def remnant(pipeline: InstanceName, limit: Limit = 20, pipelines: PipelineFiles = None, as_json: Json = False) -> None:
    """The records from before the dedup horizon, for which nobody can tell whether they are duplicates."""
    from onlyonce.records import left_out

    _give_some(left_out.remnant(declared(pipeline, pipelines), pipeline, limit), limit, as_json)


def _give_some(found: tuple[int, list[dict[str, object]]], limit: int, as_json: bool) -> None:
    total, rows = found
    give(rows, as_json, empty="there are none")
    if total > limit:
        note(f"{limit:,} of {total:,}; --limit shows more")
