"""The options that a DAG file may set for all of its DAGs, in Airflow's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow.sdk import AssetAny, CronTriggerTimetable

from onlyonce import settings
from onlyonce.airflow.declared import Declared
from onlyonce.airflow.log import assets

FROM_SETTINGS = "by the settings"
"""Of a schedule or an interval: what ONLYONCE_SCHEDULE and ONLYONCE_BACKFILL_INTERVAL say."""
TAG = "onlyonce"


@dataclass(frozen=True)
class Options:
    """The keywords of `onlyonce.airflow.dags`, in one piece."""

    declared: Declared = field(default_factory=Declared)
    prefix: str | None = None
    schedule: Any = FROM_SETTINGS
    backfill_interval: str = FROM_SETTINGS
    pool: str | None = None
    queue: str | None = None
    default_args: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    spark: Mapping[str, Any] = field(default_factory=dict)
    workers_outlive_tasks: bool | None = None

    def task_defaults(self, **ours: Any) -> dict[str, Any]:
        """default_args of a DAG: ours, then the pool and queue, then what the DAG file says."""
        places = {name: value for name, value in (("pool", self.pool), ("queue", self.queue)) if value}
        return {**ours, **places, **self.default_args}

    def all_tags(self, *more: str) -> list[str]:
        """The tags of a DAG."""
        return [TAG, *more, *self.tags]

    def stream_schedule(self) -> Any:
        """None: runs by hand only."""
        asked = settings.schedule() if self.schedule is FROM_SETTINGS else self.schedule
        return None if asked == "none" else timetable(asked)

    def schedule_behind(self, followed: Sequence[tuple[str, str]]) -> Any:
        """Of a stream that reads the tables of these outputs: it runs when one of them has new rows, whatever the
        time."""
        if not followed or self.schedule is None:
            return self.stream_schedule()
        return AssetAny(*(assets.asset(pipeline, output) for pipeline, output in followed))

    def interval(self) -> str:
        """A cron expression in UTC."""
        if self.backfill_interval is FROM_SETTINGS:
            return settings.backfill_interval()
        return self.backfill_interval


def timetable(schedule: Any) -> Any:
    """A schedule as Airflow takes it.

    A plain cron expression would get Airflow's own data intervals, where its settings say so.
    """
    return (
        CronTriggerTimetable(schedule, timezone="UTC")
        if isinstance(schedule, str) and " " in schedule.strip()
        else schedule
    )


RETRIES = {"retries": 2, "retry_delay": timedelta(seconds=10)}
HOUSEKEEPING_RETRIES = {"retries": 1, "retry_delay": timedelta(seconds=30)}
