"""Turns a line into a record: declared columns, event time and id, or the reason why it is invalid.

One pass. If a line has fields that the declaration does not know, the whole line is kept in `oo_unknown` beside its record. Nearly all
lines are plain. Where the declared types allow it `plain_records` reads those, and they don't come here; otherwise
(`onlyonce/model/sources/plain_json.py`) the checks for unusual lines are skipped for them.

The expressions are made once for a declaration and not for each batch: there are a thousand, and each takes some calls into the JVM.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources.kafka import Kafka
from onlyonce.model.sources import plain_json
from onlyonce.session import schemas
from onlyonce.session.names import quoted
from onlyonce.sources.parse import mapping, parse_columns, parse_csv, reasons

CORRUPT = parse_csv.CORRUPT
PLACE = ("oo_file", "oo_position")
BOUND = "oo_bound"
"""The column with the last event time that is valid."""
BESIDE = "oo_beside_"
"""The prefix of the columns with the key and headers of a message."""
CARRIED = ("oo_block", "oo_target")
"""The columns of a row that is no line, but a block of records on its way (`receive.blocks.block_rows`): they go through as they are."""
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
FIRST_TIME = "timestamp'1970-01-01 00:00:00Z'"
"""Spark's watermark begins there, so it would drop what is earlier, in any window, and say so only afterwards."""


@dataclass(frozen=True)
class _Asked:
    """All of a declaration that decides how a line becomes a record."""

    schema: str
    layout: str
    record_id: tuple[str, ...]
    event_time: str
    max_ahead: timedelta
    beside: tuple[str, ...]
    salt: str = ""
    carried: tuple[str, ...] = ()

    @property
    def columns(self) -> StructType:
        """The declared columns."""
        return schemas.of(self.schema)

    @property
    def in_columns(self) -> bool:
        """Whether records come in columns and not in lines."""
        return self.layout in COLUMNS

    def place(self) -> list[Column]:
        """What a record is known by, where it is its place."""
        return [] if self.record_id else [F.col(name) for name in PLACE]

    def salted(self) -> list[Column]:
        """What stands before the values of an id, where ids of other sources are others."""
        return [F.lit(self.salt)] if self.salt else []

    def texts_beside(self) -> dict[str, Column]:
        """What comes beside the value of a message (its key, headers) takes the place of a field of that name in it."""
        return {name: F.col(f"{BESIDE}{name}") for name in self.beside}


def records(lines: DataFrame, pipeline: Pipeline, system_time: datetime) -> DataFrame:
    """(oo_line, oo_refused), by position also (oo_file, oo_position), and BOUND and CARRIED, if they are there → declared columns, oo_event_time, oo_high, oo_low, oo_payload, oo_reason, oo_raw, oo_unknown.

    A row with an oo_reason is invalid: it keeps its raw line and no declared column. By position it has its place as id
    all the same.
    """
    found = _records(lines, _asked(pipeline), pipeline, system_time)
    return mapping.applied(found, pipeline.part) if pipeline.part else found


def by_place(lines: DataFrame, pipeline: Pipeline, system_time: datetime) -> DataFrame:
    """The same, where each record has its place as its id, whatever else identifies it. `outputs.record_place` asks."""
    return _records(lines, replace(_asked(pipeline), record_id=(), salt=""), pipeline, system_time)


def _asked(pipeline: Pipeline) -> _Asked:
    source = pipeline.source
    beside = source.beside if isinstance(source, Kafka) else ()
    salt = pipeline.part.salt if pipeline.part else ""
    return _Asked(
        pipeline.schema, source.format, pipeline.record_id, pipeline.event_time, pipeline.max_ahead, beside, salt
    )


def _records(lines: DataFrame, asked: _Asked, pipeline: Pipeline, system_time: datetime) -> DataFrame:
    asked = replace(asked, carried=tuple(name for name in CARRIED if name in lines.columns))
    bound = F.col(BOUND) if BOUND in lines.columns else F.lit(system_time + pipeline.max_ahead).alias(BOUND)
    if asked.in_columns:
        flat = parse_columns.columns(lines.select("*", bound), asked.columns).select("*", *_nothing_left())
    else:
        flat = _of_lines(lines, asked, bound)
    return flat.withColumn("oo_reason", _reason(asked)).select(*_record(asked))


@cache
def _record(asked: _Asked) -> list[Column]:
    valid = F.col("oo_reason").isNull()
    place = asked.place()
    identity = [*asked.salted(), *(place or [F.col(quoted(c)).cast("string") for c in asked.record_id])]
    known = F.lit(True) if place else valid
    payload = F.xxhash64("oo_line")
    unknown = F.col("oo_rest") if asked.in_columns else F.when(~F.col("oo_plain"), _unknown(asked))
    return [
        *[F.when(valid, F.col(quoted(f.name))).alias(f.name) for f in asked.columns.fields],
        F.when(valid, F.col(quoted(asked.event_time)).cast("timestamp")).alias("oo_event_time"),
        F.when(known, F.xxhash64(*identity)).otherwise(payload).alias("oo_high"),
        F.when(known, F.xxhash64(F.lit("low"), *identity)).otherwise(payload).alias("oo_low"),
        payload.alias("oo_payload"),
        F.col("oo_reason"),
        F.when(~valid, F.when(F.is_valid_utf8("oo_line"), F.col("oo_line")).otherwise(F.hex("oo_line"))).alias(
            "oo_raw"
        ),
        F.when(valid, unknown).alias("oo_unknown"),
        *map(F.col, asked.carried),
    ]


