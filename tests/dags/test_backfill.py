"""The backfill DAG and its operator: which windows a run is about, when it waits, and when it really runs."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, ParamValidationError, TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization

from onlyonce.airflow import backfill_dags, backfill_job, log, triggers
from onlyonce.airflow import dags as dags_of_file
from onlyonce.airflow.backfill_job import BackfillOperator
from onlyonce.airflow.declared import Declared
from onlyonce.airflow.forms import outputs_table
from onlyonce.airflow.log import Asked, asked_of
from onlyonce.airflow.triggers import OpenWindows
from onlyonce.asked import parse
from onlyonce.core.backfill import Span
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.runs import Report
from onlyonce.outputs import backfill
from onlyonce.settings import ROOT
from tests.dags.conftest import PASSWORD, TaskInstance
from tests.support import sorted_shop

DAY = (datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC))
NONE: dict[str, Any] = {
    "window_start": None,
    "window_end": None,
    "late_only": False,
    "output": None,
    "dry_run": False,
    "wait_hours": 6,
}
TWO = {**NONE, "window_start": "2013-01-01T05:00:00Z", "window_end": "2013-01-01T07:00:00Z"}
ASKED = Asked("flights", "2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00+00:00")
WINDOWLESS = """
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
PIPELINES = [Pipeline(name="mine", source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at",
                      outputs=(Output(name="all", transform="json:loads", sink=Delta()),))]
"""


@pytest.fixture(scope="module")
def dag() -> DAG:
    return dags()["flights_backfill"]


def dags() -> dict[str, Any]:
    """Those of the file, parsed anew."""
    found = DagBag(str(ROOT / "dags"))
    assert found.import_errors == {}
    return {name: dag for name, dag in found.dags.items() if name.endswith("_backfill")}


# The DAG.


def test_the_scheduler_finds_nothing_to_run_and_a_backfill_finds_every_interval(dag: DAG) -> None:
    """As the scheduler and the API know it, which is after a round through their database."""
    known = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))
    assert {kind.value for kind in known.allowed_run_types} == {"backfill", "manual"}
    assert known.next_dagrun_info(last_automated_run_info=None) is None
    assert known.timetable.periodic
    first, last = pendulum.datetime(2013, 1, 1), pendulum.datetime(2013, 1, 3)
    intervals = [info.data_interval for info in known.iter_dagrun_infos_between(first, last)]
    assert [(i.start, i.end) for i in intervals] == [(first.add(days=n), first.add(days=n + 1)) for n in range(3)]
    infos = list(known.iter_dagrun_infos_between(first, last))
    assert known.next_dagrun_info(last_automated_run_info=infos[0]) is None


def test_a_run_by_hand_has_no_interval_of_its_own(dag: DAG) -> None:
    """The form fills in the time of the click; the windows of yesterday are not what somebody asked for."""
    interval = dag.timetable.infer_manual_data_interval(run_after=pendulum.datetime(2026, 3, 1, 12))
    assert interval.start == interval.end
    with pytest.raises(Refused, match="neither"):
        asked_of("flights", NONE, (interval.start, interval.end))


def test_the_length_of_an_interval_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONLYONCE_BACKFILL_INTERVAL is a cron expression."""
    monkeypatch.setenv("ONLYONCE_BACKFILL_INTERVAL", "0 */6 * * *")
    first = pendulum.datetime(2013, 1, 1)
    known = DagSerialization.from_dict(DagSerialization.to_dict(dags()["flights_backfill"]))
    [info] = known.iter_dagrun_infos_between(first, first)
    assert info.data_interval.end == first.add(hours=6)


