"""Files with a pane for each firing, by each trigger: two are named by a function, one has windows that lose all rows."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce import AfterRecords, AfterTime, Files, FileSink, Fixed, Output, Pipeline
from onlyonce.core.file_names import FileWindow

HERE = "tests.support.file_panes"
MINUTE = timedelta(minutes=1)
SINK = FileSink(shards=2)
NAMED = FileSink(shards=2, names=f"{HERE}:named")
WINDOW = {"window": Fixed(5 * MINUTE), "watermark_delay": MINUTE}


def per_shop(sales: DataFrame) -> DataFrame:
    """Sales of each shop in each window."""
    return sales.groupBy("oo_window", "shop").agg(F.count("*").alias("sales"))


def of_all(shops: DataFrame) -> DataFrame:
    """Sales of each window, from the rows of `per_shop`."""
    return shops.groupBy("oo_window").agg(F.sum("sales").alias("sales"))


def few(sales: DataFrame) -> DataFrame:
    """The windows with few sales: a window leaves this result once it has three."""
    return sales.groupBy("oo_window").agg(F.count("*").alias("sales")).filter("sales < 3")


def named(window: FileWindow, pane: int, shard: int, shards: int) -> str:
    """The name of a file of the outputs `early` and `made`."""
    return f"hour={window.start:%Y-%m-%dT%H}/{window.start:%M}-{window.end:%M}-{pane}-{shard}.jsonl"


def output(name: str, panes: object, transform: str = "per_shop", sink: FileSink = SINK) -> Output:
    """An output of files with these panes."""
    return Output(name=name, transform=f"{HERE}:{transform}", panes=panes, sink=sink, **WINDOW)  # type: ignore[arg-type]


def shop(*outputs: Output) -> Pipeline:
    """The shop with these outputs: each file is a batch."""
    return Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp",
        record_id=("id",),
        event_time="at",
        outputs=outputs,
    )


PIPELINES = [
    shop(
        output("on_time", "on_time"),
        Output(name="made", transform=f"{HERE}:of_all", from_output="on_time", sink=NAMED),
        output("early", "early", sink=NAMED),
        output("after_records", AfterRecords(2)),
        output("after_time", AfterTime(timedelta(microseconds=1))),
        output("few", "early", "few"),
    )
]
