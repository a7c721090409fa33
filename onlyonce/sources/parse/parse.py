"""Turns a line into a record: declared columns, event time and id, or the reason why it is invalid.

Lines are read by the conversion table (`parse_lines`). If a line has fields that the declaration does not know, the
whole line is kept in `oo_unknown` with its record. If the declared types allow it, `plain_records` reads plain lines,
and they don't come here.

The expressions are made once for a declaration and not for each batch, since each takes some calls into the JVM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from onlyonce.declare.pipeline import Pipeline
from onlyonce.declare.sources import aliases
from onlyonce.declare.sources.kafka import Kafka
from onlyonce.declare.sources.sources import IN_COLUMNS
from onlyonce.model.stored_names import OO_EVENT_TIME, OO_HIGH, OO_LOW, OO_PLACE, OO_RAW, OO_REASON, OO_UNKNOWN
from onlyonce.session import schemas
from onlyonce.session.names import quoted
from onlyonce.sources.parse import id_columns, mapping, parse_columns, parse_lines
from onlyonce.sources.parse.shown_columns import shown

PLACE = ("oo_file", "oo_position")
PLACED = OO_PLACE
"""The column with the file and the position of an invalid record."""
BOUND = "oo_bound"
"""The column with the last event time that is valid."""
GIVEN = "="
"""Stands before a key or header in the hash of a record, so that an empty one is not a missing one."""
BESIDE = "oo_beside_"
"""The prefix of the columns with the key and headers of a message."""
CARRIED = ("oo_block", "oo_target")
"""The columns of a row that is no line, but a block of records on its way (`receive.blocks.block_rows`): they go
through as they are."""
BYTE_ORDER_MARK = "\ufeff"
"""Some editors write it before the first line of a file; it is no part of the record."""
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
    aliases: tuple[tuple[str, str], ...] = ()
    formats: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> StructType:
        """The declared columns."""
        return schemas.of(self.schema)

    @property
    def in_columns(self) -> bool:
        """Whether records come in columns and not in lines."""
        return self.layout in IN_COLUMNS

    def place(self) -> list[Column]:
        """What a record is known by, where it is its place."""
        return [] if self.record_id else [F.col(name) for name in PLACE]

    def salted(self) -> list[Column]:
        """What stands before the values of an id, where ids of other sources are others."""
        return [F.lit(self.salt)] if self.salt else []

    def texts_beside(self) -> dict[str, Column]:
        """What comes beside the value of a message (its key, headers) takes the place of a field of that name in it."""
        return {name: F.col(f"{BESIDE}{name}") for name in self.beside}

    def kept_beside(self) -> list[Column]:
        """Return the key and headers, which `oo_line` does not have."""
        return [F.col(quoted(name)).cast("string") for name in self.beside]


def records(lines: DataFrame, pipeline: Pipeline, system_time: datetime) -> DataFrame:
    """(oo_line, oo_refused, oo_file, oo_position), and BOUND and CARRIED, if they are there → declared columns,
    oo_event_time, oo_high, oo_low, oo_payload, oo_reason, oo_raw, oo_unknown, PLACED.

    A row with an oo_reason is invalid: it keeps its raw line and its place, and no declared column. By position it has
    its place as id all the same.
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
        pipeline.schema,
        source.format,
        pipeline.record_id,
        pipeline.event_time,
        pipeline.max_ahead,
        beside,
        salt,
        aliases=tuple(pipeline.aliases.items()),
        formats=tuple(pipeline.formats.items()),
    )


def _records(lines: DataFrame, asked: _Asked, pipeline: Pipeline, system_time: datetime) -> DataFrame:
    asked = replace(asked, carried=tuple(name for name in CARRIED if name in lines.columns))
    bound = F.col(BOUND) if BOUND in lines.columns else F.lit(system_time + pipeline.max_ahead).alias(BOUND)
    flat = lines.select("*", bound) if asked.in_columns else _of_lines(lines, asked, bound)
    return flat.withColumn(OO_REASON, _reason(asked)).select(*_record(asked))


