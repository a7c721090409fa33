"""Turns a line of CSV into the declared columns, in their order, or gives the reason why that fails.

Each column is read as a text and then cast. A value that does not fit its type makes the line invalid; it never becomes null by accident.
Who calls it: `parse`, which goes on as with a line of JSON.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from onlyonce.session.names import quoted
from onlyonce.sources.parse import reasons

CORRUPT = "oo_corrupt"
MOST_COMMAS = 1 << 17
"""Where a line has more, the parser would throw: its array of columns ends."""
OPTIONS = {
    "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "sep": ",", "quote": '"', "escape": '"',
    "maxColumns": str(MOST_COMMAS + 1),
}  # fmt: skip
TIME_OF_DAY = r"^\s*T?\d{1,2}:"
"""Spark would take it as a time of today."""


def columns(lines: DataFrame, schema: StructType, event_time: str) -> DataFrame:
    """The columns of `lines` (with oo_line and oo_refused), then the declared ones; a line that is wrong has its reason."""
    texts = ", ".join(f"{quoted(name)} string" for name in [*schema.names, CORRUPT])
    value = F.col("oo_line")
    line = F.when(F.endswith(value, F.lit("\r")), F.left(value, F.length(value) - 1)).otherwise(value)
    quotes, commas = (F.length(value) - F.length(F.replace(value, F.lit(sign), F.lit(""))) for sign in '",')
    parsed = lines.withColumn("oo_texts", F.from_csv(F.when(commas <= MOST_COMMAS, line), texts, OPTIONS))
    checks: list[tuple[Column, str | Column]] = [
        (F.trim(line) == "", "the line is blank"),
        (commas > MOST_COMMAS, f"the line has more than {MOST_COMMAS} commas"),
        (quotes % 2 == 1, "a quote is open at the end of the line; a record is one line"),
        (F.contains(value, F.lit("\0")), "a text holds the sign U+0000, which PostgreSQL can't store"),
        (
            F.col(f"oo_texts.{CORRUPT}").isNotNull(),
            f"the line has not the {len(schema.names)} columns that are declared",
        ),
        (F.rlike(_text(event_time), F.lit(TIME_OF_DAY)), "the event time is a time of day without a date"),
    ]
    checks += [
        (
            _text(field.name).isNotNull() & _cast(field).isNull(),
            reasons.of_column(field.name, field.dataType.simpleString(), _text(field.name)),
        )
        for field in schema.fields
    ]
    known = F.col("oo_refused")
    wrong = reduce(
        lambda otherwise, check: F.when(
            check[0], check[1] if isinstance(check[1], Column) else F.lit(check[1])
        ).otherwise(otherwise),
        reversed(checks),
        F.lit(None),
    )
    cast = [_cast(field).alias(field.name) for field in schema.fields]
    return parsed.select(
        *[F.col(c) for c in lines.columns if c != "oo_refused"], F.coalesce(known, wrong).alias("oo_refused"), *cast
    )


def _text(name: str) -> Column:
    return F.col(f"oo_texts.{quoted(name)}")


def _cast(field: StructField) -> Column:
    return _text(field.name).try_cast(field.dataType)
