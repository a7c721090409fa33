"""Takes Debezium's envelopes apart as an expression over a column of lines (`onlyonce/model/values/envelopes.py`).

No parser of the JVM reads them.

An envelope in Avro comes as JSON (`formats.avro_envelopes`), so what a change is does not depend on how it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from onlyonce.declare.sources.debezium import Debezium
from onlyonce.model.values import envelopes
from onlyonce.model.values.envelopes import Change
from onlyonce.sources.parse.parse import BESIDE
from onlyonce.sources.parse.parse_lines import NOT_UTF8

READ = "oo_change"
INSTANT = pa.timestamp("us", "UTC")
KINDS = {
    "reason": StringType(),
    "row": StringType(),
    "op": StringType(),
    "position": StringType(),
    "time": TimestampType(),
}


def rows(messages: DataFrame, declared: Debezium, columns: Collection[str], *, keyed: bool) -> DataFrame:
    """Return lines with the row of each envelope, and the envelope's columns next to them.

    A refused message keeps all of its text.

    `columns`: the declared ones. `keyed`: columns come from the message's key, so a delete needs no row before it.
    """
    of_envelope = {declared.op: "op", declared.position: "position", declared.time: "time"}
    of_row = [name for name in columns if name not in of_envelope]
    read = messages.withColumn(READ, _reader(of_row, declared.unavailable, keyed)(F.col("oo_line")))
    refused = F.coalesce("oo_refused", F.col(f"{READ}.reason"))
    line = F.when(refused.isNotNull(), F.col("oo_line")).otherwise(F.col(f"{READ}.row"))
    return read.select(
        line.alias("oo_line"),
        refused.alias("oo_refused"),
        *[name for name in messages.columns if name not in ("oo_line", "oo_refused")],
        *[F.col(f"{READ}.{part}").alias(f"{BESIDE}{name}") for name, part in of_envelope.items()],
    )


def _reader(columns: Collection[str], placeholder: str, keyed: bool) -> Callable[[Column], Column]:
    def read(lines: pa.Array) -> pa.Array:
        of_line = envelopes.reader(columns, placeholder, keyed=keyed)
        changes = [_change(line, of_line) for line in lines.cast(pa.binary()).to_pylist()]
        kinds = [INSTANT if name == "time" else pa.string() for name in KINDS]
        parts = (
            [pa.array(part, kind) for part, kind in zip(zip(*changes, strict=True), kinds, strict=True)]
            if changes
            else [pa.nulls(0, kind) for kind in kinds]
        )
        return pa.StructArray.from_arrays(parts, names=list(KINDS))

    return arrow_udf(read, StructType([StructField(name, kind) for name, kind in KINDS.items()]))


def _change(line: bytes | None, read: Callable[[str], Change]) -> Change:
    if line is None:
        return Change(None)
    try:
        return read(line.decode())
    except UnicodeDecodeError:
        return Change(NOT_UTF8)
