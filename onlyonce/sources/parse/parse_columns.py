"""Turns rows of typed columns into records. The declared columns are there; only what a type can't guarantee is checked.

`oo_line` is the row as JSON. An invalid record keeps it, and two records of one id are put in order by it. Who calls it: `parse`, which goes on
as with a line of JSON.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from onlyonce.session.names import quoted

EXACT = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}  # fmt: skip


def columns(rows: DataFrame, schema: StructType) -> DataFrame:
    """`rows` has oo_line and oo_refused (of files that can't be read) and the declared columns; a row that is wrong has its reason."""
    names = [F.col(quoted(name)) for name in schema.names]
    texts = [F.contains(F.col(quoted(f.name)), F.lit("\0")) for f in schema.fields if f.dataType == StringType()]
    bad: Column = F.coalesce(reduce(or_, texts), F.lit(False)) if texts else F.lit(False)
    wrong = F.when(bad, F.lit("a text holds the sign U+0000, which PostgreSQL can't store"))
    return rows.withColumns(
        {
            "oo_refused": F.coalesce("oo_refused", wrong),
            "oo_line": F.coalesce("oo_line", F.to_json(F.struct(*names), EXACT)),
        }
    )
