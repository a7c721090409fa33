"""The timetable of the backfill DAGs: it has data intervals, but schedules no run.

Airflow's own `CronDataIntervalTimetable` can't be kept from scheduling. A DAG with this timetable must allow scheduled
runs. If they are forbidden, the scheduler finds the due run again in each of its loops, for ever.
"""

from __future__ import annotations

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from pendulum import DateTime


class IntervalsByHand(CronDataIntervalTimetable):
    """The intervals between the times of a cron expression. No run of them comes by itself."""

    can_be_scheduled = False

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return the next interval of a backfill; for the scheduler there is none.

        A backfill asks with `catchup`, the scheduler with what the DAG says: False.
        """
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """Return an empty interval: the form fills in the time of the click, and yesterday's windows were not asked
        for."""
        return DataInterval.exact(run_after)
