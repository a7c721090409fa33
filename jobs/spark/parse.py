"""From a line to a record: declared columns, event time, id, or the reason why it is invalid.

One pass. A line with fields that the declaration doesn't know is kept, whole, in `oo_unknown` beside its record. A plain
line (`jobs/model/plain.py`), as nearly all are, is read by Arrow in blocks (`plain_lines`) where the types allow it; Spark's
parser reads any other line, and each look for what is wrong with it is taken.
"""

from __future__ import annotations

import re
from collections.abc import Container
from datetime import datetime
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from jobs.model import plain
from jobs.model.declare import Pipeline
from jobs.model.kafka import Kafka
from jobs.spark import parse_columns, parse_csv, plain_lines
from jobs.spark.names import quoted

CORRUPT = parse_csv.CORRUPT
PLACE = ("oo_file", "oo_position")
BESIDE = "oo_beside_"
"""The prefix of the columns with the key and headers of a message."""
COLUMNS = ("parquet", "avro", "columns")
"""The formats whose records come in columns and not in lines."""
JSON_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
BYTE_ORDER_MARK = "\ufeff"
"""Some editors write it before the first line of a file; it is no part of the record."""
HARMLESS = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
"""A backslash that is itself escaped, and a whole surrogate pair: what is left of escapes stands alone."""
NUL = r"\\u0000"
HALF_OF_A_PAIR = r"\\u[dD][89a-fA-F]"
NO_INSTANT = r"T?\d{1,2}:|-?\d{13,}"
"""What Spark would take as a time of today, by the clock, or as a count of seconds that overflows."""
FIRST_TIME = "timestamp'0002-01-01'"
"""Python's and SQL's times begin with the year 1, and a window may begin well before its records."""


def records(lines: DataFrame, pipeline: Pipeline, system_time: datetime) -> DataFrame:
    """(value, reason), by position also (oo_file, oo_position) → declared columns, oo_event_time, oo_high, oo_low, oo_payload, oo_reason, oo_raw, oo_unknown.

    A row with an oo_reason is invalid: it keeps its raw line and no declared column. By position it has its place as id
    all the same.
    """
    schema = StructType.fromDDL(pipeline.schema)
    place = [F.col(name) for name in PLACE if pipeline.by_position]
    in_columns = pipeline.source.format in COLUMNS
    flat = _of_columns(lines, schema) if in_columns else _of_lines(lines, place, pipeline, schema)
    judged = flat.withColumn("oo_reason", _reason(pipeline, schema, system_time))
    valid = F.col("oo_reason").isNull()
    identity = place or [F.col(quoted(c)).cast("string") for c in pipeline.record_id]
    known = F.lit(True) if place else valid
    payload = F.xxhash64("value")
    return judged.select(
        *[F.when(valid, F.col(quoted(f.name))).alias(f.name) for f in schema.fields],
        F.when(valid, F.col(quoted(pipeline.event_time)).cast("timestamp")).alias("oo_event_time"),
        F.when(known, F.xxhash64(*identity)).otherwise(payload).alias("oo_high"),
        F.when(known, F.xxhash64(F.lit("low"), *identity)).otherwise(payload).alias("oo_low"),
        payload.alias("oo_payload"),
        "oo_reason",
        F.when(~valid, F.when(F.is_valid_utf8("value"), F.col("value")).otherwise(F.hex("value"))).alias("oo_raw"),
        F.when(
            valid, F.col("oo_rest") if in_columns else F.when(~F.col("plain"), _unknown(schema, _beside(pipeline)))
        ).alias("oo_unknown"),
    )


def _of_columns(rows: DataFrame, schema: StructType) -> DataFrame:
    # Nothing is left to look at in a line.
    seen = parse_columns.columns(rows, schema)
    return seen.select("*", F.is_valid_utf8("value").alias("plain"), F.lit(None).cast("string").alias(CORRUPT))


def _of_lines(lines: DataFrame, place: list[Column], pipeline: Pipeline, schema: StructType) -> DataFrame:
    unmarked = lines.select(_without_mark().alias("value"), "reason", *place, *_beside(pipeline).values())
    read = _of_csv if pipeline.source.format == "csv" else _of_json
    return read(unmarked, pipeline, schema)


def _of_json(lines: DataFrame, pipeline: Pipeline, schema: StructType) -> DataFrame:
    beside = _beside(pipeline)
    of_line = StructType([f for f in schema.fields if f.name not in beside])
    looked = _plainly(lines, of_line, pipeline.event_time)
    with_corrupt = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    record = F.from_json(F.when(F.col("read").isNull(), F.col("value")), with_corrupt, JSON_OPTIONS)
    parsed = looked.withColumn("p", record)
    found = {name: F.coalesce(f"read.{quoted(name)}", f"p.{quoted(name)}") for name in of_line.names} | beside
    columns = [found[name].alias(name) for name in schema.names]
    return parsed.select(*lines.columns, "plain", f"p.{CORRUPT}", *columns)


