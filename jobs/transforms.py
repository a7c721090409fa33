"""The transforms of the pipelines that ship: ordinary PySpark, from a DataFrame to a DataFrame.

A transform gets the declared columns and the platform's own, which begin with `oo_`: `oo_event_time`, and for an output
with a window `oo_window` (a struct of `start` and `end`). A windowed one groups by `oo_window` and keeps it. It knows
nothing of streams, batches, watermark delay or sinks, so the same function serves the stream, a bounded run and a
backfill. It must not compute the event time itself. The declarations in `jobs/pipelines.py` name it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def flights_per_carrier(flights: DataFrame) -> DataFrame:
    """Return flights and mean delay of each carrier in each window."""
    return flights.groupBy("oo_window", "carrier").agg(*_flights_and_delay())


def as_they_are(rows: DataFrame) -> DataFrame:
    """Return another output's rows, for one more sink."""
    return rows


def flights_per_hour(flights: DataFrame) -> DataFrame:
    """Return flights and mean delay over all carriers in each window, which the declaration makes an hour."""
    return flights.groupBy("oo_window").agg(*_flights_and_delay())


def counts_per_user(events: DataFrame) -> DataFrame:
    """Return how many events each user made in each window."""
    return events.groupBy("oo_window", "user").agg(F.count(F.lit(1)).alias("count"))


def count_of_all(counts: DataFrame) -> DataFrame:
    """Return, from the rows of `counts_per_user`, the events of each window, and how many users made them."""
    return counts.groupBy("oo_window").agg(
        F.sum("count").cast("long").alias("count"),
        F.count(F.lit(1)).alias("users"),
    )


def _flights_and_delay() -> list[Column]:
    """Return the figures. A diverted flight counts, but has no delay: it is left out of both figures on delays.

    Delays are whole minutes, so sum and mean are the same in any order of the rows. Both columns are null in a window
    where every flight was diverted.
    """
    return [
        F.count(F.lit(1)).alias("flights"),
        F.sum("arr_delay").cast("long").alias("delay_minutes"),
        F.avg("arr_delay").alias("mean_delay"),
    ]
