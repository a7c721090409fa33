"""What has arrived, as rows that a test can look at."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import Row, SparkSession

from onlyonce.api.pipeline import Pipeline
from onlyonce.receive import exchange
from onlyonce.sources.lines import Lines


def records_of(spark: SparkSession, lines: Lines, pipeline: Pipeline, ingestion_time: datetime) -> list[Row]:
    """The records of some lines, whatever way each of them goes."""
    with TemporaryDirectory() as folder:
        return exchange.rows(spark, lines, pipeline, ingestion_time, Path(folder)).collect()
