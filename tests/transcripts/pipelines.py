"""A pipeline for each transcript: its outputs over one input, as a user would declare them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce import BigQueryStream, Iceberg, MySQL, Postgres
from onlyonce.api.pipeline import Delta, Files, Input, Join, Lookup, Output, Pipeline, Stateful
from onlyonce.core.windows import Chained, Joined
from tests.support.iceberg_shop import CATALOG
from tests.transcripts import story
from tests.transcripts.story import FOLDER, Declared, Story

MYSQL = "TRANSCRIPT_MYSQL"
ME, PROCESSORS = "tests.transcripts.pipelines", "tests.transcripts.processors"


SINKS: dict[str, Callable[[str], Any]] = {
    "delta": lambda _: Delta(),
    "postgres": lambda name: Postgres(table=f"results.{name}"),
    "mysql": lambda name: MySQL(table=name, connection=MYSQL),
    "iceberg": lambda name: Iceberg(table=f"results.{name}", catalog=CATALOG),
    "bigquery stream": lambda _: BigQueryStream(table="p.d.t"),
}


def by_window(records: DataFrame) -> DataFrame:
    """The records of each key in each window."""
    return records.groupBy("oo_window", "key").agg(F.count(F.lit(1)).alias("records"))


def of_closed(windows: DataFrame) -> DataFrame:
    """The records of each key in the closed windows of another output that are in each window."""
    return windows.groupBy("oo_window", "key").agg(F.sum("records").alias("records"))


def totals(records: DataFrame) -> DataFrame:
    """The records of each key so far."""
    return records.groupBy("key").agg(F.count(F.lit(1)).alias("records"))


def rows(records: DataFrame) -> DataFrame:
    """Each record."""
    return records.select("key", F.lit(1).cast("long").alias("records"))


def good_and_odd(records: DataFrame) -> dict[str, DataFrame]:
    """The same in two results: the records of the key x are odd."""
    odd = F.col("key") == "x"
    return {"good": by_window(records.where(~odd)), "odd": by_window(records.where(odd))}


def unwanted(records: DataFrame) -> Column:
    """Why a record is rejected: its key is x."""
    return F.when(F.col("key") == "x", "x is not wanted")


def with_colour(records: DataFrame, colours: DataFrame) -> DataFrame:
    """Each record under the colour of its key."""
    return records.join(colours, "key", "left").withColumn("key", F.coalesce("colour", F.lit("none")))


def colours_by_window(records: DataFrame, colours: DataFrame) -> DataFrame:
    """The records of each colour in each window."""
    return by_window(with_colour(records, colours))


def colours(records: DataFrame, colours: DataFrame) -> DataFrame:
    """Each record under its colour."""
    return rows(with_colour(records, colours))


def capitals(records: DataFrame) -> DataFrame:
    """The left side of a join: keys in capitals."""
    upper = F.upper("key") == F.col("key")
    return records.where(upper).select(F.lower("key").alias("key"), F.col("key").alias("mine"), "oo_event_time")


def small(records: DataFrame) -> DataFrame:
    """The right side."""
    return records.where(F.lower("key") == F.col("key")).select("key", F.col("key").alias("other"), "oo_event_time")


def pipeline(told: Story) -> Pipeline:
    """The declaration that a transcript is about."""
    return Pipeline(
        name=told.name,
        **_read(told),
        schema="number long, key string, at timestamp",
        record_id=("key", "number"),
        event_time="at",
        idle_after=told.idle_after,
        max_ahead=told.max_ahead,
        outputs=tuple(_output(declared, told) for declared in told.outputs),
    )


def _read(told: Story) -> dict[str, Any]:
    files = Files(max_files_a_batch=1)
    if not told.sources:
        return {"source": files}
    return {
        "sources": {name: Input(source=files, idle_after=told.source_idle) for name in told.sources},
        "id_space": "by_source",
    }


def _output(declared: Declared, told: Story) -> Output:
    if declared.result_of:
        return Output(name=declared.name, from_output=declared.result_of, sink=Delta())
    if declared.join:
        assert isinstance(declared.window, Joined)
        sides = {"left": f"{ME}:capitals", "right": f"{ME}:small"}
        join = Join(**sides, on="key", within=declared.window.within, kind=declared.join)
        return Output(
            name=declared.name,
            join=join,
            window=declared.window,
            watermark_delay=declared.watermark_delay,
            sink=Delta(),
        )
    if declared.made_from:
        assert isinstance(declared.window, Chained)
        return Output(
            name=declared.name,
            transform=f"{ME}:of_closed",
            from_output=declared.made_from,
            window=declared.window.own,
            watermark_delay=declared.watermark_delay,
            sink=Delta(),
        )
    if declared.silence:
        state = Stateful(
            processor=f"{PROCESSORS}:Silences",
            keys="key",
            schema="key string, records long",
            timers_within=declared.silence,
        )
        return Output(
            name=declared.name,
            stateful=state,
            window=declared.window,
            watermark_delay=declared.watermark_delay,
            sink=Delta(),
        )
    early = declared.panes != "on_time"
    keys = ("key",) if declared.window is None else ("window_start", "window_end", "key")
    several = any(other.result_of == declared.name for other in told.outputs)
    function = "good_and_odd" if several else "by_window" if declared.window else "totals" if early else "rows"
    if declared.looks_up:
        function = "colours_by_window" if declared.window else "colours"
    return Output(
        name=declared.name,
        transform=f"{ME}:{function}",
        window=declared.window,
        watermark_delay=declared.watermark_delay,
        panes=declared.panes,
        sink=Delta(write="upsert", keys=keys) if early else SINKS[declared.sink](declared.name),
        reject="tests.transcripts.pipelines:unwanted" if declared.rejects else "",
        lookups=Lookup(name="colours", table=Delta(path="colours"), keys="key") if declared.looks_up else (),
    )


PIPELINES = [pipeline(told) for folder in (FOLDER, FOLDER / "wrong") for told in story.all_in(folder)]
