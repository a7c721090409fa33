"""Backfills on a real Airflow, beside a stream that goes on: what a person does in the UI, done through the API.

The tests follow one another on one platform. The input is three days of flights, cut so that some of the first two
days come when their windows are closed, and the third day comes while the first two are recomputed.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from onlyonce import settings
from onlyonce.local import processes
from onlyonce.local.airflow_api import AirflowApi
from onlyonce.local.feed import feed_files
from tests import oracle
from tests.support.platform import Platform, multiset

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

STREAM, BACKFILL, TASK = "flights_stream", "flights_backfill", "backfill"
DAYS = ["2013-01-01T00:00:00Z", "2013-01-02T00:00:00Z"]
# What departs later than this comes with the third part of the input.
CUT = pd.Timestamp("2013-01-03T16:00Z")
HOURS = {"window_start": "2013-01-02T15:00:00Z", "window_end": "2013-01-02T17:00:00Z"}
PATIENCE = 600

Results = tuple[Counter[Any], Counter[Any]]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The input's lines: those in time, those of the first two days that come too late, those of later on."""
    folder = tmp_path_factory.mktemp("flights")
    feed_files("flights", folder, records=2700, files=1, duplicates=0)
    parts: dict[str, list[str]] = {"1-in-time": [], "2-late": [], "3-later": []}
    for number, line in enumerate(next(folder.glob("*.jsonl")).read_text().splitlines()):
        at = pd.Timestamp(json.loads(line)["scheduled_departure"])
        late = at < pd.Timestamp(DAYS[1]) + pd.Timedelta(days=1) and number % 25 == 0
        parts["3-later" if at >= CUT else "2-late" if late else "1-in-time"].append(line)
    return parts


@pytest.fixture(scope="module")
def platform(home: Path) -> Platform:
    """The platform that runs, for its tables and its log."""
    return Platform(home, {"ONLYONCE_DATABASE_URL": settings.database_url()})


@pytest.fixture(scope="module")
def before(api: AirflowApi, platform: Platform, lines: dict[str, list[str]]) -> Results:
    """The results of a stream that has met late rows."""
    for part in ("1-in-time", "2-late"):
        platform.put("flights", f"{part}.jsonl", lines[part])
    finished(api, STREAM, api.trigger(STREAM, {"max_files": 1}))
    return results(platform)


@pytest.fixture(scope="module")
def runs(api: AirflowApi, platform: Platform, before: Results, lines: dict[str, list[str]]) -> dict[str, str]:
    """The two runs of a range that was backfilled backwards while the stream read on, by their day."""
    platform.put("flights", "3-later.jsonl", lines["3-later"])
    drain = api.trigger(STREAM, {"max_files": 1})
    backfill(api, DAYS, run_backwards=True)
    made = sorted(dag_runs(api), key=lambda run: str(run["queued_at"]))
    assert [run["logical_date"] for run in made] == DAYS[::-1]
    found = {run["logical_date"]: run["dag_run_id"] for run in made}
    finished(api, STREAM, drain)
    for run in found.values():
        finished(api, BACKFILL, run)
    times = [span_of(api, STREAM, drain), *(span_of(api, BACKFILL, run) for run in found.values())]
    assert max(start for start, _ in times) < min(end for _, end in times), "they did not run at once"
    return found


def test_a_range_backwards_two_runs_at_once_beside_the_stream_gives_the_batch_over_all_rows(
    platform: Platform, before: Results, runs: dict[str, str], lines: dict[str, list[str]]
) -> None:
    """Before, the first two days held the rows in time; after, all rows. The stream's own windows are untouched."""
    in_time, everything = records(platform, "1-in-time"), records(platform, "1-in-time", "2-late", "3-later")
    assert len(lines["2-late"]) > 50
    assert of_days(before) == of_days(wanted(in_time)) != of_days(wanted(everything))
    after = results(platform)
    assert of_days(after) == of_days(wanted(everything))
    # What the stream has closed of the third day is a part of what it will close.
    assert all(now <= all_of_it for now, all_of_it in zip(after, wanted(everything), strict=True))
    late = platform.sql(
        "SELECT sum(late) AS late, sum(late_not_included) AS left FROM onlyonce.windows "
        "WHERE output = 'per_hour' AND state <> 'replaced'"
    )
    assert late.to_dict("records") == [{"late": len(lines["2-late"]), "left": 0}]


