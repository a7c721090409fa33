"""Takes Debezium's envelope apart: the row as a line of JSON, and beside it what happened, its place in the database's log, and when.

The row is written as JSON again, with numbers of up to 38 digits as they were. Then it is read like any other line (`onlyonce.sources.parse`).
An envelope in Avro comes as JSON too (`formats.avro_envelopes`), so what a change is does not depend on how it was written.

| database       | place                                                                | why that is the order of a row's changes       |
|----------------|----------------------------------------------------------------------|------------------------------------------------|
| PostgreSQL     | source.lsn, of the change itself, in 20 digits                       | a row is locked until its transaction ends      |
| MySQL, MariaDB | number of source.file (10), source.pos (20), source.row (10 digits)  | the binlog has transactions one after the other |

A digit behind it is 0 for a row of the snapshot and 1 for a change: at one place the snapshot comes first. All texts of a database have one length.

Who calls it: `ranges`. Errors: none of a message; one that is no change of a row has a reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onlyonce.declare.sources.debezium import CONNECTORS, Debezium
from onlyonce.sources.parse.parse import BESIDE

READ = "oo_change"
"""The column with the envelope, as a variant."""
NO_TEXT = "the message is not UTF-8; its bytes are in hexadecimal"
NO_ENVELOPE = "the message is no envelope of Debezium, which has op and source"
NO_ROW = {
    "t": "the table was truncated: which rows that deletes the change does not say",
    "m": "a message in the log of the database, and no change of a row",
}
CHANGES = ("c", "u", "d", "r")


@dataclass(frozen=True)
class Change:
    """What is made of a message: the row in JSON, why there is none, and the columns of the envelope."""

    row: Column
    reason: Column
    beside: dict[str, Column]


def rows(messages: DataFrame, declared: Debezium, *, keyed: bool) -> DataFrame:
    """Lines with an envelope each → lines with its row, and the columns of the envelope beside. What is refused stays as it is, with all of it.

    `keyed`: columns come from the message's key. Then a delete needs no row before it: the key says which row went.
    """
    changed = _change(F.col("oo_line"), declared, keyed=keyed)
    refused = F.coalesce("oo_refused", changed.reason)
    line = F.when(refused.isNotNull(), F.col("oo_line")).otherwise(changed.row)
    return _read(messages).select(
        line.alias("oo_line"), refused.alias("oo_refused"), *[name for name in messages.columns if name not in ("oo_line", "oo_refused")],
        *[column.alias(f"{BESIDE}{name}") for name, column in changed.beside.items()],
    )  # fmt: skip


def _read(messages: DataFrame) -> DataFrame:
    """Messages with READ, so that each is parsed once for all that is taken of it."""
    parsed = messages.withColumn(READ, F.try_parse_json("oo_line"))
    # With the schema in it the envelope is its payload.
    return parsed.withColumn(READ, F.coalesce(F.try_variant_get(READ, "$.payload", "variant"), F.col(READ)))


def _change(value: Column, declared: Debezium, *, keyed: bool) -> Change:
    """The parts of the envelope in READ; `value` is the message's text."""
    before = F.coalesce(_row("before"), F.lit("{}")) if keyed else _row("before")
    op, row = _of("op", "string"), F.when(_of("op", "string") == "d", before).otherwise(_row("after"))
    place = _place()
    position = F.concat(place, F.when(op == "r", F.lit("0")).otherwise(F.lit("1")))
    time = F.timestamp_millis(F.coalesce(_of("source.ts_ms", "bigint"), _of("ts_ms", "bigint")))
    return Change(row, _reason(value, op, row, place), {declared.op: op, declared.position: position, declared.time: time})


def _of(path: str, kind: str) -> Column:
    return F.try_variant_get(READ, f"$.{path}", kind)


def _row(name: str) -> Column:
    found = _of(name, "variant")
    return F.when(~F.is_variant_null(found), F.to_json(found))


def _reason(value: Column, op: Column, row: Column, place: Column) -> Column:
    connector = F.coalesce(F.left(_of("source.connector", "string"), F.lit(40)), F.lit("null"))
    return (
        F.when(~F.is_valid_utf8(value), F.lit(NO_TEXT))
        .when(op.isNull() | _of("source", "variant").isNull(), F.lit(NO_ENVELOPE))
        .when(op == "t", F.lit(NO_ROW["t"]))
        .when(op == "m", F.lit(NO_ROW["m"]))
        .when(~op.isin(*CHANGES), F.concat(F.lit("the op of the change is not one of c, u, d and r: "), F.left(op, F.lit(20))))
        .when(~connector.isin(*CONNECTORS), F.concat(F.lit("the order of changes by this connector is not known: "), connector))
        .when(place.isNull(), F.lit("the change has no place in the log of the database: source has no lsn, or no file and pos"))
        .when(row.isNull() & (op == "d"), F.lit("the delete does not say which row: the table needs a primary key, or REPLICA IDENTITY FULL; or declare the message's key"))
        .when(row.isNull(), F.lit("the change has no row after it"))
    )


def _place() -> Column:
    file = F.nullif(F.regexp_extract(_of("source.file", "string"), r"\.([0-9]{1,10})$", 1), F.lit(""))
    of_mysql = F.concat(_digits(file, 10), _digits(_of("source.pos", "bigint"), 20), _digits(F.coalesce(_of("source.row", "bigint"), F.lit(0)), 10))
    return F.when(_of("source.connector", "string") == "postgresql", _digits(_of("source.lsn", "bigint"), 20)).otherwise(of_mysql)


def _digits(number: Column, width: int) -> Column:
    return F.lpad(number.cast("string"), width, "0")
