"""The file sink: tasks write each pane's shards under temporary names, and record them in their units' transactions.

A row's shard is a hash of the row, or of the declared keys, so a replay cuts the rows the same way. The number of a
shard tells its partition. `onlyonce.sinks.files.finalize` makes the names final, once the batch is committed.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from onlyonce.commitlog import units
from onlyonce.commitlog.sinks.files import Files
from onlyonce.commitlog.units import Units
from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.database.transactions import Scope
from onlyonce.declare.pipeline import FileSink, Output, target
from onlyonce.failpoints import passing
from onlyonce.model.batch import Batch, Plan, to_micros
from onlyonce.model.errors import Refused
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.stored_names import OO_WINDOW, WINDOW_END, WINDOW_START
from onlyonce.model.units import Content, UnitId
from onlyonce.session import encoding, worker
from onlyonce.session.names import quoted
from onlyonce.sinks import content_hash
from onlyonce.sinks.content_hash import HASH
from onlyonce.sinks.files import files_unit, formats, stores
from onlyonce.sinks.files.files_unit import END, SHARD, START
from onlyonce.sinks.held_values import Lengths
from onlyonce.sinks.postgres.pinned import PARTITION, check_replay, commit_nothing, pin

LINE = "oo_line"
WINDOW = (WINDOW_START, WINDOW_END)


class FilesWriter:
    """Writes one output to its files."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, FileSink)
        self._context, self._query, self._output, self._sink = context, query, output, output.sink
        self.place = self._sink.place(target(context.pipeline, output), context.target_suffix())

    def prepare(self, schema: StructType) -> None:
        """See that the format can hold the columns and that there is such a writer. Raises Refused."""
        if missing := [key for key in self._sink.keys if key not in schema.names]:
            raise Refused(
                f"output {self._output.name}: keys {missing} are not in {schema.names}",
                hint="the keys of a FileSink decide the shard of a row",
            )
        formats.of(self._sink.format)
        _, arrow = self._body(schema)
        if self._sink.format == "avro":
            for field in arrow:
                formats.avro_type(field.name, field.type)

    def lengths(self) -> Lengths:
        """None: a value may be of any length."""
        return {}

    def write(self, batch: Batch, rows: DataFrame, content_of_rows: Content) -> int:
        """One task and one unit for each pinned partition. At least once too: then the first attempt's files stay."""
        windows = _windows(rows) if content_of_rows.rows else set()
        self._commit(batch, rows, content_of_rows, windows, () if self._sink.skip_empty else windows)
        return 0

    def landed(self, plan: Plan) -> bool:
        """What is written is in units, which the log counts itself."""
        return False

    def replace(self, batch: Batch, rows: DataFrame, content_of_rows: Content, span: Span) -> None:
        """A new pane for each window, and an empty one for those that had files and have no rows any more."""
        windows = _windows(rows) if content_of_rows.rows else set()
        known = Files(self._query.database).windows_in(self._context.instance, self._output.name, span)
        gone = {(to_micros(start), to_micros(end)) for start, end in known} - windows
        self._commit(batch, rows, content_of_rows, windows | gone, gone if self._sink.skip_empty else windows | gone)

    def end(self, scope: Scope, batch: Batch) -> None:
        """All units are there; their files become panes of their windows."""
        plan = batch.plan
        there = Units(scope).of_batch(plan.lineage, plan.batch_id)
        units.expect(there, self._output.name, plan.partitions, plan.lineage, plan.batch_id)
        Files(scope).give_panes(plan.lineage, plan.batch_id, self._output.name)

    def _commit(
        self,
        batch: Batch,
        rows: DataFrame,
        content_of_rows: Content,
        windows: set[files_unit.Window],
        whole: set[files_unit.Window] | tuple[()],
    ) -> None:
        """`whole` are the windows that have all their shards, also those without rows."""
        plan, schema, database, driver = batch.plan, rows.schema, self._query.database, self._query.driver
        passing("files-before-units")
        if not windows:
            commit_nothing(database, driver.epoch, batch, self._output.name, content_of_rows)
            passing("files-after-units")
            return
        shard = F.pmod(self._key(schema), F.lit(self._sink.shards))
        pinned = pin(rows, schema, F.pmod(shard, F.lit(plan.partitions)).cast("int"), plan.partitions)
        if batch.replayed and not batch.at_least_once:
            check_replay(database, plan, self._output.name, pinned, schema)
        columns, arrow = self._body(schema)
        floats = content_hash.floats(schema)
        beside = [column.alias(name) for name, column in floats.items() if name not in arrow.names]
        placed = pinned.select(*columns, *beside, *_place(schema, shard), HASH, PARTITION)
        placed = placed if content_of_rows.rows else _no_rows(placed, plan.partitions)
        work = files_unit.Work(
            database,
            UnitId(plan.lineage, plan.batch_id, self._output.name, 0),
            driver.number,
            driver.epoch,
            self._sink,
            self.place,
            stores.store_of(self.place),
            arrow,
            tuple(floats),
            plan.partitions,
            tuple(sorted(whole, key=str)),
            not batch.at_least_once,
        )
        rows = placed.sortWithinPartitions(START, END, SHARD, HASH)
        worker.mapped(rows, files_unit.write_unit(work), files_unit.RESULT).collect()
        passing("files-after-units")

    def _key(self, schema: StructType) -> Column:
        keys = [F.col(quoted(key)) for key in self._sink.keys]
        return F.xxhash64(*keys) if keys else content_hash.row_hash(schema)

    def _body(self, schema: StructType) -> tuple[list[Column], pa.Schema]:
        """The columns of the files, and how Arrow has them."""
        if self._sink.format == "jsonl":
            return [encoding.json_object(schema).alias(LINE)], pa.schema([(LINE, pa.string())])
        if self._sink.format == "text":
            return [F.col(quoted(self._text_column(schema))).alias(LINE)], pa.schema([(LINE, pa.string())])
        fields = schema.fields
        if self._sink.format == "csv":
            strings = [encoding.is_nested(f.dataType) or isinstance(f.dataType, BinaryType) for f in fields]
            stored = [
                StructField(f.name, StringType()) if string else f for f, string in zip(fields, strings, strict=True)
            ]
            return [encoding.in_csv(f) for f in fields], to_arrow_schema(StructType(stored), timezone="UTC")
        return [F.col(quoted(f.name)) for f in fields], to_arrow_schema(schema, timezone="UTC")

    def _text_column(self, schema: StructType) -> str:
        lines = [field for field in schema.fields if field.name not in WINDOW]
        if len(lines) != 1 or not isinstance(lines[0].dataType, StringType):
            raise Refused(
                f"output {self._output.name}: format='text' writes one column of text, but there is "
                f"{', '.join(field.simpleString() for field in lines)}",
                data="nothing was written",
                hint=f"let the transform give one text beside {OO_WINDOW}, or choose jsonl or csv",
            )
        return lines[0].name


def _windows(rows: DataFrame) -> set[files_unit.Window]:
    if WINDOW[0] not in rows.columns:
        return {(None, None)}
    found = rows.select(*[F.unix_micros(name).alias(name) for name in WINDOW]).distinct().collect()
    return {(row[0], row[1]) for row in found}


def _no_rows(rows: DataFrame, partitions: int) -> DataFrame:
    """Return an empty frame with these columns that has a task for each partition.

    Spark runs no task for rows that it knows to be none.
    """
    none = rows.sparkSession.range(0, partitions, 1, partitions).filter("id < 0")
    return none.select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in rows.schema.fields])


def _place(schema: StructType, shard: Column) -> list[Column]:
    times = [F.unix_micros(name) if name in schema.names else F.lit(None).cast("long") for name in WINDOW]
    return [times[0].alias(START), times[1].alias(END), shard.cast("int").alias(SHARD)]