def test_a_pipeline_without_windows_has_no_backfill(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is nothing to recompute, and a DAG that can only refuse helps nobody."""
    (tmp_path / "mine.py").write_text(WINDOWLESS)
    monkeypatch.setenv("ONLYONCE_PIPELINES", f"{tmp_path / 'mine.py'}:{ROOT / 'jobs' / 'pipelines.py'}")
    assert set(dags()) == {"flights_backfill", "user_counts_backfill"}


def test_the_form_asks_which_version_of_a_lookup_is_meant_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By default that of then; nobody else is asked."""
    path = tmp_path / "mine.py"
    table = (
        'lookups=Lookup(name="loads", table=Delta(path="x"), keys="id"), window=Fixed(timedelta(hours=1)), sink=Delta()'
    )
    imports = "from datetime import timedelta\nfrom onlyonce import Fixed, Lookup"
    path.write_text(imports + WINDOWLESS.replace("sink=Delta()", table))
    before = dags()["flights_backfill"].params
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(path))
    assert dags()["mine_backfill"].params["lookups"] == "then"
    assert "lookups" not in before


def test_a_cleared_run_runs_again_and_the_stream_comes_first(dag: DAG) -> None:
    """Of less weight than a drain."""
    backfill = dag.get_task("backfill")
    assert backfill.retries == 2
    assert backfill.priority_weight < 1 < dag.max_active_runs


@pytest.mark.parametrize(
    "given", [{"pool": "backfills"}, {"default_args": {"pool": "backfills"}}], ids=["pool", "args"]
)
@pytest.mark.parametrize("make", [dags_of_file, backfill_dags])
def test_every_task_of_a_backfill_is_in_the_pool(make: Callable[..., dict[str, DAG]], given: dict[str, Any]) -> None:
    """As the scheduler knows them, which counts the pool's slots. `dags` gives it to the stream too."""
    made = make(declarations="jobs.pipelines", **given)
    pools = {
        (name, task.task_id): task.pool
        for name, dag in made.items()
        for task in DagSerialization.from_dict(DagSerialization.to_dict(dag)).tasks
    }

    assert {("flights_backfill", "backfill"), ("user_counts_backfill", "backfill")} <= {*pools}
    assert ("flights_stream", "run") in pools or make is backfill_dags
    assert {*pools.values()} == {"backfills"}


def test_the_form_has_a_title_and_a_description_for_each_param(dag: DAG) -> None:
    """Empty by default, so that a backfill of intervals needs none of it."""
    assert dag.params.dump() == NONE
    for name in dag.params:
        assert dag.params.get_param(name).schema["title"]
        assert dag.params.get_param(name).description


def test_titles_of_the_form_differ_from_those_of_airflow(dag: DAG) -> None:
    """Airflow's own backfill dialog, which shows these Params too, has From and To."""
    titles = [dag.params.get_param(name).schema["title"] for name in dag.params]
    assert len({*titles}) == len(titles)
    assert not {"From", "To"} & {*titles}
    assert all(f"*{title}*" in str(dag.doc_md) for title in titles if "window" in title.lower() and "open" not in title)


@pytest.mark.parametrize(
    "name, value",
    [
        ("window_start", 2013),
        ("window_start", "Tuesday"),
        ("output", "per_carier"),
        ("wait_hours", -1),
        ("dry_run", "yes"),
    ],
)
def test_the_form_refuses_a_wrong_value(dag: DAG, name: str, value: Any) -> None:
    """Before a run begins."""
    with pytest.raises(ParamValidationError):
        dag.params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("window_start", "2013-01-01T05:00:00.000Z"),
        ("window_end", "2013-01-01"),
        ("window_end", "2013-01-01T05:00:00+01:00"),
        ("output", "per_hour"),
        ("wait_hours", 0.5),
    ],
)
def test_the_form_takes_a_right_value(dag: DAG, name: str, value: Any) -> None:
    """A day of the windows' own zone, and a time with a zone, among them."""
    assert dag.params.get_param(name).resolve(value) == value


def test_the_page_tells_the_declaration(dag: DAG) -> None:
    """The outputs, as on the page of the stream."""
    assert "| `per_carrier` | `jobs.transforms:flights_per_carrier` | fixed: size 1 hour" in dag.doc_md


