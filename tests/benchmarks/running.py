"""The pipeline of `test_running`, the small files that it is given, and what there is after some of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce import settings
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed
from tests.support.platform import Platform

HOUR = timedelta(hours=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
NEW = 19
"""New records of a file, which is a minute of event time; it begins with the last one of the file before."""


def per_shop(rows: DataFrame) -> DataFrame:
    """Count and sum of each shop in each hour."""
    return rows.groupBy("oo_window", "shop").agg(F.count(F.lit(1)).alias("rows"), F.sum("cents").alias("cents"))


def as_they_are(rows: DataFrame) -> DataFrame:
    """Each record."""
    return rows.select("id", "shop", "at", "cents")


PIPELINES = [
    Pipeline(
        name="running", source=Files(max_files_a_batch=1), schema="id string, shop string, at timestamp, cents long",
        record_id=("id",), event_time="at", max_ahead=timedelta(days=36500),
        outputs=(
            Output(name="all", transform="tests.benchmarks.running:as_they_are", sink=Delta()),
            Output(
                name="per_shop", transform="tests.benchmarks.running:per_shop", window=Fixed(HOUR), watermark_delay=HOUR,
                sink=Postgres(table="running.per_shop"),
            ),
        ),
    )
]  # fmt: skip


def put(platform: Platform, first: int, count: int) -> None:
    """Files for so many batches of receive."""
    for number in range(first, first + count):
        at = (START + timedelta(minutes=number)).isoformat()
        ids = range(max(number * NEW - 1, 0), (number + 1) * NEW)
        records = [{"id": str(n), "shop": f"shop {n % 3}", "at": at, "cents": n} for n in ids]
        platform.put("running", f"{number:08d}.jsonl", records)


@dataclass(frozen=True)
class Kept:
    """What a round of batches has left: numbers of files and bytes."""

    events_files: int
    events_log_bytes: int
    checkpoint_files: int
    checkpoint_bytes: int
    manifest_bytes: int
    state_bytes: int
    database_bytes: int
    driver_mb: float

    @classmethod
    def of(cls, platform: Platform) -> Kept:
        """What there is now."""
        data = settings.data_dir("running")
        checkpoints = _files(data / "checkpoints")
        plain = [path for path in checkpoints if "state" not in path.parts]
        return cls(
            events_files=len(DeltaTable(str(data / "events")).file_uris()),
            events_log_bytes=_bytes(_files(data / "events" / "_delta_log")),
            checkpoint_files=len(plain), checkpoint_bytes=_bytes(plain), manifest_bytes=_bytes(_files(data / "files")),
            state_bytes=_bytes([path for path in checkpoints if "state" in path.parts]),
            database_bytes=int(platform.sql("SELECT pg_database_size(current_database()) AS n")["n"][0]),
            driver_mb=round(_memory() / 2**20),
        )  # fmt: skip


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _bytes(files: list[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _memory() -> int:
    """Of this process and its JVM: the drivers of a test share them."""
    me = psutil.Process()
    return int(sum(one.memory_info().rss for one in (me, *me.children(recursive=True)) if one.is_running()))


def expected(files: int) -> list[tuple[str, int, int]]:
    """The batch oracle: shop, rows and sum over the distinct records of so many files."""
    ids = range(files * NEW)
    return [(f"shop {shop}", len(ids[shop::3]), sum(ids[shop::3])) for shop in range(3)]