@cache
def _record(asked: _Asked) -> list[Column]:
    valid = F.col(OO_REASON).isNull()
    place = asked.place()
    high, low = id_columns.hashes([*asked.salted(), *(place or id_columns.strings(asked.columns, asked.record_id))])
    known = F.lit(True) if place else valid
    # Two records of one id and time are put in order by all that is kept of them, so that any order of a batch gives
    # the same.
    line = parse_columns.line(asked.columns) if asked.in_columns else F.col("oo_line")
    if asked.in_columns:
        payload = F.when(valid, parse_columns.content(asked.columns)).otherwise(F.xxhash64(line))
    else:
        payload = F.xxhash64(
            line, *(F.coalesce(F.concat(F.lit(GIVEN), text), F.lit("")) for text in asked.kept_beside())
        )
    unknown = F.col("oo_rest") if asked.in_columns else F.when(F.col("oo_more"), F.col("oo_line"))
    return [
        *[F.when(valid, F.col(quoted(f.name))).alias(f.name) for f in asked.columns.fields],
        F.when(valid, _time(asked)).alias(OO_EVENT_TIME),
        F.when(known, high).otherwise(payload).alias(OO_HIGH),
        F.when(known, low).otherwise(payload).alias(OO_LOW),
        payload.alias("oo_payload"),
        F.col(OO_REASON),
        F.when(~valid, F.when(F.is_valid_utf8(line), line).otherwise(F.hex(line))).alias(OO_RAW),
        F.when(valid, unknown).alias(OO_UNKNOWN),
        F.when(~valid, F.struct(*PLACE)).alias(PLACED),
        *map(F.col, asked.carried),
    ]


def _of_lines(lines: DataFrame, asked: _Asked, bound: Column) -> DataFrame:
    read, found = _read(asked)
    return lines.select(*_unmarked(asked), bound).select("*", read).select(*_names(asked), BOUND, *found)


def _names(asked: _Asked) -> list[str]:
    return ["oo_line", *PLACE, *asked.carried]


@cache
def _unmarked(asked: _Asked) -> list[Column]:
    beside = [*asked.texts_beside().values(), *map(F.col, asked.carried)]
    return [_without_mark().alias("oo_line"), F.col("oo_refused"), *map(F.col, PLACE), *beside]


@cache
def _read(asked: _Asked) -> tuple[Column, list[Column]]:
    """What is made of a line, and of that the columns."""
    schema, beside = asked.columns, asked.texts_beside()
    of_line = StructType([field for field in schema.fields if field.name not in beside])
    read = parse_lines.reader(
        of_line, aliases.named(schema.names, dict(asked.aliases)), dict(asked.formats), asked.layout
    )(F.col("oo_line")).alias("p")
    found = {name: F.col(f"p.{parse_lines.RECORD}.{quoted(name)}") for name in of_line.names} | beside
    refused = F.coalesce("oo_refused", F.col(f"p.{parse_lines.REASON}")).alias("oo_refused")
    more = F.col(f"p.{parse_lines.MORE}").alias("oo_more")
    return read, [refused, more, *[found[name].alias(name) for name in schema.names]]


def _without_mark() -> Column:
    line = F.col("oo_line")
    return F.when(F.startswith(line, F.lit(BYTE_ORDER_MARK)), F.substring(line, 2, 1 << 30)).otherwise(line)


def _time(asked: _Asked) -> Column:
    """The event time; a string is read by the conversion table, since Spark's cast reads the clock."""
    time = F.col(quoted(asked.event_time))
    return (
        parse_lines.instants()(time)
        if asked.columns[asked.event_time].dataType == StringType()
        else time.cast("timestamp")
    )


@cache
def _reason(asked: _Asked) -> Column:
    time = _time(asked)
    checks = [(F.col("oo_refused").isNotNull(), F.col("oo_refused"))]
    for column in asked.record_id:
        checks.append((F.col(quoted(column)).isNull(), F.lit(f"the record id column {column} is missing or null")))
    checks += [
        (F.col(quoted(asked.event_time)).isNull(), F.lit(f"the event time {asked.event_time} is missing or null")),
        (time.isNull(), _no_instant(asked)),
        (time > F.col(BOUND), _off(asked, time, f"more than {asked.max_ahead} ahead of the system time")),
        (time < F.expr(FIRST_TIME), _off(asked, time, "before 1970")),
    ]
    chosen = F.when(*checks[0])
    for condition, reason in checks[1:]:
        chosen = chosen.when(condition, reason)
    return chosen


def _no_instant(asked: _Asked) -> Column:
    what = f"the event time {asked.event_time} is no instant"
    if asked.event_time in asked.beside:
        return F.lit(what)  # `oo_raw` has no header, so an erasure would not find the record by it
    return F.concat(F.lit(f"{what}: "), shown(F.col(quoted(asked.event_time))))


def _off(asked: _Asked, time: Column, why: str) -> Column:
    # The day only: a release takes in the records of one reason together, and a wrong clock dates each record
    # differently.
    return F.concat(
        F.lit(f"the event time {asked.event_time} is on "), time.cast("date").cast("string"), F.lit(f", {why}")
    )
