"""`onlyonce pause` on a real Airflow: nothing of the pipeline starts until it is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.local.standalone import schedules
from onlyonce.local.standalone.airflow_api import AirflowApi

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_paused_pipeline_starts_nothing_until_it_is_resumed(home: Path, api: AirflowApi) -> None:
    """A run that is asked for meanwhile waits, while the scheduler does other work; then it runs as ever."""
    assert schedules.hold("user_counts", held=True).facts["schedules"] == "held"
    waiting = api.trigger("stream_user_counts")
    api.unpause("audit")
    other = api.trigger("audit")
    api.wait_for_run("audit", other)

    assert api.run_state("stream_user_counts", waiting) == "queued"
    schedules.hold("user_counts", held=False)
    assert api.wait_for_run("stream_user_counts", waiting) == "success"
