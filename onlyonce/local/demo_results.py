"""The last screen of the demo: results, what became of every record, the commit log, and where to look next.

Who calls it: `onlyonce.local.demo`. It reads the views and the outputs' tables, and changes nothing. Whole results are
read, since those of the demo are small.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from sqlalchemy import literal_column, select, table

from onlyonce import settings, tables
from onlyonce.commitlog.views import Views
from onlyonce.database.connect import Database, run
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import FileSink, Output, Pipeline, Postgres, target
from onlyonce.model.storage.location import Location, Url
from onlyonce.model.stored_names import WINDOW_DATE, WINDOW_START
from onlyonce.sinks.files.stores import folder_of

ROWS = 5

LOOK_FURTHER = (
    "status",
    "audit",
    "late flights",
    "files flights",
    'sql "select lineage, batch, records_in, kept, invalid, duplicate, in_time, late, conserved from '
    'onlyonce.conservation order by 1, 2"',
    'sql "select output, window_start, late from onlyonce.late order by late desc limit 10"',
    'sql "select * from results.flights_per_hour order by window_start limit 10"',
)


def show(database: Database, pipelines: list[str], out: Console) -> None:
    """Print all of it."""
    for name in pipelines:
        pipeline = declarations.one(name)
        for output in pipeline.outputs:
            _show_output(database, pipeline, output, out)
    fates = Views(database).rows("fates")
    out.print()
    tables.show_rows([row for row in fates if row["pipeline"] in pipelines], out, title="What became of every record")
    for name in pipelines:
        commits = Views(database).rows("commits_of", instance=name, n=ROWS)
        tables.show_rows(
            [_without(row, "batch_state", "run_id") for row in commits],
            out,
            title=f"The last lines of the commit log of {name}",
        )
    out.print("[bold]To look further[/bold]")
    for command in LOOK_FURTHER:
        out.print(f"  {_program()} {command}", markup=False, soft_wrap=True)


def largest(rows: list[tables.Row], count: int) -> tuple[str, list[tables.Row]]:
    """The first column of whole numbers, and the rows with the most of it; ties by the other columns. Pure."""
    first = rows[0]
    by = next((n for n, value in first.items() if isinstance(value, int) and not isinstance(value, bool)), "")
    if not by:
        return "", rows[:count]
    return by, sorted(rows, key=lambda row: (-row[by], *map(str, row.values())))[:count]


def _show_output(database: Database, pipeline: Pipeline, output: Output, out: Console) -> None:
    if isinstance(output.sink, FileSink):
        _show_files(database, pipeline, output, out)
        return
    if isinstance(output.sink, Postgres):
        where, rows = output.sink.table, _postgres_rows(database, output.sink.table)
    else:
        path = settings.table_location(target(pipeline, output).removeprefix("delta:"))
        where, rows = _shown_path(path), _delta_rows(path)
    if not rows:
        out.print(f"[bold]{pipeline.name}.{output.name}[/bold] has no rows yet")
        return
    by, top = largest(rows, ROWS)
    windows = sorted(row[WINDOW_START] for row in rows if row.get(WINDOW_START))
    span = f", windows from {tables.plain(windows[0])} to {tables.plain(windows[-1])}" if windows else ""
    out.print(
        f"\n[bold]{pipeline.name}.{output.name}[/bold] in {where}: {len(rows):,} rows{span}. Those with the most {by}:"
    )
    tables.show_rows([_without(row, WINDOW_DATE) for row in top], out)


def _show_files(database: Database, pipeline: Pipeline, output: Output, out: Console) -> None:
    mine = {"instance": pipeline.name, "output": output.name, "n": ROWS}
    total = Views(database).rows("files_by_state", **mine)
    if not total:
        out.print(f"[bold]{pipeline.name}.{output.name}[/bold] has no files yet")
        return
    place = _shown_path(folder_of(target(pipeline, output).removeprefix("files:")))
    counts = ", ".join(f"{row['files']:,} {row['state']}" for row in total)
    out.print(f"\n[bold]{pipeline.name}.{output.name}[/bold] in {place}: files {counts}. Those with the most rows:")
    tables.show_rows(Views(database).rows("largest_files", **mine), out)


def _delta_rows(path: Location) -> list[tables.Row]:
    from onlyonce.storage import log_entries, opening

    if not log_entries.any_in(path):
        return []
    rows: list[dict[str, Any]] = opening.table(path).to_pyarrow_table().to_pylist()
    return [{name: _in_utc(value) for name, value in row.items()} for row in rows]


def _postgres_rows(database: Database, name: str) -> list[tables.Row]:
    schema, _, plain_name = name.partition(".")
    query: Any = select(literal_column("*")).select_from(table(plain_name, schema=schema))
    return run(database, lambda conn: [dict(row._mapping) for row in conn.execute(query)])


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def _without(row: tables.Row, *names: str) -> tables.Row:
    return {name: value for name, value in row.items() if name not in names}


def _program() -> str:
    """The command as it can be typed here; the environment is rarely on the PATH."""
    return _shown_path(Path(sys.executable).parent / "onlyonce")


def _shown_path(path: Location) -> str:
    if isinstance(path, Url):
        return str(path)
    here = os.path.relpath(path)
    return str(path) if here.startswith("..") else here
