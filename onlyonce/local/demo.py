"""Take real data through the whole platform and show each step: `make demo` and `onlyonce demo`.

    feed     two months of flights and three hours of user events, with re-deliveries, into the inboxes
    up       prerequisites, PostgreSQL, Airflow
    trigger  the DAG of each pipeline, through Airflow's API, with `close`: the last window must be there
    watch    what is committed, read from the log; the state of the task, asked of Airflow
    show     results, what became of every record, the commit log

It may be repeated: feeding the same data again writes nothing, and a run without new input commits nothing.

The first part of the module has the step *show*. The second part (`main`) runs all steps.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from sqlalchemy import literal_column, select, table
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from onlyonce import console, environment, settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.commitlog.health import Views
from onlyonce.core.errors import OnlyonceError, Retryable
from onlyonce.core.locations import Location, Url
from onlyonce.core.ownership import Place, in_database
from onlyonce.core.stored_names import WINDOW_DATE, WINDOW_START, stream_id
from onlyonce.database.connect import Database, run
from onlyonce.local import feed, platform, processes
from onlyonce.local.airflow_api import FINAL_STATES, AirflowApi
from onlyonce.sinks.files.file_stores import folder_of

ROWS = 5

LOOK_FURTHER = (
    "status",
    "audit",
    "late flights",
    "files flights",
    'sql "select incarnation, batch, records_in, kept, invalid, duplicate, in_time, late, conserved from '
    'onlyonce.conservation order by 1, 2"',
    'sql "select output, window_start, late from onlyonce.late order by late desc limit 10"',
    'sql "select * from results.flights_per_hour order by window_start limit 10"',
)


def show_results(database: Database, pipelines: list[str], out: Console) -> None:
    """Print the results, what became of every record, the commit log, and where to look next.

    Whole results are read, since the demo's are small.
    """
    for name in pipelines:
        pipeline = declarations.one(name)
        for output in pipeline.outputs:
            _show_output(database, pipeline, output, out)
    fates = Views(database).rows("fates")
    out.print()
    console.show_rows([row for row in fates if row["pipeline"] in pipelines], out, title="What became of every record")
    for name in pipelines:
        commits = Views(database).rows("commits_of", instance=name, n=ROWS)
        console.show_rows(
            [_without(row, "batch_state", "run_id") for row in commits],
            out,
            title=f"The last lines of the commit log of {name}",
        )
    out.print("[bold]To look further[/bold]")
    for command in LOOK_FURTHER:
        out.print(f"  {_program()} {command}", markup=False, soft_wrap=True)


def largest(rows: list[console.Row], count: int) -> tuple[str, list[console.Row]]:
    """Return the first column of whole numbers, and the rows with the largest values; ties by the other columns.

    Pure.
    """
    first = rows[0]
    by = next((n for n, value in first.items() if isinstance(value, int) and not isinstance(value, bool)), "")
    if not by:
        return "", rows[:count]
    return by, sorted(rows, key=lambda row: (-row[by], *map(str, row.values())))[:count]


def _show_output(database: Database, pipeline: Pipeline, output: Output, out: Console) -> None:
    place = Place(target(pipeline, output))
    if output.sink.writes_files:
        _show_files(database, pipeline, output, out)
        return
    if in_database(place):
        where, rows = place.where, _postgres_rows(database, place.where)
    else:
        path = settings.table_location(place.where)
        where, rows = _shown_path(path), _delta_rows(path)
    if not rows:
        out.print(f"[bold]{pipeline.name}.{output.name}[/bold] has no rows yet")
        return
    by, top = largest(rows, ROWS)
    windows = sorted(row[WINDOW_START] for row in rows if row.get(WINDOW_START))
    span = f", windows from {console.plain(windows[0])} to {console.plain(windows[-1])}" if windows else ""
    out.print(
        f"\n[bold]{pipeline.name}.{output.name}[/bold] in {where}: {len(rows):,} rows{span}. Those with the most {by}:"
    )
    console.show_rows([_without(row, WINDOW_DATE) for row in top], out)


def _show_files(database: Database, pipeline: Pipeline, output: Output, out: Console) -> None:
    mine = {"instance": pipeline.name, "output": output.name, "n": ROWS}
    total = Views(database).rows("files_by_state", **mine)
    if not total:
        out.print(f"[bold]{pipeline.name}.{output.name}[/bold] has no files yet")
        return
    place = _shown_path(folder_of(Place(target(pipeline, output)).where))
    counts = ", ".join(f"{row['files']:,} {row['state']}" for row in total)
    out.print(f"\n[bold]{pipeline.name}.{output.name}[/bold] in {place}: files {counts}. Those with the most rows:")
    console.show_rows(Views(database).rows("largest_files", **mine), out)


def _delta_rows(path: Location) -> list[console.Row]:
    from onlyonce.tables import opening

    if not opening.any_in(path):
        return []
    rows: list[dict[str, Any]] = opening.table(path).to_pyarrow_table().to_pylist()
    return [{name: _in_utc(value) for name, value in row.items()} for row in rows]


def _postgres_rows(database: Database, name: str) -> list[console.Row]:
    schema, _, plain_name = name.partition(".")
    query: Any = select(literal_column("*")).select_from(table(plain_name, schema=schema))
    return run(database, lambda conn: [dict(row._mapping) for row in conn.execute(query)])


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value


def _without(row: console.Row, *names: str) -> console.Row:
    return {name: value for name, value in row.items() if name not in names}


def _program() -> str:
    """Return the command as it can be typed here; the environment is rarely on the PATH."""
    return _shown_path(Path(sys.executable).parent / "onlyonce")


def _shown_path(path: Location) -> str:
    if isinstance(path, Url):
        return str(path)
    here = os.path.relpath(path)
    return str(path) if here.startswith("..") else here


# All steps of the demo in their order: `main` and `_show_all`.


# Two months, so that the demo takes about two minutes on two cores. The number of files differs from the whole year's:
# the files have other names, so `onlyonce feed flights` can bring the rest later.
FEEDS: dict[str, dict[str, int]] = {"flights": {"records": 60_000, "files": 24}, "user_counts": {}}

_PATIENCE_SECONDS = 1800
_LOG_LINES = 25


@dataclass
class Watched:
    """One run that was triggered, and how far its pipeline is by the log."""

    pipeline: str
    run_id: str
    lines: int
    state: str = "queued"
    batches: str = "no batch yet"
    taken_in: int = 0

    @property
    def dag_id(self) -> str:
        """Return the DAG of the pipeline."""
        return dag_of(self.pipeline)

    def said(self) -> str:
        """Return in words how far the run is."""
        return (
            f"{self.taken_in:,} of {self.lines:,} lines taken in; batches committed: {self.batches}; task {self.state}"
        )


def main(*, leave: bool) -> int:
    """Run the demo, and with `leave` stop the platform at its end; return the exit code.

    Ctrl-C and SIGTERM stop the platform, even in the middle of a run. Raise OnlyonceError if a run fails, after the
    last lines of its task's log.
    """
    out = console.console()
    done = False
    with processes.sigterm_like_ctrl_c():
        try:
            login = _show_all(out)
            done = True
            if not leave:
                _stay(login, out)
        except KeyboardInterrupt:
            leave = True
        finally:
            if leave or done:
                platform.down(out)
            elif platform.is_up():
                out.print(f"The platform is still up: {platform.login().url}. `onlyonce down` stops it.", style="dim")
    return 0 if done else 130


def dag_of(pipeline: str) -> str:
    """Return the DAG that runs a pipeline."""
    return stream_id(pipeline)


def _show_all(out: Console) -> platform.Login:
    begun = time.monotonic()
    # A scheduled run would come first and the demo's own would wait for it; `onlyonce up` has the schedule.
    environment.set_missing("ONLYONCE_SCHEDULE", "none")
    lines = _feed(out)
    login = platform.up(out)
    with AirflowApi() as api:
        watched = [_trigger(api, pipeline, count, out) for pipeline, count in lines.items()]
        _watch(api, watched, out)
        for one in watched:
            _check(api, one, out)
    database = Database(settings.reader_url(), "onlyonce-demo")
    show_results(database, list(lines), out)
    out.print(f"\nThe demo took {time.monotonic() - begun:.0f} s.", style="dim")
    return login


def _feed(out: Console) -> dict[str, int]:
    """Put the data into the inboxes and return how many lines each inbox has.

    Call it before the platform is up, so that no scheduled run reads a part: how many are late depends on how the files
    are cut into batches.
    """
    lines = {}
    for pipeline, options in FEEDS.items():
        declarations.one(pipeline)  # ONLYONCE_PIPELINES may name files without it: then fail before anything starts
        with out.status(f"{pipeline}: its data is put into the inbox") if out.is_terminal else contextlib.nullcontext():
            fed = feed.feed_files(pipeline, settings.inbox(pipeline), **options)
        news = f"{fed.written} new files" if fed.written else "all there already"
        out.print(
            f"[bold]{pipeline}[/bold]: {fed.distinct:,} records and {fed.duplicates:,} re-deliveries in {fed.files} "
            f"files ({news})"
        )
        lines[pipeline] = fed.lines
    return lines


def _trigger(api: AirflowApi, pipeline: str, lines: int, out: Console) -> Watched:
    dag_id = dag_of(pipeline)
    api.wait_for_dag(dag_id)
    api.unpause(dag_id)
    run_id = api.trigger(dag_id, {"close": True})
    out.print(f"[bold]{pipeline}[/bold]: triggered the DAG {dag_id} through Airflow's API, run {run_id}")
    return Watched(pipeline, run_id, lines)


def _watch(api: AirflowApi, watched: list[Watched], out: Console) -> None:
    """Show how far the runs are until all have ended. Raise Retryable if that takes too long."""
    database = Database(settings.reader_url(), "onlyonce-demo")
    end = time.monotonic() + _PATIENCE_SECONDS
    with _shown(out) as show:
        while True:
            _ask(api, database, watched)
            for one in watched:
                show(one)
            if all(one.state in FINAL_STATES for one in watched):
                return
            if time.monotonic() > end:
                raise Retryable(
                    f"the runs have not ended in {_PATIENCE_SECONDS / 60:.0f} minutes",
                    data="they continue; what they have committed stays",
                    hint=f"look at {api.base_url}, or run the same command again",
                )
            time.sleep(1)


# A busy machine may leave one question unanswered; asking again changes nothing.
@retry(retry=retry_if_exception_type(Retryable), stop=stop_after_attempt(5), wait=wait_fixed(3), reraise=True)
def _ask(api: AirflowApi, database: Database, watched: list[Watched]) -> None:
    names = [one.pipeline for one in watched]
    rows = Views(database).rows("progress", instances=names)
    for one in watched:
        state = api.run_state(one.dag_id, one.run_id)
        tasks = api.task_states(one.dag_id, one.run_id)
        working = [task for task in tasks.values() if task != "none"]
        one.state = state if state in FINAL_STATES or not working else working[0]
        own = [row for row in rows if row["instance"] == one.pipeline]
        one.batches = ", ".join(f"{row['query']} {row['batches']}" for row in own) or "none"
        one.taken_in = sum(row["in"] for row in own)


@contextlib.contextmanager
def _shown(out: Console) -> Iterator[Any]:
    """Show a bar for each run on a terminal; in a log one line whenever something has changed."""
    if not out.is_terminal:
        last: dict[str, str] = {}

        def line(one: Watched) -> None:
            if last.get(one.pipeline) != one.said():
                out.print(f"{one.pipeline}: {one.said()}")
            last[one.pipeline] = one.said()

        yield line
        return
    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[said]}")]
    with Progress(*columns, TimeElapsedColumn(), console=out) as progress:
        bars: dict[str, Any] = {}

        def bar(one: Watched) -> None:
            if one.pipeline not in bars:
                bars[one.pipeline] = progress.add_task(one.pipeline, said="")
            # The bar is full when the run has ended: the outputs come after the last line was read.
            total = max(one.lines, one.taken_in) + (0 if one.state in FINAL_STATES else one.lines // 4)
            progress.update(bars[one.pipeline], total=total, completed=one.taken_in, said=one.said())

        yield bar


def _check(api: AirflowApi, one: Watched, out: Console) -> None:
    """Raise OnlyonceError if a run failed, after the end of its task's log."""
    if one.state != "failed":
        return
    failed = [task for task in api.tasks(one.dag_id, one.run_id) if task["state"] in ("failed", "upstream_failed")]
    for task in failed[:1]:
        text = api.task_log(one.dag_id, one.run_id, task["task_id"], max(task["try_number"], 1))
        out.print(f"[bold]The last lines of {one.dag_id}, task {task['task_id']}:[/bold]")
        out.print("\n".join(text.splitlines()[-_LOG_LINES:]), markup=False, soft_wrap=True)
    raise OnlyonceError(
        f"The run {one.run_id} of {one.dag_id} failed; the lines above say why",
        data="what it committed stays; what it did not commit left nothing behind",
        hint="fix what the lines name, then run the same command again",
    )


def _stay(login: platform.Login, out: Console) -> None:
    out.print(f"\n{login}", style="bold", markup=False, soft_wrap=True)
    out.print("Everything stays up until Ctrl-C.")
    threading.Event().wait()
