"""The pipeline user_counts with sharded files: counts of each user, of all users, and the records themselves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from pyspark.sql import DataFrame

from jobs.pipelines import MINUTE, USER_COUNTS
from onlyonce.api.pipeline import Files, FileSink, Output

WATERMARK_DELAY = timedelta(minutes=1)


def records(events: DataFrame) -> DataFrame:
    """Each event as it is, with its window."""
    return events.select("oo_window", "event_id", "user")


PIPELINES = [
    replace(
        USER_COUNTS,
        source=Files(max_files_a_batch=1),
        outputs=(
            Output(
                name="per_user", transform="jobs.transforms:counts_per_user", window=MINUTE, watermark_delay=WATERMARK_DELAY,
                sink=FileSink(),
            ),
            Output(
                name="of_all", transform="jobs.transforms:count_of_all", from_output="per_user",
                sink=FileSink(format="parquet", shards=2),
            ),
            Output(
                name="records", transform="tests.support.file_outputs:records", window=MINUTE, watermark_delay=WATERMARK_DELAY,
                sink=FileSink(format="csv", shards=3, keys=("user",)),
            ),
        ),
    )
]  # fmt: skip
