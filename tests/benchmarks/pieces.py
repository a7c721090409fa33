"""Where the time of an exactly-once batch goes: the same batch, one step more each time, into Spark's `noop` sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from onlyonce.catalog import chunks as catalog
from onlyonce.commitlog.batches import Batches
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.model.batch import Batch, Plan
from onlyonce.model.storage.location import Location
from onlyonce.receive import batch_files, events
from onlyonce.receive.blocks import exchange
from onlyonce.session import schemas
from onlyonce.sources.files import line_reader
from onlyonce.sources.files.line_reader import Range
from onlyonce.sources.lines import LINE, Lines
from onlyonce.sources.parse import plain_records
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
        return line_reader.read(ours.spark, ranges, _nothing, schemas.of(LINE))

    def read_whole() -> exchange.Read:
        reader = plain_records.reader(context.pipeline, batch.plan.system_time, partitions)
        return exchange.read(ours.spark, lines, context.pipeline, batch.plan.system_time, reader, home)

    def written() -> Sequence[Location]:
        return batch_files.written(context, query, batch, lines, home / "pieces_ours")

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
        lineage=query.lineage, batch_id=0, source_from=None, source_to={}, offsets_hash="pieces",
        partitions=context.partitions_of(0), system_time=now, bucket=int(now.timestamp()) // catalog.BUCKET_SECONDS,
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
