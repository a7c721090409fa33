"""Turn lines and columns into records: declared columns, event time and id, or the reason why a record is invalid.

Spark expressions call the readers of the conversion table and of Arrow. The module also adds new columns to a Delta
table, and maps the columns of one of several sources to the pipeline's.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from onlyonce.api import columns
from onlyonce.api.messages import Kafka
from onlyonce.api.pipeline import Part, Pipeline
from onlyonce.api.sources import IN_COLUMNS, line_layout
from onlyonce.core import column_types, conversions, line_values
from onlyonce.core.conversions import Cell, Unfit
from onlyonce.core.errors import HIDDEN, Refused
from onlyonce.core.line_values import SHOWN, Row
from onlyonce.core.locations import Location
from onlyonce.core.runs import first_line
from onlyonce.core.stored_names import OO_EVENT_TIME, OO_HIGH, OO_LOW, OO_PLACE, OO_RAW, OO_REASON, OO_UNKNOWN
from onlyonce.engine import encoding, session
from onlyonce.engine.session import quoted
from onlyonce.sources.values import arrow_lines
from onlyonce.sources.values.arrow_lines import Found
from onlyonce.tables import opening


def fit_columns(path: Location, wanted: StructType, whose: str, table: DeltaTable | None = None) -> None:
    """Add the columns that a Delta table lacks, at its end, before anything is written.

    `table`: the table, if the caller has just opened it.

    Raise Refused for a column whose type has changed; then nothing is added. A table has one type for a column, and the
    old rows would be lost or guessed.
    """
    there = _there(table or opening.table(path))
    # The types by name: whether a null may be inside a column is judged by the values (`delta_inside`).
    kinds = ({field.name: field.dataType.simpleString() for field in fields} for fields in (wanted, there.values()))
    column_types.refuse_other(whose, path, *kinds)
    missing = [field for field in wanted.fields if field.name.lower() not in there]
    if not missing:
        return
    try:
        opening.add_columns(path, StructType(missing).json())
    except DeltaError:
        # If two drivers add the columns at once, one succeeds, and the other's attempt fails.
        if not {field.name.lower() for field in missing} <= _there(opening.table(path)).keys():
            raise


def _there(table: DeltaTable) -> dict[str, StructField]:
    # Spark ignores case in the names of columns.
    return {field.name.lower(): field for field in StructType.fromJson(json.loads(table.schema().to_json()))}


# A record's id from columns: the strings of their values by `onlyonce/core/line_values.py`, and two chained XXH64
# hashes of them.
#
# Spark's cast and Arrow's give the same strings for the types in AS_CAST; a test compares them. Python writes the other
# types, since Spark's cast of a float or a decimal depends on the version of Java.


AS_CAST = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz")
"""The types that Spark's and Arrow's own casts write as `id_strings` does."""


def id_hashes(identity: Iterable[Column]) -> tuple[Column, Column]:
    """Return both halves of an id from the strings of its values."""
    strings = [*identity]
    return F.xxhash64(*strings), F.xxhash64(F.lit("low"), *strings)


def id_salt(pipeline: Pipeline) -> list[Column]:
    """Return what comes before the values of an id if each of several sources has its own id space."""
    return [F.lit(pipeline.part.salt)] if pipeline.part and pipeline.part.salt else []


def id_strings(schema: StructType, names: Iterable[str]) -> list[Column]:
    """Return the strings of the id columns in order."""
    return [_string(name, schema[name].dataType.simpleString()) for name in names]


def ids_of_arrow(column: pa.Array, kind: str) -> pa.Array:
    """Return the strings of a column of a type in AS_CAST."""
    texts = column.cast(pa.string())
    # Arrow writes six decimals of a time, Spark only those up to the last one that is not zero.
    if kind in ("timestamp", "timestamp_ntz"):
        return pc.replace_substring_regex(texts, r"\.?0*Z?\z", "")
    return texts


def _string(name: str, kind: str) -> Column:
    column = F.col(quoted(name))
    return (
        column.cast("string")
        if line_values.named_id_form(kind) in AS_CAST
        else _id_text(line_values.named_id_form(kind))(column)
    )


@cache
def _id_text(name: str) -> Callable[[Column], Column]:
    def write(values: pa.Array) -> pa.Array:
        form = line_values.FORMS[name]
        return pa.array([None if value is None else form(value) for value in values.to_pylist()], pa.string())

    return arrow_udf(write, StringType())


# The records of one of several sources get the columns of the pipeline, as its `Input` declares.


CLOCKS = {"CurrentTimestamp", "CurrentDate", "CurrentTime", "Now", "LocalTimestamp", "CurrentTimeZone"}
PARSERS = {"JsonToStructs", "CsvToStructs", "XmlToStructs", "ParseJson"}
TIMES = ('"timestamp', '"date"')
"""How the types of times begin in Spark's JSON."""