def test_the_page_names_the_function_of_a_result() -> None:
    """A result has none of its own."""
    table = outputs_table(sorted_shop.SHOP)
    assert "| `refunds` | a result of `tests.support.sorted_transforms:by_window` | fixed: size 1 minute" in table


# Which windows.


@pytest.mark.parametrize(
    "params, interval, start, stop",
    [
        (NONE, DAY, "2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00+00:00"),
        (TWO, None, "2013-01-01T05:00:00Z", "2013-01-01T07:00:00Z"),
        (TWO, (DAY[0], DAY[0]), "2013-01-01T05:00:00Z", "2013-01-01T07:00:00Z"),
        ({**NONE, "late_only": True}, None, None, None),
        ({**TWO, "late_only": True}, None, "2013-01-01T05:00:00Z", "2013-01-01T07:00:00Z"),
    ],
)
def test_the_windows_are_those_of_the_interval_or_of_the_form(
    params: dict[str, Any], interval: Any, start: str | None, stop: str | None
) -> None:
    """An interval without length is none. With late_only no window needs to be named."""
    assert asked_of("flights", params, interval) == Asked(
        "flights", start, stop, late_only=params.get("late_only", False)
    )


@pytest.mark.parametrize(
    "params, interval, message",
    [
        (NONE, None, "neither a data interval nor window_start and window_end"),
        (NONE, (DAY[0], DAY[0]), "neither a data interval nor window_start and window_end"),
        ({**TWO, "window_end": None}, None, "window_start is given, window_end is not"),
        ({**TWO, "window_start": None}, None, "window_end is given, window_start is not"),
        (TWO, DAY, "its Params name windows too"),
    ],
)
def test_windows_are_never_guessed(params: dict[str, Any], interval: Any, message: str) -> None:
    """None, half, or two answers: the run fails and says what to do."""
    with pytest.raises(Refused, match=message) as refused:
        asked_of("flights", params, interval)
    assert "trigger" in refused.value.hint


def test_the_driver_takes_every_argument() -> None:
    """The form's words are the driver's."""
    asked = asked_of("flights", {**TWO, "output": "per_hour", "lookups": "now"}, None)
    given = parse("backfill", asked.arguments("-r", "-d"))
    assert (given.pipeline, given.run_id, given.dag_id, given.output, given.lookups) == (
        "flights",
        "-r",
        "-d",
        "per_hour",
        "now",
    )
    assert (given.start, given.stop) == (DAY[0] + timedelta(hours=5), DAY[0] + timedelta(hours=7))
    late = parse("backfill", asked_of("flights", {**NONE, "late_only": True}, None).arguments("-r", "-d"))
    assert (late.late_only, late.start, late.stop) == (True, None, None)


# The operator.


@pytest.fixture
def run(submits: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs `execute` (or `resume` with an event) where the log answers `look`; gives what spark-submit was given."""

    def execute(
        look: Any = None, *, params: dict[str, Any] = NONE, interval: Any = DAY, event: Any = None, code: int = 0
    ) -> Any:
        with DAG("d"):
            operator = BackfillOperator(task_id="backfill", pipeline="flights")
        run_id = "backfill__2013-01-02T00:00:00+00:00"
        context: dict[str, Any] = {"params": params, "run_id": run_id, "ti": TaskInstance("flights_backfill", run_id)}
        if interval:
            context |= dict(zip(("data_interval_start", "data_interval_end"), interval, strict=True))
        monkeypatch.setattr(backfill_job, "first_look", answers(look))
        work = (lambda: operator.resume(context, event)) if event else (lambda: operator.execute(context))
        return submits(work, code)

    return execute


def answers(*looks: Any) -> Callable[[Asked], Any]:
    """A stand-in for the look at the log: one answer for each look; errors are raised."""
    left = iter(looks)

    def look(*_: Any) -> Any:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


def test_closed_windows_are_recomputed_at_once(run: Callable[..., Any]) -> None:
    """By the installed application, with the interval and not what the run's id says."""
    argv = run(None).argv
    at = argv.index(str(ROOT / "onlyonce" / "outputs" / "backfill.py"))
    assert argv[at + 1 :] == [
        "flights",
        "--run-id=backfill__2013-01-02T00:00:00+00:00",
        "--dag-id=flights_backfill",
        *ASKED.arguments("", "")[3:],
    ]


def test_open_windows_are_waited_for_in_the_triggerer(run: Callable[..., Any]) -> None:
    """The task is deferred; what Airflow stores of it holds no secret and makes the same trigger again."""
    with pytest.raises(TaskDeferred) as deferred:
        run("windows are open")
    assert deferred.value.method_name == "resume"
    assert deferred.value.timeout > timedelta(hours=6)
    path, stored = deferred.value.trigger.serialize()
    assert PASSWORD not in json.dumps(stored)
    assert set(stored) == {"asked", "until", "declared"}
    module, name = path.rsplit(".", 1)
    again = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(stored)))
    assert Asked(**again.asked) == ASKED
    assert again.until == stored["until"]