def test_a_cleared_run_really_runs_again_and_changes_nothing(
    api: AirflowApi, platform: Platform, runs: dict[str, str]
) -> None:
    """A trap of durable operators: the state of a task outlives a clear, and the run is green without work."""
    seen, done = results(platform), recomputed(platform)
    api.clear(BACKFILL, runs[DAYS[0]])
    finished(api, BACKFILL, runs[DAYS[0]])
    task = job_of(api, BACKFILL, runs[DAYS[0]])
    assert task["try_number"] == 2
    assert recomputed(platform) - done == Counter(
        {(runs[DAYS[0]], out, *day(0)): 1 for out in ("per_carrier", "per_hour")}
    )
    assert results(platform) == seen


def test_completed_runs_are_done_again_when_asked_for_and_only_then(
    api: AirflowApi, platform: Platform, runs: dict[str, str]
) -> None:
    """The reprocess behaviours none and failed find nothing to do; completed runs the same run once more."""
    await_end_of_backfills(api)
    body = range_of(DAYS)
    would = {
        how: {run["logical_date"] for run in api._call("POST", "backfills/dry_run", json={**body, "reprocess_behavior": how})["backfills"]}
        for how in ("none", "failed", "completed")
    }  # fmt: skip
    assert would == {"none": set(), "failed": set(), "completed": set(DAYS)}
    seen, done = results(platform), recomputed(platform)
    backfill(api, DAYS[1:], reprocess_behavior="completed")
    finished(api, BACKFILL, runs[DAYS[1]])
    assert recomputed(platform) - done == Counter(
        {(runs[DAYS[1]], out, *day(1)): 1 for out in ("per_carrier", "per_hour")}
    )
    assert results(platform) == seen


def test_a_run_by_hand_takes_the_windows_of_its_form(api: AirflowApi, platform: Platform, runs: dict[str, str]) -> None:
    """And the output; a dry run before it has written nothing."""
    seen, done = results(platform), recomputed(platform)
    asked = {**HOURS, "output": "per_hour"}
    dry = api.trigger(BACKFILL, {**asked, "dry_run": True})
    finished(api, BACKFILL, dry)
    assert recomputed(platform) == done
    assert "flights: a backfill would recompute" in api.task_log(BACKFILL, dry, TASK)
    run = api.trigger(BACKFILL, asked)
    finished(api, BACKFILL, run)
    times = tuple(pd.Timestamp(time) for time in HOURS.values())
    assert recomputed(platform) - done == Counter({(run, "per_hour", *times): 1})
    assert results(platform) == seen


def test_the_files_of_stream_and_backfill_are_final(api: AirflowApi, platform: Platform, runs: dict[str, str]) -> None:
    """By a task of their own, after the stream's and the backfill's; none waits, and each is where the log says."""
    there = platform.sql("SELECT state, place, name FROM onlyonce.output_files WHERE output = 'carrier_files'")
    assert {"final", "replaced"} == set(there["state"])
    assert all(
        (settings.files_dir() / place / name).is_file() for place, name in zip(there.place, there.name, strict=True)
    )


def test_a_run_by_hand_without_windows_fails_and_says_what_to_do(api: AirflowApi, platform: Platform) -> None:
    """Once, with the time of the click as its logical date, as the form sends it: yesterday is not guessed."""
    done = recomputed(platform)
    body = {"logical_date": datetime.now(UTC).isoformat(), "conf": {}}
    run = api._call("POST", f"dags/{BACKFILL}/dagRuns", json=body)["dag_run_id"]
    assert api.wait_for_run(BACKFILL, run, PATIENCE) == "failed"
    log = api.task_log(BACKFILL, run, TASK)
    assert "neither a data interval nor window_start and window_end" in log
    assert "choose Backfill in the trigger form" in log
    assert job_of(api, BACKFILL, run)["try_number"] == 1
    assert recomputed(platform) == done


def test_open_windows_are_waited_for_without_a_slot(
    api: AirflowApi, platform: Platform, runs: dict[str, str], lines: dict[str, list[str]]
) -> None:
    """The task is deferred until the stream has closed them, then it runs; in the end all is the batch over all
    rows."""
    done = recomputed(platform)
    # The hour of the last record: its windows wait for two hours more, which have not come.
    last = max(pd.Timestamp(json.loads(line)["scheduled_departure"]) for line in lines["3-later"]).floor("h")
    times = (last, last + pd.Timedelta(hours=1))
    start, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in times)
    run = api.trigger(BACKFILL, {"window_start": start, "window_end": end})
    processes.wait_until(lambda: api.task_states(BACKFILL, run) == {TASK: "deferred"}, PATIENCE, "the deferral")
    pool = api._call("GET", "pools/default_pool")
    assert (pool["running_slots"], pool["occupied_slots"], pool["deferred_slots"]) == (0, 0, 1)
    assert recomputed(platform) == done
    finished(api, STREAM, api.trigger(STREAM, {"close": True}))
    finished(api, BACKFILL, run)
    assert recomputed(platform) - done == Counter({(run, out, *times): 1 for out in ("per_carrier", "per_hour")})
    assert results(platform) == wanted(records(platform, "1-in-time", "2-late", "3-later"))
    log = api.task_log(BACKFILL, run, TASK)
    assert "waits up to 6 h, without a worker's slot" in log
    assert settings.database_url().split(":")[2].split("@")[0] not in log