def mapped_columns(records: DataFrame, part: Part) -> DataFrame:
    """Return records with the pipeline's columns in place of the source's; an invalid record has null in each."""
    if not part.columns:
        return records
    own = [name for name in records.columns if name.startswith("oo_")]
    valid = F.col(OO_REASON).isNull()
    return records.select(*[F.when(valid, _made(*one)).alias(one[0]) for one in part.columns], *own)


def check_mapping(spark: SparkSession, view: Pipeline) -> None:
    """Raise Refused if Spark does not understand the SQL of a column, or if its result is of another type."""
    assert view.part is not None
    nothing = spark.createDataFrame([], session.schema_of(view.schema))
    for column, kind, made in view.part.columns:
        where = f"pipeline {view.name}, source {view.part.name}: column {column} is made by {made!r}"
        try:
            result = nothing.select(F.expr(made).alias("made"))
            found = result.schema["made"].dataType.simpleString()
        except (AnalysisException, ParseException) as error:
            raise Refused(
                f"{where}, and Spark says: {first_line(error)}",
                data="nothing was read or written",
                hint=f"the source has: {view.schema}",
            ) from error
        if why := _not_of_the_record(spark, result):
            raise Refused(
                f"{where}, which {why}",
                data="nothing was read or written; a batch that is tried again would give the record another value",
                hint="declare it as a timestamp or date in the schema of the Input, with formats={…} if it is not "
                "ISO 8601; or give to_timestamp its pattern",
            )
        wanted = session.schema_of(f"{quoted(column)} {kind}").fields[0].dataType.simpleString()
        if found not in (wanted, "void"):
            raise Refused(
                f"{where}, which is of type {found}, and the column of type {wanted}",
                data="nothing was read or written",
                hint=f"columns={{{column!r}: 'cast({made} as {wanted})'}}",
            )


def _not_of_the_record(spark: SparkSession, result: DataFrame) -> str | None:
    """Return what makes a plan depend on the clock or on chance; None if nothing does."""
    plan: Any = result._jdf.queryExecution().analyzed()  # type: ignore[operator]
    whole = spark._jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions.apply(plan)  # type: ignore[union-attr]
    if not whole.deterministic():
        return "is not deterministic"
    roots = whole.expressions()
    return next(filter(None, (_clock(roots.apply(n)) for n in range(roots.size()))), None)


def _clock(node: Any) -> str | None:
    name = node.getClass().getSimpleName()
    if name in CLOCKS:
        return "asks the clock"
    children = [node.children().apply(n) for n in range(node.children().size())]
    reads = name in PARSERS or (name == "Cast" and children[0].dataType().typeName() == "string")
    if reads and any(kind in node.dataType().json() for kind in TIMES):
        return "reads a string as a time by Spark's cast, for which a time of day is one of today"
    return next(filter(None, map(_clock, children)), None)


def _made(column: str, kind: str, made: str) -> Column:
    # A value of the column's type stays unchanged; a null has no type of its own.
    return F.expr(made).cast(kind)


