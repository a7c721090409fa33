"""The paths of the triggers, which Airflow stores with a waiting task: they stay."""

from __future__ import annotations

from importlib import import_module

import pytest
from airflow.triggers.base import BaseTrigger

from onlyonce.airflow.triggers import LongRunEnd, OpenWindows


@pytest.mark.parametrize(
    ("trigger", "path"),
    [
        (LongRunEnd("flights", "stream/1"), "onlyonce.airflow.triggers.LongRunEnd"),
        (OpenWindows({}, 0.0), "onlyonce.airflow.triggers.OpenWindows"),
    ],
)
def test_a_stored_trigger_path_stays(trigger: BaseTrigger, path: str) -> None:
    """A task that waits over an upgrade is woken by the trigger of that path."""
    assert trigger.serialize()[0] == path
    module, _, name = path.rpartition(".")
    assert getattr(import_module(module), name) is type(trigger)
