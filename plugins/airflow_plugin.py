"""What Airflow must know of us beyond the DAG files. It loads this file from its plugins folder, in each process."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from plugins.intervals_by_hand import IntervalsByHand


class OnlyoncePlugin(AirflowPlugin):
    """Registers the timetable under the name by which the DAG files import it."""

    name = "onlyonce"
    timetables = (IntervalsByHand,)