# Rows of typed columns, written as JSON, and as a hash of all columns.
#
# Whether a value fits its column was decided when it was read (`coercion`). Only invalid records are written as JSON:
# it takes longer than all other steps of a row (tests/benchmarks/test_lines.py, parquet).


def line_column(schema: StructType) -> Column:
    """Return the row as JSON, or its beginning if it is too large."""
    return F.coalesce("oo_line", F.to_json(F.struct(*map(_in_json, schema.fields)), encoding.TIMES))


def content_column(schema: StructType) -> Column:
    """Return a hash of all columns. It distinguishes null from a value, and 0.0 from -0.0."""
    parts: list[Column] = []
    for field in schema.fields:
        column = F.col(quoted(field.name))
        if _is_nested(field):
            column = F.to_json(F.struct(_in_json(field)), encoding.TIMES)
        parts += [column.isNotNull(), column]  # Spark's XXH64 leaves nulls out
        if isinstance(field.dataType, FloatType | DoubleType):
            parts.append((column == 0) & F.startswith(column.cast("string"), F.lit("-")))
    return F.xxhash64(*parts)


def _in_json(field: StructField) -> Column:
    return encoding.with_repeatable_keys(F.col(quoted(field.name)), field.dataType).alias(field.name)


def _is_nested(field: StructField) -> bool:
    return isinstance(field.dataType, ArrayType | MapType | StructType)


# A string column in a reason, shown as `line_values.shown` shows a value. The expression is computed for refused rows
# only.


def shown(column: Column) -> Column:
    """Return the first characters of a column, cast to a string, with control characters written out."""
    text = column.cast("string")
    short = F.array_join(F.transform(F.split(F.substring(text, 1, SHOWN), ""), _written), "")
    return F.concat(short, F.when(F.char_length(text) > SHOWN, F.lit("…")).otherwise(F.lit("")))


def _written(one: Column) -> Column:
    code = F.lower(F.hex(F.ascii(one)))
    written = F.when(F.ascii(one) < 0x100, F.concat(F.lit("\\x"), F.lpad(code, 2, "0"))).otherwise(
        F.concat(F.lit("\\u"), code)
    )
    return F.when(F.rlike(one, F.lit(HIDDEN.pattern)), written).otherwise(one)


# Lines of JSON and CSV, read by the conversion table (`onlyonce/core/conversions.py`).
#
# The expression is a Python function over Arrow arrays, so no parser of the JVM decides what a value is. Arrow reads a
# block of lines first (`arrow_lines`); the remaining lines are read one by one.


REASON, MORE, RECORD = "reason", "more", "record"
IN_HEXADECIMAL = "its bytes are in hexadecimal"
NOT_UTF8 = f"{line_values.NOT_UTF8}; {IN_HEXADECIMAL}"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
UTF16 = f"{line_values.NOT_UTF8}: it is UTF-16, so send UTF-8 (a file: iconv -f UTF-16 -t UTF-8); {IN_HEXADECIMAL}"


class Reader(NamedTuple):
    """The reader of a line by the table, and the reader of a block of lines by Arrow before it."""

    read: Callable[[str], Row]
    by_arrow: Callable[[pa.Array], Found]


def line_reader(
    columns: StructType, named: Mapping[str, str], forms: Mapping[str, str], layout: str
) -> Callable[[Column], Column]:
    """Return the expression from a line to REASON, MORE and RECORD with some columns.

    MORE is whether the line has undeclared fields. `named` has the name in the source of each declared column, `forms`
    the form of some times."""
    known = named.values()
    types = {
        field.name: conversions.with_forms(field.name, field.dataType.jsonValue(), forms) for field in columns.fields
    }
    kinds = json.dumps(
        [(field.name, named[field.name], field.dataType.simpleString(), types[field.name]) for field in columns.fields]
    )
    reader_of(kinds, tuple(known), layout)  # a type that no line can hold is refused before a task begins
    gives = StructType(
        [StructField(REASON, StringType()), StructField(MORE, BooleanType()), StructField(RECORD, columns)]
    )
    shape = to_arrow_type(gives, timezone="UTC")

    def read(lines: pa.Array) -> pa.Array:
        return rows(lines, reader_of(kinds, tuple(known), layout), shape)

    return arrow_udf(read, gives)


