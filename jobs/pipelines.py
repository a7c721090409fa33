"""The pipelines that ship. Edit this file, or keep yours in another: ONLYONCE_PIPELINES=my_pipelines.py.

A declaration names its transforms as 'module:function' and imports no Spark, so Airflow reads it too.
"""

from __future__ import annotations

from datetime import timedelta

from onlyonce import Delta, Files, FileSink, Fixed, Output, Pipeline, Postgres

HOUR = Fixed(timedelta(hours=1))
MINUTE = Fixed(timedelta(minutes=1))

FLIGHTS = Pipeline(
    name="flights",
    source=Files(max_files_a_batch=4),
    schema="carrier string, flight long, tailnum string, origin string, dest string, scheduled_departure timestamp, "
    "arrived_at timestamp, dep_delay long, arr_delay long, distance long, air_time long",
    record_id=("carrier", "flight", "origin", "scheduled_departure"),
    event_time="scheduled_departure",
    idle_after=timedelta(minutes=10),
    outputs=(
        Output(
            name="per_carrier",
            transform="jobs.transforms:flights_per_carrier",
            window=HOUR,
            watermark_delay=timedelta(hours=2),
            sink=Delta(),
        ),
        Output(
            name="carrier_files",
            transform="jobs.transforms:as_they_are",
            from_output="per_carrier",
            # A window has some fifteen carriers; the default is ten shards.
            sink=FileSink(shards=2, keys=("carrier",)),
        ),
        Output(
            name="per_hour",
            transform="jobs.transforms:flights_per_hour",
            window=HOUR,
            watermark_delay=timedelta(hours=2),
            sink=Postgres(table="results.flights_per_hour", write="upsert", keys=("window_start", "window_end")),
        ),
    ),
)

USER_COUNTS = Pipeline(
    name="user_counts",
    source=Files(max_files_a_batch=3),
    schema="event_id string, user string, at timestamp, action string",
    record_id=("event_id",),
    event_time="at",
    idle_after=timedelta(minutes=10),
    outputs=(
        Output(
            name="per_user",
            transform="jobs.transforms:counts_per_user",
            window=MINUTE,
            watermark_delay=timedelta(minutes=2),
            sink=Delta(),
        ),
        Output(
            name="of_all",
            transform="jobs.transforms:count_of_all",
            from_output="per_user",
            sink=Postgres(table="results.count_of_all", write="append"),
        ),
    ),
)

PIPELINES = [FLIGHTS, USER_COUNTS]