@cache
def _nothing_left() -> list[Column]:
    # Of what is looked at in a line of JSON.
    return [F.is_valid_utf8("oo_line").alias("oo_plain"), F.lit(None).cast("string").alias(CORRUPT)]


def _of_lines(lines: DataFrame, asked: _Asked, bound: Column) -> DataFrame:
    unmarked = lines.select(*_unmarked(asked), bound)
    if asked.layout == "csv":
        return parse_csv.columns(unmarked.select("*", *_nothing_left()), asked.columns, asked.event_time)
    parsed, found = _of_json(asked)
    return unmarked.select("*", *parsed).select(*_names(asked), BOUND, *found)


def _names(asked: _Asked) -> list[str]:
    return ["oo_line", "oo_refused", *(() if asked.record_id else PLACE), *asked.carried]


@cache
def _unmarked(asked: _Asked) -> list[Column]:
    beside = [*asked.texts_beside().values(), *map(F.col, asked.carried)]
    return [_without_mark().alias("oo_line"), F.col("oo_refused"), *asked.place(), *beside]


@cache
def _of_json(asked: _Asked) -> tuple[list[Column], list[Column]]:
    """What is made of a line, and of that the columns."""
    schema, beside = asked.columns, asked.texts_beside()
    of_line = [name for name in schema.names if name not in beside]
    # Java has put a sign of its own in the place of bytes that are not UTF-8.
    is_plain = F.rlike("oo_line", F.lit(plain_json.pattern(of_line, asked.event_time))) & F.is_valid_utf8("oo_line")
    with_corrupt = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    record = F.from_json("oo_line", with_corrupt, JSON_OPTIONS)
    found = {name: F.col(f"p.{quoted(name)}") for name in of_line} | beside
    columns = [found[name].alias(name) for name in schema.names]
    return [is_plain.alias("oo_plain"), record.alias("p")], [F.col("oo_plain"), F.col(f"p.{CORRUPT}"), *columns]


def _without_mark() -> Column:
    line = F.col("oo_line")
    return F.when(F.startswith(line, F.lit(BYTE_ORDER_MARK)), F.substring(line, 2, 1 << 30)).otherwise(line)


@cache
def _reason(asked: _Asked) -> Column:
    time = F.col(quoted(asked.event_time)).try_cast("timestamp")
    odd = ~F.col("oo_plain")
    checks = [
        (F.col("oo_refused").isNotNull(), F.col("oo_refused")),
        (odd & ~F.is_valid_utf8("oo_line"), F.lit("the line is not UTF-8; its bytes are in hexadecimal")),
        (odd & (F.trim("oo_line") == ""), F.lit("the line is blank")),
        (F.col(CORRUPT).isNotNull(), reasons.of_json(asked.columns, asked.beside)),
        (odd & _has_more(), F.lit("there is more on the line than one JSON object")),
        (
            odd & _holds(f"{NUL}|{HALF_OF_A_PAIR}"),
            F.when(_holds(NUL), F.lit("a text holds the sign U+0000, which PostgreSQL can't store")).otherwise(
                F.lit("a text holds half of a surrogate pair, which is no sign")
            ),
        ),
    ]
    for column in asked.record_id:
        checks.append((F.col(quoted(column)).isNull(), F.lit(f"the record id column {column} is missing or null")))
    checks += [
        (time.isNull(), F.lit(f"the event time {asked.event_time} is missing or null")),
        (
            odd & _no_instant(asked.event_time),
            F.lit("the event time is a time of day without a date, or too large for seconds since 1970"),
        ),
        (time > F.col(BOUND), F.lit(f"the event time is more than {asked.max_ahead} ahead of the system time")),
        (time < F.expr(FIRST_TIME), F.lit("the event time is before 1970")),
    ]
    chosen = F.when(*checks[0])
    for condition, reason in checks[1:]:
        chosen = chosen.when(condition, reason)
    return chosen


def _holds(escape: str) -> Column:
    # Only escapes can bring such signs into valid JSON, and most lines have none.
    alone = F.regexp_replace("oo_line", F.lit(HARMLESS), F.lit(""))
    return F.contains("oo_line", F.lit("\\u")) & F.rlike(alone, F.lit(escape))


def _has_more() -> Column:
    # Spark's parser stops after the first object without a word. Where the first closing brace is the last sign of the
    # line nothing can follow. Else (a nested object, a brace in a text, white space at the end) the exact look.
    line = F.col("oo_line")
    last = F.instr(line, F.lit("}")) == F.length(line)
    whole = F.endswith(F.rtrim(line, F.lit(" \t\r")), F.lit("}"))
    alone = F.json_array_length(F.concat(F.lit("["), line, F.lit("]"))) == 1
    return ~last & ~(whole & F.coalesce(alone, F.lit(False)))


def _no_instant(event_time: str) -> Column:
    # The cheap look may hit a key of the same name in a nested object; the second look is exact.
    cheap = F.rlike("oo_line", F.lit(rf'"{re.escape(event_time)}"\s*:\s*"?\s*({NO_INSTANT})'))
    exact = F.trim(F.get_json_object("oo_line", f"$['{event_time}']"))
    return cheap & F.rlike(exact, F.lit(f"^({NO_INSTANT})"))


def _unknown(asked: _Asked) -> Column:
    # As many keys as columns of the value that are not null: then no other key is there.
    keys = F.json_object_keys("oo_line")
    names = asked.columns.names
    fields = [name for name in names if name not in asked.beside]
    present = reduce(add, [F.col(quoted(name)).isNotNull().cast("int") for name in fields], F.lit(0))
    others = F.array_except(keys, F.array(*[F.lit(name) for name in names]))
    return F.when((F.size(keys) != present) & (F.size(others) > 0), F.col("oo_line"))