@cache
def instants_of() -> Callable[[Column], Column]:
    """Return the expression from a string to its instant by the conversion table, or null."""

    def read(texts: pa.Array) -> pa.Array:
        return pa.array(
            [None if text is None else _instant(text) for text in texts.to_pylist()], pa.timestamp("us", "UTC")
        )

    return arrow_udf(read, TimestampType())


def _instant(text: str) -> Any:
    try:
        return conversions.instant(Cell(text), [])
    except Unfit:
        return None


@cache
def reader_of(kinds: str, known: tuple[str, ...], layout: str) -> Reader:
    """Return the reader of lines into columns.

    `kinds` is JSON. For each column it has its name, its name in the source, and its type as people write it. It also
    has `DataType.jsonValue` with the forms of its times."""
    declared = json.loads(kinds)
    delimiter = line_values.csv_delimiter(layout)
    of = conversions.of_cell if delimiter else conversions.of_type
    columns = [line_values.Column(name, named, kind, of(json_type)) for name, named, kind, json_type in declared]
    types = {named: json_type for _, named, _, json_type in declared}
    null = line_values.csv_null(layout)
    by_table = (
        line_values.csv_reader(columns, delimiter, null) if delimiter else line_values.json_reader(columns, known)
    )
    return Reader(by_table, partial(arrow_lines.read_lines, kinds=types, layout=layout))


def rows(lines: pa.Array, reader: Reader, shape: pa.StructType) -> pa.Array:
    """Return the rows of lines: by Arrow if it reads them as the table does, the others one by one."""
    by_arrow = reader.by_arrow(lines)
    if not len(by_arrow.rows):
        return by_table(lines, reader.read, shape)
    others = np.ones(len(lines), bool)
    others[by_arrow.rows] = False
    count, fields = len(by_arrow.rows), list(shape.field(RECORD).type)
    columns = [arrow_lines.typed(column, field.type) for column, field in zip(by_arrow.columns, fields, strict=True)]
    made = [
        pa.nulls(count, pa.string()),
        pa.repeat(pa.scalar(False), count),
        pa.StructArray.from_arrays(columns, fields=fields),
    ]
    found = pa.StructArray.from_arrays(made, fields=list(shape))
    if not others.any():
        return found
    rest = by_table(lines.filter(pa.array(others)), reader.read, shape)
    return arrow_lines.merged(Found(by_arrow.rows, [found]), Found(np.flatnonzero(others), [rest])).columns[0]


def by_table(lines: pa.Array, read: Callable[[str], Row], shape: pa.StructType) -> pa.Array:
    """Return the rows of lines, one by one by the table."""
    rows = [_row(line, read) for line in lines.cast(pa.binary()).to_pylist()]
    reasons = pa.array([row.reason for row in rows], pa.string())
    more = pa.array([row.more for row in rows], pa.bool_())
    fields = list(shape.field(RECORD).type)
    nothing = [None] * len(fields)
    values = list(zip(*(row.values or nothing for row in rows), strict=True)) or [()] * len(fields)
    columns = [pa.array(column, field.type) for column, field in zip(values, fields, strict=True)]
    record = pa.StructArray.from_arrays(columns, fields=fields) if fields else pa.array([{}] * len(rows), pa.struct([]))
    return pa.StructArray.from_arrays([reasons, more, record], fields=list(shape))