def test_a_run_that_shall_not_wait_fails_at_once(run: Callable[..., Any]) -> None:
    """For good: a retry ten seconds later would be a wait by the worker."""
    with pytest.raises(AirflowFailException, match="windows are open"):
        run("windows are open", params={**NONE, "wait_hours": 0})


def test_after_the_wait_the_driver_runs(run: Callable[..., Any]) -> None:
    """Without another look: the driver has its own."""
    assert str(ASKED.start) in " ".join(run(AssertionError("looked again"), event={"problem": None}).argv)


def test_a_look_of_the_task_itself_does_not_begin_the_wait_again(run: Callable[..., Any]) -> None:
    """The triggerer has no declarations, so the task looks once a minute. After `wait_hours` it fails."""
    until = time.time() + 100
    with pytest.raises(TaskDeferred) as deferred:
        run("windows are open", event={"problem": None, "look": True, "until": until})
    assert abs(deferred.value.trigger.until - until) < 1

    with pytest.raises(AirflowFailException, match="windows are open"):
        run("windows are open", event={"problem": None, "look": True, "until": time.time() - 1})


def test_a_wait_in_vain_fails_for_good_with_the_reason(run: Callable[..., Any]) -> None:
    """What the trigger told last is what the task says."""
    with pytest.raises(AirflowFailException, match="still open"):
        run(event={"problem": "still open"})