def _plainly(lines: DataFrame, schema: StructType, event_time: str) -> DataFrame:
    # `plain`: nothing is left to look at in the text. `read`: the columns, where Arrow has read them from it.
    if plain_lines.readable(schema):
        read = lines.withColumn("read", plain_lines.columns(F.col("value"), schema))
        return read.withColumn("plain", F.col("read").isNotNull())
    # Java has put a sign of its own in the place of bytes that are not UTF-8.
    is_plain = F.rlike("value", F.lit(plain.pattern(schema.names, event_time))) & F.is_valid_utf8("value")
    return lines.select("*", F.lit(None).cast(schema).alias("read"), is_plain.alias("plain"))


def _beside(pipeline: Pipeline) -> dict[str, Column]:
    # What comes beside the value of a message (its key, headers) takes the place of a field of that name in it.
    source = pipeline.source
    return {name: F.col(f"{BESIDE}{name}") for name in source.beside} if isinstance(source, Kafka) else {}


def _of_csv(lines: DataFrame, pipeline: Pipeline, schema: StructType) -> DataFrame:
    # What else is looked at in a line is of JSON; it has no fields but those that are declared.
    seen = lines.select("*", F.is_valid_utf8("value").alias("plain"), F.lit(None).cast("string").alias(CORRUPT))
    return parse_csv.columns(seen, schema, pipeline.event_time)


def _without_mark() -> Column:
    line = F.col("value")
    return F.when(F.startswith(line, F.lit(BYTE_ORDER_MARK)), F.substring(line, 2, 1 << 30)).otherwise(line)


def _reason(pipeline: Pipeline, schema: StructType, system_time: datetime) -> Column:
    bound = system_time + pipeline.max_ahead
    time = F.col(quoted(pipeline.event_time)).try_cast("timestamp")
    odd = ~F.col("plain")
    checks = [
        (F.col("reason").isNotNull(), F.col("reason")),
        (odd & ~F.is_valid_utf8("value"), F.lit("the line is not UTF-8; its bytes are in hexadecimal")),
        (odd & (F.trim("value") == ""), F.lit("the line is blank")),
        (F.col(CORRUPT).isNotNull(), F.lit("the line is no JSON object of the declared types")),
        (odd & _has_more(), F.lit("there is more on the line than one JSON object")),
        (
            odd & _holds(f"{NUL}|{HALF_OF_A_PAIR}"),
            F.when(_holds(NUL), F.lit("a text holds the sign U+0000, which PostgreSQL can't store")).otherwise(
                F.lit("a text holds half of a surrogate pair, which is no sign")
            ),
        ),
    ]
    for column in pipeline.record_id:
        checks.append((F.col(quoted(column)).isNull(), F.lit(f"the record id column {column} is missing or null")))
    checks += [
        (time.isNull(), F.lit(f"the event time {pipeline.event_time} is missing or null")),
        (
            odd & _no_instant(pipeline.event_time),
            F.lit("the event time is a time of day without a date, or too large for seconds since 1970"),
        ),
        (time > F.lit(bound), F.lit(f"the event time is more than {pipeline.max_ahead} ahead of the system time")),
        (time < F.expr(FIRST_TIME), F.lit("the event time is before the year 2")),
    ]
    chosen = F.when(*checks[0])
    for condition, reason in checks[1:]:
        chosen = chosen.when(condition, reason)
    return chosen


def _holds(escape: str) -> Column:
    # Only escapes can bring such signs into valid JSON, and most lines have none.
    alone = F.regexp_replace("value", F.lit(HARMLESS), F.lit(""))
    return F.contains("value", F.lit("\\u")) & F.rlike(alone, F.lit(escape))


def _has_more() -> Column:
    # Spark's parser stops after the first object without a word. Where the first closing brace is the last sign of the
    # line nothing can follow. Else (a nested object, a brace in a text, white space at the end) the exact look.
    line = F.col("value")
    last = F.instr(line, F.lit("}")) == F.length(line)
    whole = F.endswith(F.rtrim(line, F.lit(" \t\r")), F.lit("}"))
    alone = F.json_array_length(F.concat(F.lit("["), line, F.lit("]"))) == 1
    return ~last & ~(whole & F.coalesce(alone, F.lit(False)))


def _no_instant(event_time: str) -> Column:
    # The cheap look may hit a key of the same name in a nested object; the second look is exact.
    cheap = F.rlike("value", F.lit(rf'"{re.escape(event_time)}"\s*:\s*"?\s*({NO_INSTANT})'))
    exact = F.trim(F.get_json_object("value", f"$['{event_time}']"))
    return cheap & F.rlike(exact, F.lit(f"^({NO_INSTANT})"))


def _unknown(schema: StructType, beside: Container[str]) -> Column:
    # As many keys as columns of the value that are not null: then no other key is there.
    keys = F.json_object_keys("value")
    fields = [f.name for f in schema.fields if f.name not in beside]
    present = reduce(add, [F.col(quoted(name)).isNotNull().cast("int") for name in fields], F.lit(0))
    others = F.array_except(keys, F.array(*[F.lit(f.name) for f in schema.fields]))
    return F.when((F.size(keys) != present) & (F.size(others) > 0), F.col("value"))