def _row(line: bytes | None, read: Callable[[str], Row]) -> Row:
    if line is None:
        return Row(None)
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return Row(None, UTF16 if line.startswith(UTF16_MARKS) else NOT_UTF8)
    return read(text)


# A line becomes a record.
#
# Lines are read by the conversion table. If a line has undeclared fields, the whole line is kept in `oo_unknown` with
# its record. If the declared types allow it, `fast_json` reads flat JSON objects, and they don't come here.
#
# The expressions are built once for a declaration and not for each batch, since each needs some calls into the JVM.


PLACE = ("oo_file", "oo_position")
PLACED = OO_PLACE
"""The column with the file and the position of an invalid record."""
BOUND = "oo_bound"
"""The column with the last valid event time."""
GIVEN = "="
"""Comes before a key or header in the hash of a record, so that an empty one differs from a missing one."""
BESIDE = "oo_beside_"
"""The prefix of the columns with the key and headers of a message."""
CARRIED = ("oo_block", "oo_target")
"""The columns of a row that is not a line, but a block of records on its way (`receive.exchange`): they pass
unchanged."""
BYTE_ORDER_MARK = "\ufeff"
"""Some editors write it before the first line of a file; it is not part of the record."""
FIRST_TIME = "timestamp'1970-01-01 00:00:00Z'"
"""Spark's watermark begins at this time. It would drop earlier rows, in any window, and report that only afterwards."""


@dataclass(frozen=True)
class _Asked:
    """The parts of a declaration that decide how a line becomes a record."""

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
        """Return the declared columns."""
        return session.schema_of(self.schema)

    @property
    def in_columns(self) -> bool:
        """Return whether records come in columns and not in lines."""
        return self.layout in IN_COLUMNS

    def place(self) -> list[Column]:
        """Return the columns of the record's place, if the place identifies it."""
        return [] if self.record_id else [F.col(name) for name in PLACE]

    def salted(self) -> list[Column]:
        """Return what comes before the values of an id, if ids of other sources must differ."""
        return [F.lit(self.salt)] if self.salt else []

    def texts_beside(self) -> dict[str, Column]:
        """Return the key and headers of a message; they replace fields with their names in its value."""
        return {name: F.col(f"{BESIDE}{name}") for name in self.beside}

    def kept_beside(self) -> list[Column]:
        """Return the key and headers, which `oo_line` does not have."""
        return [F.col(quoted(name)).cast("string") for name in self.beside]


def records(lines: DataFrame, pipeline: Pipeline, ingestion_time: datetime) -> DataFrame:
    """Turn lines into records.

    Columns of `lines`: oo_line, oo_refused, oo_file, oo_position; optionally BOUND and CARRIED. Columns of the result:
    the declared ones, oo_event_time, oo_high, oo_low, oo_payload, oo_reason, oo_raw, oo_unknown, PLACED.

    A row with an oo_reason is invalid: it keeps its raw line and its place, and no declared column. By position even an
    invalid record has its place as id.
    """
    found = _records(lines, _asked(pipeline), pipeline, ingestion_time)
    return mapped_columns(found, pipeline.part) if pipeline.part else found


def by_place(lines: DataFrame, pipeline: Pipeline, ingestion_time: datetime) -> DataFrame:
    """Return records as `records` does, but each with its place as its id. Used by `outputs.record_place`."""
    return _records(lines, replace(_asked(pipeline), record_id=(), salt=""), pipeline, ingestion_time)


def _asked(pipeline: Pipeline) -> _Asked:
    source = pipeline.source
    beside = source.beside if isinstance(source, Kafka) else ()
    salt = pipeline.part.salt if pipeline.part else ""
    return _Asked(
        pipeline.schema,
        line_layout(source),
        pipeline.record_id,
        pipeline.event_time,
        pipeline.max_ahead,
        beside,
        salt,
        aliases=tuple(pipeline.aliases.items()),
        formats=tuple(pipeline.formats.items()),
    )


