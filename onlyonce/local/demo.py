"""The demo: takes real data through the whole platform and shows each step. `make demo` and `onlyonce demo` run it.

    feed     two months of flights and three hours of user events, with re-deliveries, into the inboxes
    up       prerequisites, PostgreSQL, Airflow
    trigger  the DAG of each pipeline, through Airflow's API, with `close`: the last window must be there
    watch    what is committed, read from the log; the state of the task, asked of Airflow
    show     results, what became of every record, the commit log (`onlyonce.local.demo_results`)

It may be repeated: feeding the same data again writes nothing, and a run without new input commits nothing.
Errors: those of the platform; OnlyonceError if a run fails, after the last lines of its task's log.
Not promised: that only the demo's own runs are shown. Scheduled runs do the same work.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from onlyonce import environment, settings, tables
from onlyonce.commitlog.views import Views
from onlyonce.database.connect import Database
from onlyonce.declare import loading as declarations
from onlyonce.local import demo_results, platform, processes
from onlyonce.local.feed import deliver
from onlyonce.local.standalone.airflow_api import FINAL_STATES, AirflowApi
from onlyonce.model.errors import OnlyonceError, Retryable
from onlyonce.model.stored_names import stream_id

# Two months, so that all of it takes about two minutes on two cores. The number of files is not that of
# the whole year: its files have other names, so `onlyonce feed flights` can bring the rest later.
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
        """Its DAG."""
        return dag_of(self.pipeline)

    def said(self) -> str:
        """How far it is, in words."""
        return (
            f"{self.taken_in:,} of {self.lines:,} lines taken in; batches committed: {self.batches}; task {self.state}"
        )


def main(*, leave: bool) -> int:
    """Run the demo, and with `leave` stop the platform at its end; the exit code.

    Ctrl-C and SIGTERM stop the platform, also in the middle of a run.
    """
    out = tables.console()
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
    """The DAG that runs a pipeline."""
    return stream_id(pipeline)


def _show_all(out: Console) -> platform.Login:
    begun = time.monotonic()
    # A run of the schedule would go first and the demo's own would wait for it; `onlyonce up` has the schedule.
    environment.set_missing("ONLYONCE_SCHEDULE", "none")
    lines = _feed(out)
    login = platform.up(out)
    with AirflowApi() as api:
        watched = [_trigger(api, pipeline, count, out) for pipeline, count in lines.items()]
        _watch(api, watched, out)
        for one in watched:
            _check(api, one, out)
    database = Database(settings.reader_url(), "onlyonce-demo")
    demo_results.show(database, list(lines), out)
    out.print(f"\nThe demo took {time.monotonic() - begun:.0f} s.", style="dim")
    return login


def _feed(out: Console) -> dict[str, int]:
    """Put the data into the inboxes and tell how many lines lie there. Before the platform is up, so that
    no run of the schedule sees a part of it: what is late depends on how the files are cut into batches."""
    lines = {}
    for pipeline, options in FEEDS.items():
        declarations.one(pipeline)  # ONLYONCE_PIPELINES may name files without it: then say so before anything starts
        with out.status(f"{pipeline}: its data is put into the inbox") if out.is_terminal else contextlib.nullcontext():
            fed = deliver.feed(pipeline, settings.inbox(pipeline), **options)
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
    """Show how far the runs are until all have ended. Raises Retryable when that takes too long."""
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
                    f"The runs have not ended in {_PATIENCE_SECONDS / 60:.0f} minutes.",
                    data="they go on; what they have committed stays",
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
    """A bar for each run on a terminal; in a log one line whenever something has changed."""
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
            # The bar is full when the run has ended: the outputs come after the last line was taken in.
            total = max(one.lines, one.taken_in) + (0 if one.state in FINAL_STATES else one.lines // 4)
            progress.update(bars[one.pipeline], total=total, completed=one.taken_in, said=one.said())

        yield bar


def _check(api: AirflowApi, one: Watched, out: Console) -> None:
    """Raises OnlyonceError for a run that failed, after the end of its task's log."""
    if one.state != "failed":
        return
    failed = [task for task in api.tasks(one.dag_id, one.run_id) if task["state"] in ("failed", "upstream_failed")]
    for task in failed[:1]:
        text = api.task_log(one.dag_id, one.run_id, task["task_id"], max(task["try_number"], 1))
        out.print(f"[bold]The last lines of {one.dag_id}, task {task['task_id']}:[/bold]")
        out.print("\n".join(text.splitlines()[-_LOG_LINES:]), markup=False, soft_wrap=True)
    raise OnlyonceError(
        f"The run {one.run_id} of {one.dag_id} failed; the lines above say why.",
        data="what it committed stays; what it did not commit is not there at all",
        hint="mend what the lines name, then run the same command again",
    )


def _stay(login: platform.Login, out: Console) -> None:
    out.print(f"\n{login}", style="bold", markup=False, soft_wrap=True)
    out.print("Everything stays up until Ctrl-C.")
    threading.Event().wait()
