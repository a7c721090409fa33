"""A task tells Airflow's assets what its run has committed: only tables with new rows, with batch, rows and Delta
version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, Asset
from airflow.sdk.execution_time.context import OutletEventAccessors

from onlyonce.airflow import log as airflow_log
from onlyonce.airflow.spark_job import SparkJobOperator
from onlyonce.core.errors import DatabaseAway
from onlyonce.operate import assets as log
from onlyonce.settings import ROOT
from tests.dags.conftest import Submit, TaskInstance

COMMITTED = [
    {"output": "per_carrier", "run_id": "r", "batch": "flights/per_carrier/1/7", "batches": 2, "rows": 31, "delta_version": 9}
]  # fmt: skip


def context() -> dict[str, Any]:
    """What Airflow gives to `execute`, as far as it is asked for."""
    return {"params": {}, "run_id": "r", "ti": TaskInstance(), "outlet_events": OutletEventAccessors()}


def operator() -> SparkJobOperator:
    """The one of the stream."""
    with DAG("d"):
        return SparkJobOperator(task_id="run", pipeline="flights")


def test_a_run_that_has_written_tells_its_tables(submits: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is of the asset that a following DAG names, and carries what the log says."""
    asked: list[tuple[str, ...]] = []

    def committed(*of: str) -> list[dict[str, Any]]:
        asked.append(of)
        return COMMITTED

    monkeypatch.setattr(log, "committed", committed)
    given = context()

    submits(lambda: operator().execute(given))

    [event] = given["outlet_events"][airflow_log.alias("flights")].asset_alias_events
    assert asked == [("flights", "flights_stream", "r")]
    assert (event.dest_asset_key.name, event.extra) == ("flights/per_carrier", COMMITTED[0])


def test_a_run_that_found_nothing_to_do_tells_nobody(submits: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule every ten minutes must not start all that follow every ten minutes."""
    monkeypatch.setattr(log, "committed", lambda *_: [])
    given = context()

    submits(lambda: operator().execute(given))

    assert given["outlet_events"][airflow_log.alias("flights")].asset_alias_events == []


def test_a_run_that_failed_tells_nobody(submits: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its retry does, of all that the run has committed by then."""
    monkeypatch.setattr(log, "committed", lambda *_: COMMITTED)
    given = context()

    with pytest.raises(Exception, match="exit code 75"):
        submits(lambda: operator().execute(given), code=75)

    assert given["outlet_events"][airflow_log.alias("flights")].asset_alias_events == []


def test_when_the_log_is_away_the_task_is_tried_again(submits: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is left out would never come: the driver's repeat is harmless."""

    def away(*_: str) -> None:
        raise DatabaseAway("the database did not answer")

    monkeypatch.setattr(log, "committed", away)
    monkeypatch.setenv("ONLYONCE_DATABASE_PATIENCE", "0")  # for the note that the task has failed
    with pytest.raises(DatabaseAway):
        submits(lambda: operator().execute(context()))


def test_a_dag_can_follow_a_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the name alone; stream and backfill have the pipeline's alias as their outlet."""
    (tmp_path / "follows.py").write_text(
        "from airflow.sdk import DAG, Asset\n"
        "with DAG('follows', schedule=[Asset(name='flights/per_carrier', "
        "uri='onlyonce://flights/per_carrier')]):\n    pass\n"
    )
    bag = DagBag(str(ROOT / "dags"))
    followed = DagBag(str(tmp_path))

    assert followed.import_errors == {}
    for dag in ("user_counts_stream", "user_counts_backfill"):
        [task] = bag.dags[dag].tasks
        assert task.outlets == [airflow_log.alias("user_counts")]
    assert airflow_log.asset("flights", "per_carrier") == Asset(
        name="flights/per_carrier", uri="onlyonce://flights/per_carrier", group="onlyonce"
    )