def _records(lines: DataFrame, asked: _Asked, pipeline: Pipeline, ingestion_time: datetime) -> DataFrame:
    asked = replace(asked, carried=tuple(name for name in CARRIED if name in lines.columns))
    bound = F.col(BOUND) if BOUND in lines.columns else F.lit(ingestion_time + pipeline.max_ahead).alias(BOUND)
    flat = lines.select("*", bound) if asked.in_columns else _of_lines(lines, asked, bound)
    return flat.withColumn(OO_REASON, _reason(asked)).select(*_record(asked))


@cache
def _record(asked: _Asked) -> list[Column]:
    valid = F.col(OO_REASON).isNull()
    place = asked.place()
    high, low = id_hashes([*asked.salted(), *(place or id_strings(asked.columns, asked.record_id))])
    known = F.lit(True) if place else valid
    # Two records with one id and time are ordered by a hash of everything that is kept of them. So any order of a batch
    # gives the same result.
    line = line_column(asked.columns) if asked.in_columns else F.col("oo_line")
    if asked.in_columns:
        payload = F.when(valid, content_column(asked.columns)).otherwise(F.xxhash64(line))
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
    """Return the expression that reads a line, and the columns of its result."""
    schema, beside = asked.columns, asked.texts_beside()
    of_line = StructType([field for field in schema.fields if field.name not in beside])
    read = line_reader(
        of_line, columns.named_in_source(schema.names, dict(asked.aliases)), dict(asked.formats), asked.layout
    )(F.col("oo_line")).alias("p")
    found = {name: F.col(f"p.{RECORD}.{quoted(name)}") for name in of_line.names} | beside
    refused = F.coalesce("oo_refused", F.col(f"p.{REASON}")).alias("oo_refused")
    more = F.col(f"p.{MORE}").alias("oo_more")
    return read, [refused, more, *[found[name].alias(name) for name in schema.names]]


def _without_mark() -> Column:
    line = F.col("oo_line")
    return F.when(F.startswith(line, F.lit(BYTE_ORDER_MARK)), F.substring(line, 2, 1 << 30)).otherwise(line)


def _time(asked: _Asked) -> Column:
    """Return the event time; a string is read by the conversion table, since Spark's cast reads the clock."""
    time = F.col(quoted(asked.event_time))
    return instants_of()(time) if asked.columns[asked.event_time].dataType == StringType() else time.cast("timestamp")


@cache
def _reason(asked: _Asked) -> Column:
    time = _time(asked)
    checks = [(F.col("oo_refused").isNotNull(), F.col("oo_refused"))]
    for column in asked.record_id:
        checks.append((F.col(quoted(column)).isNull(), F.lit(f"the record id column {column} is missing or null")))
    checks += [
        (F.col(quoted(asked.event_time)).isNull(), F.lit(f"the event time {asked.event_time} is missing or null")),
        (time.isNull(), _no_timestamp(asked)),
        (time > F.col(BOUND), _off(asked, time, f"more than {asked.max_ahead} ahead of the ingestion time")),
        (time < F.expr(FIRST_TIME), _off(asked, time, "before 1970")),
    ]
    chosen = F.when(*checks[0])
    for condition, reason in checks[1:]:
        chosen = chosen.when(condition, reason)
    return chosen


def _no_timestamp(asked: _Asked) -> Column:
    what = line_values.not_convertible(f"the event time {asked.event_time}", "timestamp")
    if asked.event_time in asked.beside:
        return F.lit(what)  # `oo_raw` has no header, so an erasure would not find the record by it
    return F.concat(F.lit(f"{what}: "), shown(F.col(quoted(asked.event_time))))


def _off(asked: _Asked, time: Column, why: str) -> Column:
    # Only the day: one reprocessing takes all records with one reason, and a wrong clock dates each record
    # differently.
    return F.concat(
        F.lit(f"the event time {asked.event_time} is on "), time.cast("date").cast("string"), F.lit(f", {why}")
    )
