"""Turns rows of typed columns into records. The declared columns are there; only what a type can't guarantee is checked.

`oo_line` is the row as JSON. An invalid record keeps it, and two records of one id are put in order by it. Who calls it: `parse`, which goes on
as with a line of JSON.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, StructField, StructType, TimestampNTZType, TimestampType

from onlyonce.model.values.line_values import NUL
from onlyonce.session import encoding
from onlyonce.session.names import quoted
from onlyonce.sources.parse.parse_lines import NOT_UTF8


def columns(rows: DataFrame, schema: StructType) -> DataFrame:
    """`rows` has oo_line and oo_refused (of files that can't be read) and the declared columns; a row that is wrong has its reason."""
    names = [F.col(quoted(name)) for name in schema.names]
    texts = [F.contains(F.col(quoted(f.name)), F.lit("\0")) for f in schema.fields if f.dataType == StringType()]
    bad: Column = F.coalesce(reduce(or_, texts), F.lit(False)) if texts else F.lit(False)
    wrong = F.when(bad, F.lit(NUL))
    for field in schema.fields:
        wrong = wrong.when(_without_year(field), F.lit(f"column {field.name} is no {field.dataType.simpleString()}: its year is not in 1 to 9999"))
    line = F.coalesce("oo_line", F.to_json(F.struct(*names), encoding.TIMES))
    refused = F.coalesce("oo_refused", F.when(~F.is_valid_utf8(line), F.lit(NOT_UTF8)), wrong)
    return rows.withColumns({"oo_refused": refused, "oo_line": line})


def _without_year(field: StructField) -> Column:
    # Spark's own dates and times reach further than those of any other system.
    if not isinstance(field.dataType, (DateType, TimestampType, TimestampNTZType)):
        return F.lit(False)
    year = F.year(F.col(quoted(field.name)))
    return (year < 1) | (year > 9999)