@pytest.mark.parametrize(
    "look, params, message",
    [(Refused("can't be withdrawn"), NONE, "can't be withdrawn"), (None, TWO, "its Params name windows too")],
)
def test_a_refusal_is_final_and_told_in_the_log(
    run: Callable[..., Any], look: Any, params: dict[str, Any], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether the sink refuses or the form is wrong; as a line of its own, not below a traceback only."""
    with pytest.raises(AirflowFailException, match=message):
        run(look, params=params)
    assert message in "".join(capfd.readouterr())


@pytest.mark.parametrize("code, fatal", [(75, False), (64, True), (137, False)])
def test_the_exit_code_decides_whether_the_task_is_retried(run: Callable[..., Any], code: int, fatal: bool) -> None:
    """As for a drain."""
    with pytest.raises(AirflowException, match=f"exit code {code}") as failure:
        run(code=code)
    assert isinstance(failure.value, AirflowFailException) == fatal


def test_a_dry_run_only_logs(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No Spark, and no wait for windows that are open: that is part of what it tells."""
    report = Report("flights: would", "dry run", {"windows": 1}, {"windows": [{"output": "per_hour"}]}, ["still open"])
    monkeypatch.setattr(backfill_job, "would_backfill", lambda *_: report)
    assert run(AssertionError("looked"), params={**NONE, "dry_run": True}) is None
    log = "".join(capfd.readouterr())
    assert all(text in log for text in ("flights: would: windows=1", "windows: output=per_hour", "still open"))


# The look, and the trigger that repeats it.


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """`onlyonce.outputs.backfill` without a database; gives the URLs and outputs that it was asked about."""
    asked: list[Any] = []
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", "postgresql+psycopg2://w@here/d")
    monkeypatch.setenv("ONLYONCE_READER_URL", "postgresql+psycopg2://r@here/d")
    monkeypatch.delenv("AIRFLOW_CONN_ONLYONCE_DB", raising=False)
    monkeypatch.setattr(backfill, "migrate", lambda url: None)
    monkeypatch.setattr(backfill, "check", lambda db, pipeline, root, span: asked.append((db.url, root.name, span)))
    return asked  # type: ignore[return-value]


def test_each_output_with_windows_is_asked_about(job: list[Any]) -> None:
    """Or the one that the run names."""
    assert log.first_look(ASKED) is None
    assert log.not_yet(Asked("user_counts", ASKED.start, ASKED.stop, "of_all")) is None
    span = Span.of(*DAY)
    assert job == [("postgresql+psycopg2://r@here/d", name, span) for name in ("per_carrier", "per_hour", "per_user")]


def test_a_day_of_the_form_is_a_day_of_the_windows(job: list[Any]) -> None:
    """As in the shell: the day of a pipeline whose windows are days of Berlin has 23 hours in March."""
    declared = Declared(("tests.support.berlin_days",))
    assert log.not_yet(Asked("berlin_days", "2026-03-29", "2026-03-30"), declared) is None
    assert [str(span) for _, _, span in job] == ["2026-03-28T23:00:00Z--2026-03-29T22:00:00Z"]


def test_what_may_pass_later_is_a_reason_to_wait_and_a_refusal_is_not(
    job: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the class of the error."""
    monkeypatch.setattr(backfill, "check", answers_of_check(Retryable("open", hint="later")))
    assert "open" in str(log.not_yet(ASKED))
    monkeypatch.setattr(backfill, "check", answers_of_check(Refused("never")))
    with pytest.raises(Refused, match="never"):
        log.not_yet(ASKED)


def answers_of_check(error: Exception) -> Callable[..., None]:
    """A check that raises."""

    def check(*_: Any) -> None:
        raise error

    return check


LATER = 4e9  # seconds since 1970: the year 2096


@pytest.mark.parametrize(
    "looks, until, problem, left",
    [
        (["open", "open", None, "too many looks"], LATER, None, 1),
        ([None, "too many looks"], 0.0, None, 1),
        (["open", "too many looks"], 0.0, "open", 1),
        (["open", Refused("never"), "too many looks"], LATER, "never", 1),
    ],
)
def test_the_trigger_fires_when_waiting_has_an_end(
    looks: list[Any], until: float, problem: str | None, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed, refused, or out of time after at least one look; and it looks no more."""
    seen: list[Asked] = []
    answer = answers(*looks)

    def look(asked: Asked, _: Any) -> Any:
        seen.append(asked)
        return answer(asked)

    monkeypatch.setattr(triggers, "not_yet", look)
    monkeypatch.setattr(OpenWindows, "EVERY_SECONDS", 0)
    assert asyncio.run(events(OpenWindows.of(ASKED, until))) == [{"problem": problem}]
    assert seen == [ASKED] * (len(looks) - left)


async def events(trigger: OpenWindows) -> list[Any]:
    """All events of a trigger, which ends by itself."""
    return [event.payload async for event in trigger.run()]


def test_a_look_that_hangs_does_not_stop_other_triggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else on the event loop goes on while a look waits for a database; here the look waits for it."""
    others_ran = threading.Event()
    monkeypatch.setattr(triggers, "not_yet", lambda *_: None if others_ran.wait(30) else "the loop stood still")

    async def both() -> Any:
        async def other() -> None:
            others_ran.set()

        fired, _ = await asyncio.gather(events(OpenWindows.of(ASKED, 0.0)), other())
        return fired

    assert asyncio.run(both()) == [{"problem": None}]
