"""Where the time of an exactly-once batch goes: the same batch, one step more each time, into Spark's `noop` sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from onlyonce.catalog import chunks as catalog
from onlyonce.commitlog.batches import Batches
from onlyonce.context import Query, RunContext
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.locations import Location
from onlyonce.engine import session
from onlyonce.receive import batch_files, events, exchange
from onlyonce.sources import line_reader
from onlyonce.sources.line_reader import Range
from onlyonce.sources.lines import LINE_COLUMN, Lines
from onlyonce.sources.values import fast_json
from tests.benchmarks.deliveries import SCHEMA
from tests.benchmarks.ways import Ours

Piece = Callable[[], None]


def of_batch(ours: Ours, files: list[Path], home: Path) -> dict[str, Piece]:
    """Each piece holds the work of those of its kind before it: what it adds is the difference."""
    context = ours.context()
    query = context.open_query("receive")
    events.make(ours.spark, context.events, context.pipeline)
    batch = _begun(context, query)
    paths = [str(file) for file in files]

    def bare() -> DataFrame:
        return ours.spark.read.schema(SCHEMA).json(paths)

    ranges = [
        Range(path, 0, 0, size, size) for path, size in zip(paths, (f.stat().st_size for f in files), strict=True)
    ]
    lines, partitions = Lines(ranges, None), batch.plan.partitions

    def read() -> DataFrame:
        return line_reader.read(ours.spark, ranges, _nothing, session.schema_of(LINE_COLUMN))

    def read_whole() -> exchange.Read:
        reader = fast_json.plain_record_reader(context.pipeline, batch.plan.ingestion_time, partitions)
        return exchange.read_records(ours.spark, lines, context.pipeline, batch.plan.ingestion_time, reader, home)

    def written() -> Sequence[Location]:
        return batch_files.write_batch(context, query, batch, lines, home / "pieces_ours")

    return {
        "bare: read": lambda: _nowhere(bare()),
        "bare: into Delta": lambda: _delta(bare(), home / "pieces_bare"),
        "ours: read": lambda: _nowhere(read()),
        "ours: in blocks": lambda: [read_whole()].clear(),
        "ours: judged and written": lambda: [*written()].clear(),
    }


def _begun(context: RunContext, query: Query) -> Batch:
    now = datetime.now(UTC)
    plan = Plan(
        incarnation=query.incarnation, batch_id=0, source_from=None, source_to={}, offsets_hash="pieces",
        partitions=context.partitions_of(0), ingestion_time=now, bucket=int(now.timestamp()) // catalog.BUCKET_SECONDS,
        settings={}, mode="exactly_once", declaration_hash=context.declaration_hash("receive"),
    )  # fmt: skip
    return Batches(query.database).begin(query.driver, context.instance, plan, None)


def _nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _delta(rows: DataFrame, path: Path) -> None:
    rows.write.format("delta").mode("append").save(str(path))


def _nothing(lines: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The lines are read, and none goes on."""
    for _ in lines:
        pass
    return iter(())
