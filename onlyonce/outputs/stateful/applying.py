"""Applies the processor of an output with state of its own.

As a stream it is Spark's own operator, as a batch each key is played by itself.

Timers go by Spark's watermark, and that is the platform's (`windowing`): control rows alone carry it. So no record in
time is behind a timer that has fired. Spark gives a batch that is tried again the state and the timers of the batch
before. Its own batch does not fire timers, so a batch is not Spark's.

Who calls it: `results`. Errors: Refused for a processor or a key that is not there, and for a state store that can't
hold such a state.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce.declare import loading as declarations
from onlyonce.declare.outputs import state_schema
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_SYSTEM_TIME
from onlyonce.model.windows import micros
from onlyonce.outputs.stateful.alone import Alone, spark_tester
from onlyonce.outputs.stateful.ordered import PLACE, Ordered
from onlyonce.session.names import quoted
from onlyonce.spark.state import PROVIDER, PROVIDERS

NOTHING = "nothing was written"


def applied(pipeline: Pipeline, output: Output, rows: DataFrame) -> DataFrame:
    """The rows that the processor gives for these rows of `events`. Raises Refused."""
    declared = output.stateful
    assert declared is not None
    processor = state_schema.made(declared.processor, f"output {output.name}", declarations.transform(output))
    columns = [*pipeline.columns(), OO_EVENT_TIME, OO_SYSTEM_TIME]
    keyed = rows.select(*map(quoted, [*columns, *PLACE])).groupBy(*[F.col(quoted(key)) for key in declared.keys])
    if not rows.isStreaming:
        spark_tester()  # refused here, and not in a task
        alone = Alone(processor, declared.columns(), micros(declared.timers_within))
        return keyed.applyInPandas(lambda key, records: alone.rows(key, records), declared.schema)
    _refuse_other_store(output, rows)
    return keyed.transformWithStateInPandas(Ordered(processor), declared.schema, "append", "eventTime")


def _refuse_other_store(output: Output, rows: DataFrame) -> None:
    if rows.sparkSession.conf.get(PROVIDER, "") == PROVIDERS["rocksdb"]:
        return
    raise Refused(
        f"output {output.name}: Spark keeps the state of a processor in RocksDB only, and the state store is set "
        "to another",
        data=NOTHING,
        hint="ONLYONCE_STATE=rocksdb, which is the default",
    )
