"""`onlyonce pause` on a real Airflow: nothing of the pipeline starts until it is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.local import airflow_api
from onlyonce.local.airflow_api import AirflowApi

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_paused_pipeline_starts_nothing_until_it_is_resumed(home: Path, api: AirflowApi) -> None:
    """A run that is asked for meanwhile waits, while the scheduler does other work; then it runs as ever."""
    assert airflow_api.hold_schedules("user_counts", held=True).facts["schedules"] == "held"
    waiting = api.trigger("user_counts_stream")
    api.unpause("onlyonce_audit")
    other = api.trigger("onlyonce_audit")
    api.wait_for_run("onlyonce_audit", other)

    assert api.run_state("user_counts_stream", waiting) == "queued"
    airflow_api.hold_schedules("user_counts", held=False)
    assert api.wait_for_run("user_counts_stream", waiting) == "success"