def test_nothing_was_scheduled(api: AirflowApi, runs: dict[str, str]) -> None:
    """A plain timetable with intervals makes a run for yesterday as soon as its DAG is there."""
    assert {run["run_type"] for run in dag_runs(api)} == {"backfill", "manual"}
    [dag] = [dag for dag in api.dags() if dag["dag_id"] == BACKFILL]
    assert (dag["is_paused"], dag["is_backfillable"], dag["next_dagrun_run_after"]) == (False, True, None)


def range_of(days: list[str]) -> dict[str, Any]:
    """What the form sends for a range."""
    return {"dag_id": BACKFILL, "from_date": days[0], "to_date": days[-1], "max_active_runs": 2}


def backfill(api: AirflowApi, days: list[str], **options: Any) -> None:
    """Backfill a range of days."""
    api._call("POST", "backfills", json={**range_of(days), **options})


def await_end_of_backfills(api: AirflowApi) -> None:
    """A DAG has one backfill at a time; the scheduler looks for those that have ended now and then."""

    def none_left() -> bool:
        found = api._call("GET", "backfills", params={"dag_id": BACKFILL})["backfills"]
        return all(one["completed_at"] for one in found)

    processes.wait_until(none_left, PATIENCE, "the end of the backfill")


def dag_runs(api: AirflowApi) -> list[dict[str, Any]]:
    """All runs of the backfill's DAG."""
    return list(api._call("GET", f"dags/{BACKFILL}/dagRuns")["dag_runs"])


def finished(api: AirflowApi, dag: str, run: str) -> None:
    """The run ends well."""
    state = api.wait_for_run(dag, run, PATIENCE)
    task = job_of(api, dag, run)
    assert state == "success", api.task_log(dag, run, task["task_id"], task["try_number"])[-4000:]


def job_of(api: AirflowApi, dag: str, run: str) -> dict[str, Any]:
    """The task of a run that is a Spark job; the files are finalized by another."""
    [task] = [task for task in api.tasks(dag, run) if task["task_id"] in ("run", TASK)]
    return task


def span_of(api: AirflowApi, dag: str, run: str) -> tuple[str, str]:
    """When the task of a run began and ended."""
    task = job_of(api, dag, run)
    return task["start_date"], task["end_date"]


def day(number: int) -> tuple[pd.Timestamp, pd.Timestamp]:
    """The interval of a day."""
    start = pd.Timestamp(DAYS[number])
    return start, start + pd.Timedelta(days=1)


def recomputed(platform: Platform) -> Counter[Any]:
    """Each recomputation in the log: run, output and interval."""
    found = platform.sql(
        "SELECT run_id, output, window_from, window_to FROM onlyonce.backfills WHERE state = 'committed'"
    )
    return Counter(
        (run, out, pd.Timestamp(start), pd.Timestamp(end)) for run, out, start, end in found.itertuples(index=False)
    )


def records(platform: Platform, *parts: str) -> pd.DataFrame:
    """The input as the oracle reads it."""
    return oracle.distinct([platform.home / "inbox" / "flights" / f"{part}.jsonl" for part in parts], oracle.FLIGHTS)


def results(platform: Platform) -> Results:
    """Every row of both outputs: carriers and hours."""
    hours = platform.sql("SELECT * FROM results.flights_per_hour")
    return _rows(platform.table("flights/per_carrier"), "carrier"), _rows(hours)


def wanted(rows: pd.DataFrame) -> Results:
    """The batch computation over some rows, for both."""
    return _rows(oracle.flights_per_carrier(rows), "carrier"), _rows(oracle.flights_per_hour(rows))


def of_days(found: Results) -> Results:
    """What of it is in the windows of the two days."""
    end = day(1)[1]
    carriers, hours = (Counter({row: n for row, n in rows.items() if row[0] < end}) for rows in found)
    return carriers, hours


def _rows(frame: pd.DataFrame, *more: str) -> Counter[Any]:
    times = {name: pd.to_datetime(frame[name], utc=True).dt.as_unit("us") for name in ("window_start", "window_end")}
    whole = {name: pd.to_numeric(frame[name]).astype("Int64") for name in ("flights", "delay_minutes")}
    mean = pd.to_numeric(frame["mean_delay"]).astype(float).round(9)
    return multiset(frame.assign(**times, **whole, mean_delay=mean), *times, *more, *whole, "mean_delay")
