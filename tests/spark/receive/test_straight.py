"""Without a catalog the task that reads plain lines writes them into the files of `events`; the others come by Spark's
parser."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from onlyonce.core.frontier import Frontier
from onlyonce.receive import batch_files
from onlyonce.receive.events import Stamp
from onlyonce.sources.line_reader import Range
from onlyonce.sources.lines import LINE_COLUMN, Lines
from onlyonce.sources.values import fast_json
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOW = datetime(2026, 6, 1, tzinfo=UTC)
PIPELINE = replace(SHOP, schema="id string, at timestamp", record_id=())
PLAIN = [f'{{"id":"{name}","at":"2026-03-01T12:00:00Z"}}' for name in "abc"]
LEFT = ['{"id":"\\n","at":"2026-03-01T12:00:00Z"}', '{"id":"late","at":"2036-03-01T12:00:00Z"}', "{"]


def in_files(folder: Path, lines: list[str]) -> Lines:
    """The lines in two files."""
    ranges = []
    for key, some in enumerate((lines[::2], lines[1::2])):
        path = folder / f"{key}.jsonl"
        path.write_text("".join(f"{line}\n" for line in some))
        size = path.stat().st_size
        ranges.append(Range(str(path), key, 0, size, size))
    return Lines(ranges, None)


def in_rows(spark: SparkSession, lines: list[str]) -> Lines:
    """The lines as a topic gives them."""
    return Lines([], spark.createDataFrame([(line, None, 7, at) for at, line in enumerate(lines)], LINE_COLUMN))


def kept(spark: SparkSession, folder: Path, lines: Lines, group: str) -> tuple[Counter[Any], int]:
    """What is in the files that are told, and how many jobs there were."""
    spark.sparkContext.setJobGroup(group, "")
    task = batch_files.without_catalog(Stamp(NOW, "shop/receive/1", 7, Frontier()), folder / "events")
    left = folder / "left"
    left.mkdir()
    reader = fast_json.plain_record_reader(PIPELINE, NOW, 1)
    assert reader is not None
    paths = batch_files.written_straight(spark, lines, PIPELINE, NOW, reader, left, task, batch_files.GIVES)
    assert sorted(paths) == sorted(map(str, (folder / "events").rglob("*.parquet")))
    found = [(Path(path).parent.name, row) for path in paths for row in parquet.ParquetFile(path).read().to_pylist()]
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    return Counter((kind, row["id"], row["oo_batch"], row["oo_raw"]) for kind, row in found), len(jobs)


@pytest.mark.parametrize("source", ["files", "topic"])
def test_plain_lines_need_one_job_and_the_others_are_not_forgotten(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    """Each line is in one file of its fate, however it was read."""
    usual: list[Any] = [("oo_kind=kept", name, 7, None) for name in "abc"]
    others: list[Any] = [("oo_kind=kept", "\n", 7, None), *(("oo_kind=invalid", None, 7, line) for line in LEFT[1:])]
    cases: list[Any] = [([], usual, [1]), (LEFT, usual + others, [2, 3])]
    for number, (more, expected, jobs) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        lines = in_files(folder, PLAIN + more) if source == "files" else in_rows(spark, PLAIN + more)
        found, used = kept(spark, folder, lines, f"{source} {number}")

        assert found == Counter(expected)
        assert used in jobs
