"""Show a string column in a reason as `line_values.shown` shows a value, as an expression that is computed for refused
rows only."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from onlyonce.model.values.line_values import SHOWN
from onlyonce.model.visible import HIDDEN


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
