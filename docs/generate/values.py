"""The page of the conversion table, from the conversions themselves (`onlyonce/core/conversions.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from docs.generate.table_cells import cell
from onlyonce.core import conversions, line_values
from onlyonce.core.conversions import SCALARS, Cell, Number, Unfit

HEAD = """# Values

What a value in a line of JSON or CSV means for each declared type. A value that a type does not take makes its record `invalid`; the reason names
the column and the value. The table uses no clock, no locale and no time zone database, so a replay gives the same values.

- **JSON**: a line is one object by RFC 8259, with only white space around it. A repeated field, NaN, the NUL character and half a
  surrogate pair make the line invalid, at any depth, even in a field that is not declared. So do more than 1,000 levels. A missing field is null. The names of fields are compared without
  their escapes; capitals and small letters differ.
- **CSV**: a record by RFC 4180 ([which may have several lines](sources.md#csv)), each column at its place, each character except NUL allowed, a carriage return or line feed within quotes only. If a record does not have as many values as there are columns, it is invalid. A line with only spaces is invalid too.
  An empty value is null. For `string` and `binary`, `""` is the empty value of the type, and spaces around a value count. For other types `""` is null, and such spaces don't count.
- Lines of both are UTF-8, else the line is invalid. A byte order mark at the beginning of a line is not part of it.
- **Parquet, Avro, Protobuf, tables, custom readers**: the types of the columns say what a value is ([below](#columns)).
"""
COLUMNS = """## Columns

A declared type takes these types of columns of Parquet, Avro, Protobuf, tables and custom readers, even within arrays, maps and structs. A column of another type makes its file, or its message, invalid,
even if all its values are null. How a column stores its values (width, sign, dictionary, fixed size) does not matter.

| declared | takes |
|---|---|
| `tinyint` to `bigint` | integers |
| `float`, `double` | integers, floats, doubles |
| `decimal(p,s)` | integers, decimals |
| `string`, `binary`, `boolean` | the same type |
| `date` | dates, including those stored as milliseconds |
| each | a column without a type, which has only nulls |
| `timestamp` | times of any unit, with or without a zone; without one it is UTC. A date, a time of day and a duration are not times |
| `timestamp_ntz` | times of any unit without a zone |
| `array`, `map`, `struct` | the same, part by part; a missing field of a struct is null, and another one counts as unknown |

Null is a value of every type. A value that its declared type can't hold, even within an array, a map or a struct, makes its record invalid, and the reason names the column and the value:

- an integer or a decimal out of range, or with more digits behind the point than the declared type has. The value counts, so zeros at the end of a decimal do not,
- an integer beyond 2^24 in size as `float`, or beyond 2^53 as `double`,
- a finite double whose nearest `float` is infinite. Other doubles become the nearest `float`; NaN and infinity stay as they are,
- a year outside 1 to 9999, in UTC. Times are cut to microseconds, and dates stored as milliseconds to days, towards the past,
- a string, including a key of a map, that is not UTF-8 or has the NUL character.

A repeated key of a map is kept twice. An undeclared field of a struct is not checked; it counts as unknown.
"""
IDS = """## The strings of a record's id

An id depends on the values of its columns, and not on how a format writes them: the same values have the same id in JSON, CSV, Parquet, Avro, Kafka and tables.
The strings below are hashed in the order of `record_id`, first from the seed 42, each hash being the seed of the next one (XXH64, UTF-8). The second half of the id begins with the string `low`. If each of several sources has ids of its own, the name of the source is hashed first. Arrays, maps and structs are in no id.
"""
NESTED: dict[str, Callable[..., Any]] = {
    "decimal(p,s)": conversions.decimal,
    "array<…>": conversions.array,
    "map<string,…>": conversions.mapping,
    "struct<…>": conversions.structure,
    "a time with `formats`": conversions.formatted,
}
FORMS: dict[str, Any] = {
    '`"ab"`': "ab",
    '`"7"`': "7",
    "`7`": Number("7"),
    "`1.5`": Number("1.5"),
    "`1e400`": Number("1e400"),
    "`true`": True,
    '`"2026-03-01"`': "2026-03-01",
    '`"2026-03-01T12:00+01:00"`': "2026-03-01T12:00+01:00",
    '`"12:00"`': "12:00",
    '`"20260301"`': "20260301",
    "`1767225600000`": Number("1767225600000"),
    "`[1]`": [Number("1")],
    '`{"a":1.10}`': {"a": Number("1.10")},
    "CSV `7`": Cell("7"),
    "CSV `True`": Cell("True"),
    "CSV `2026-03-01`": Cell("2026-03-01"),
    "CSV `1767225600`": Cell("1767225600"),
}


def page() -> str:
    """The page: what each type takes, and for each form what becomes of an example."""
    rules = [f"| `{kind}` | {cell(_rule(kind))} |" for kind in (*SCALARS, *NESTED)]
    parts = [
        HEAD,
        "## What each type takes\n",
        "| type | takes |\n|---|---|",
        *rules,
        "",
        "## Examples\n",
        "A dash is an invalid record.\n",
    ]
    kinds = [*SCALARS, "decimal(4,1)"]
    parts += ["| type | " + " | ".join(FORMS) + " |", "|---" * (len(FORMS) + 1) + "|"]
    parts += [
        f"| `{kind}` | " + " | ".join(cell(_example(kind, value)) for value in FORMS.values()) + " |" for kind in kinds
    ]
    parts += ["", COLUMNS, IDS, "| type | string |", "|---|---|"]
    parts += [f"| `{kind}` | {cell(inspect.getdoc(form) or '')} |" for kind, form in line_values.FORMS.items()]
    return "\n".join([*parts, ""])


def _rule(kind: str) -> str:
    makes = NESTED.get(kind) or SCALARS[kind]
    found = inspect.getdoc(makes) or inspect.getdoc(
        conversions.whole if kind in conversions.BITS else conversions.floating
    )
    assert found
    return " ".join(found.split())


def _example(kind: str, value: Any) -> str:
    try:
        found = conversions.of_type(kind)(value, [])
    except Unfit:
        return "–"
    return str(found) if not isinstance(found, bytes) else repr(found)
