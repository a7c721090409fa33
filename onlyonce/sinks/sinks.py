"""The interface of a sink, and the choice of an output's sink."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from onlyonce.context.query import Query
from onlyonce.context.run_context import RunContext
from onlyonce.database.transactions import Scope
from onlyonce.declare.pipeline import Delta, FileSink, Iceberg, MySQL, Output, Sent
from onlyonce.model.batch import Batch, Plan
from onlyonce.model.outputs.backfill import Span
from onlyonce.model.units import Content
from onlyonce.sinks.held_values import Lengths


class SinkWriter(Protocol):
    """One output's sink under one driver. Each method may be called again for the same batch."""

    def prepare(self, schema: StructType) -> None:
        """Before the first batch: make the target if it is missing, see that it fits. Raises Refused."""

    def lengths(self) -> Lengths:
        """Return the columns of the table that take values up to a length, after `prepare`."""

    def write(self, batch: Batch, rows: DataFrame, content: Content) -> int:
        """Commit the rows of a batch as units. Rows that are there already are compared, not written again.

        Of an at-least-once batch they are written plainly; gives how many are there once more than they should be.
        """

    def landed(self, plan: Plan) -> bool:
        """Whether an attempt at an at-least-once batch has written anything."""

    def replace(self, batch: Batch, rows: DataFrame, content: Content, span: Span) -> None:
        """Commit the rows in place of those whose windows start in the span, as one: a reader sees all or nothing."""

    def end(self, scope: Scope, batch: Batch) -> None:
        """In the transaction that ends the batch: see that its units are in the platform's log."""


@runtime_checkable
class WritesInDriver(Protocol):
    """A sink whose writer gets the rows of a small batch from the driver, and those of a large one from Spark's tasks:
    the same rows, and the same function."""

    def exported(self, batch: Batch, rows: DataFrame) -> DataFrame | None:
        """Return the rows as the writer gets them, with their HASH; None if they are for Spark's tasks."""

    def write(self, batch: Batch, rows: DataFrame | pa.Table, content: Content) -> int:
        """Write as every sink does. `rows` are a frame that the function gave, or the rows of `exported` in memory."""


def writer_for(context: RunContext, query: Query, output: Output) -> SinkWriter:
    """The writer of an output's declared sink."""
    from onlyonce.sinks.delta.sink_delta import DeltaWriter
    from onlyonce.sinks.files.sink_files import FilesWriter
    from onlyonce.sinks.mysql.sink_mysql import MySQLWriter
    from onlyonce.sinks.outbox.sink_outbox import OutboxWriter
    from onlyonce.sinks.postgres.sink_postgres import PostgresWriter

    if isinstance(output.sink, Sent):
        return OutboxWriter(context, query, output)
    if isinstance(output.sink, FileSink):
        return FilesWriter(context, query, output)
    if isinstance(output.sink, MySQL):
        return MySQLWriter(context, query, output)
    if isinstance(output.sink, Iceberg):
        return _iceberg(context, query, output)
    return (DeltaWriter if isinstance(output.sink, Delta) else PostgresWriter)(context, query, output)


def _iceberg(context: RunContext, query: Query, output: Output) -> SinkWriter:
    from onlyonce.sinks.iceberg.sink_iceberg import IcebergWriter  # with it comes pyiceberg, an extra

    return IcebergWriter(context, query, output)
