"""The reason why a line has no record of the declared types: the column, its type, and the beginning of the value.

The expressions stand behind a condition, so only a line that is already refused is looked at again. They depend on the line
alone, so a replay and both ways of reading give the same reason.

Who calls it: `parse`, `parse_csv`. Of several wrong columns the first as declared is named.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from onlyonce.session.names import quoted

SHOWN = 40
"""Of what was there, in signs. The whole line is in `oo_raw`."""
NO_OBJECT = "the line is no JSON object of the declared types"


def of_column(name: str, kind: str, text: Column) -> Column:
    """The reason for one column."""
    return F.concat(F.lit(f"column {name} is no {kind}: "), _start(text))


def of_json(columns: StructType, beside: tuple[str, ...]) -> Column:
    """The reason for a line that the parser refuses. It leaves a column null whose value does not fit: of these, the first that the line has."""
    fields = [field for field in columns.fields if field.name not in beside]
    each = [
        F.struct(
            F.lit(field.name).alias("name"),
            F.lit(field.dataType.simpleString()).alias("kind"),
            F.col(quoted(field.name)).isNull().alias("unread"),
        )
        for field in fields
    ]
    # In an array of one, so that the line is read once for all columns.
    texts = F.array(F.from_json("oo_line", "map<string,string>", {"allowSingleQuotes": "false"}))

    def first_wrong(values: Column) -> Column:
        wrong = F.filter(F.array(*each), lambda one: one["unread"] & values[one["name"]].isNotNull())
        return F.get(
            F.transform(
                wrong,
                lambda one: F.concat(
                    F.lit("column "),
                    one["name"],
                    F.lit(" is no "),
                    one["kind"],
                    F.lit(": "),
                    _start(values[one["name"]]),
                ),
            ),
            F.lit(0),
        )

    named = F.get(F.transform(texts, first_wrong), F.lit(0)) if fields else F.lit(None)
    return F.coalesce(named, F.concat(F.lit(f"{NO_OBJECT}: "), _start(F.col("oo_line"))))


def _start(text: Column) -> Column:
    # No sign that a terminal, or PostgreSQL, can't take.
    short = F.regexp_replace(F.left(text, F.lit(SHOWN)), r"\p{Cntrl}", "�")
    return F.when(F.length(text) > SHOWN, F.concat(short, F.lit("…"))).otherwise(short)
