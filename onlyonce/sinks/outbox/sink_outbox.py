"""Write an output's rows to the outbox, for the sinks Webhook, BigQuery, Kafka and the user's own.

The outbox is a table in the commit log's database, with one JSON payload for each row to be sent. An output writes it
as a Postgres sink writes a user's table (`postgres_unit`): rows and unit are committed in one transaction.

- Committed rows are sent by `onlyonce.sinks.outbox.deliver`. They never change, and a replay of the batch writes none.
- The rows of a backfill are held until it has ended (`commitlog.backfills`). Each attempt at a backfill is a batch of
  its own, and the rows of a killed attempt are never sent.
- The rows of one key are sent in order: all rows of a key in a batch are in one unit, sorted (`_in_order`), and one
  batch is written after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce import environment
from onlyonce.api.pipeline import BigQuery, BigQueryStream, KafkaSink, Output, Pipeline, Sent, Webhook
from onlyonce.commitlog import outbox, units
from onlyonce.commitlog.outbox import OutboxRows
from onlyonce.commitlog.units import Units
from onlyonce.context import Query, RunContext
from onlyonce.core import erasure, stored_names
from onlyonce.core.backfill import Span
from onlyonce.core.batch import Batch, Plan
from onlyonce.core.column_types import Types
from onlyonce.core.errors import InvariantBroken, Refused
from onlyonce.core.stored_names import OO_WINDOW, WINDOW_END, WINDOW_START
from onlyonce.core.units import Content, UnitId
from onlyonce.database.connect import Database, Scope
from onlyonce.engine import encoding
from onlyonce.engine.session import quoted
from onlyonce.sinks.base import content, frames
from onlyonce.sinks.base.content import HASH
from onlyonce.sinks.base.held_values import Lengths
from onlyonce.sinks.base.pinned import PARTITION
from onlyonce.sinks.base.stored import Stored
from onlyonce.sinks.outbox import send_kafka
from onlyonce.sinks.postgres import postgres_unit
from onlyonce.sinks.postgres.postgres_unit import PinnedUnits

if TYPE_CHECKING:
    import pandas as pd


class OutboxWriter:
    """Writes one output to the outbox."""

    def __init__(self, context: RunContext, query: Query, output: Output) -> None:
        assert isinstance(output.sink, Sent)
        self._instance, self._output, self._sink = context.instance, output, output.sink
        self._incarnation, self._epoch = query.incarnation, query.driver.epoch
        self._database = query.driver.session(context.database)
        self._units = PinnedUnits(self._database, output.name, self._epoch)
        self._origin = outbox.Origin("", "")

    def prepare(self, schema: StructType) -> None:
        """Raise Refused if the rows lack a column of `keys`, `order_by` or `headers`.

        Also read the values that all rows of this incarnation get in the outbox: `checkpoint_id`, the id of the
        incarnation, and `state`, which is 'waiting', or 'held' for a backfill.
        """
        named = (
            *self._sink.keys,
            *self._order_by(),
            *(self._sink.headers if isinstance(self._sink, KafkaSink) else ()),
        )
        if missing := [column for column in named if column not in schema.names]:
            raise Refused(
                f"output {self._output.name}: {', '.join(missing)} in keys, order_by or headers is not among its "
                "columns",
                data="nothing was written or sent",
                hint=f"it has: {', '.join(schema.names)} ({OO_WINDOW} gives window_start and window_end)",
            )
        self._origin = OutboxRows(self._database).origin(self._incarnation)

    def lengths(self) -> Lengths:
        """Return no columns: a value may be of any length."""
        return {}

    def write(self, batch: Batch, rows: DataFrame, content_of_rows: Content) -> int:
        """Write the rows, in one task and one transaction for each pinned partition. Return 0.

        Rows with the same keys are in the same partition. Rows of an output without keys are spread by their hash. The
        hash and the floats of a row are counted for its unit and not written (`content.carried`, HASH).

        At-least-once batches are refused earlier.
        """
        if content_of_rows.rows == 0:
            self._units.commit_nothing(batch, content_of_rows)
            return 0
        schema, keys = rows.schema, self._sink.keys
        pinned = self._units.pinned(batch, rows, F.xxhash64(*map(_column, keys)) if keys else content.row_hash(schema))
        unit = UnitId(batch.plan.incarnation, batch.plan.batch_id, self._output.name, 0)
        exported = self._in_order(pinned).select(
            F.lit(self._instance).alias("instance"),
            F.lit(self._output.name).alias("output"),
            F.concat(F.lit(str(unit).removesuffix("0")), F.col(PARTITION).cast("string")).alias("unit"),
            _number().alias("seq"),
            F.lit(self._origin.checkpoint_id).alias("checkpoint_id"),
            F.lit(self._origin.state).alias("state"),
            self._key(schema).alias("key"),
            encoding.json_object(schema).alias("payload"),
            *content.carried(schema),
            HASH,
            PARTITION,
        )
        beside = tuple(content.names_of(exported.columns).items())
        work = postgres_unit.Work(
            self._database, unit, self._epoch, stored_names.PRIVATE_SCHEMA, "outbox", "append", (), (), beside=beside
        )
        self._units.commit(exported, work)
        return 0

    def landed(self, plan: Plan) -> bool:
        """Return False: no rows are ever written without a unit."""
        return False

    def replace(self, batch: Batch, rows: DataFrame, content_of_rows: Content, span: Span) -> None:
        """Raise InvariantBroken: what was sent can't be withdrawn.

        This is never called, since `what_to_do` refuses such a backfill, skips the sink, or lets it write new rows.
        """
        raise InvariantBroken(f"output {self._output.name}: a backfill wants to replace what was sent")

    def end(self, scope: Scope, batch: Batch) -> None:
        """Check that all partitions have their unit."""
        plan = batch.plan
        logged = Units(scope).of_batch(plan.incarnation, plan.batch_id)
        units.expect(logged, self._output.name, plan.partitions, plan.incarnation, plan.batch_id)

    def _order_by(self) -> tuple[str, ...]:
        return self._sink.order_by if isinstance(self._sink, Webhook) else ()

    def _in_order(self, pinned: DataFrame) -> DataFrame:
        """Sort each partition by key, window, declared order and hash.

        The hash makes the order total, up to rows that differ only in floats, which it leaves out. So each attempt
        gives every other row the same number.
        """
        window = [name for name in (WINDOW_START, WINDOW_END) if name in pinned.columns]
        order = (*self._sink.keys, *window, *self._order_by(), HASH)
        return pinned.sortWithinPartitions(*map(_column, dict.fromkeys(order)))

    def _key(self, schema: StructType) -> Column:
        return encoding.json_object(schema, self._sink.keys) if self._sink.keys else F.lit(None).cast("string")


def _number() -> Column:
    """Return the position of a row in its partition, which Spark keeps in the lower 33 bits."""
    return F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))


def _column(name: str) -> Column:
    return F.col(quoted(name))


# For the receipt of an erasure: until when an external target keeps rows that were sent to it. onlyonce does not search
# the target.


@dataclass(frozen=True)
class StoredOutside(Stored):
    """A target that an output has sent rows to."""

    sink: Sent

    def stays(self) -> str:
        """Return until when the target keeps the rows, as a sentence for the receipt."""
        return f"what was sent there stays: {self._until()}"

    def _until(self) -> str:
        if isinstance(self.sink, KafkaSink):
            settings = send_kafka.settings_of(environment.variable(self.sink.connection) or "")
            return (
                f"messages of the topic {self.sink.topic}, including those of transactions that were undone, are gone "
                f"{erasure.lasting_in_topic(send_kafka.configuration(settings, self.sink.topic))}"
            )
        if isinstance(self.sink, BigQuery | BigQueryStream):
            return (
                "delete these rows in the table; BigQuery's time travel and fail-safe keep them for at most 14 "
                "days more"
            )
        return "ask the owner of the target to delete it"


# What `targets` asks of each kind.


writer = OutboxWriter


def stored(database: Database, sink: Sent, where: str) -> Stored:
    """Return what the target stores."""
    return StoredOutside(sink)


def types_there(pipeline: Pipeline, output: Output, schema: StructType) -> Types | None:
    """Return None: there is no table whose types could differ."""
    return None


def frame(pipeline: Pipeline, output: Output, instance: str) -> pd.DataFrame:
    """Raise Refused: the rows are outside."""
    raise Refused(
        f"output {output.name} is sent ({output.sink.kind}), so its rows are where they were sent to",
        data=frames.NO_ROWS,
        hint="onlyonce outbox shows what waits and what is a dead letter",
    )
