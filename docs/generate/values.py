"""The page of the conversion table, from the conversions themselves (`onlyonce/model/values/conversions.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from onlyonce.model.values import conversions, id_strings
from onlyonce.model.values.conversions import SCALARS, Cell, Number, Unfit

HEAD = """# Values

What a value in a line of JSON or CSV means for each declared type. A value that a type does not take makes its record `invalid`; the reason names
the column and the value. The table uses no clock, no locale and no time zone database, so a replay gives the same values.

- **JSON**: a line is one object by RFC 8259, with nothing but white space around it. A field that is there twice, NaN, the NUL character and half a
  surrogate pair make the line invalid. A missing field is null.
- **CSV**: a line by RFC 4180, each column at its place. An empty value is null; `""` is the empty string, and null for other types. Spaces around a value
  count for strings only.
- **Parquet, Avro, Protobuf, tables**: the types of the columns say what a value is. A date or time outside the years 1 to 9999 is invalid here too.
"""
IDS = """## The strings of a record's id

An id is made of the values of its columns, and not of how a format writes them: the same values have the same id in JSON, CSV, Parquet, Avro, Kafka and tables.
The strings below are hashed in the order of `record_id`, first from the seed 42, each hash being the seed of the next one (XXH64, UTF-8). The second half of the id begins with the string `low`. If each of several sources has ids of its own, the name of the source goes first. Arrays, maps and structs are in no id.
"""
NESTED: dict[str, Callable[..., Any]] = {
    "decimal(p,s)": conversions.decimal, "array<…>": conversions.array, "map<string,…>": conversions.mapping, "struct<…>": conversions.structure,
}  # fmt: skip
FORMS: dict[str, Any] = {
    '`"ab"`': "ab", '`"7"`': "7", "`7`": Number("7"), "`1.5`": Number("1.5"), "`1e400`": Number("1e400"), "`true`": True,
    '`"2026-03-01"`': "2026-03-01", '`"2026-03-01T12:00+01:00"`': "2026-03-01T12:00+01:00", '`"12:00"`': "12:00", '`"20260301"`': "20260301",
    "`1767225600000`": Number("1767225600000"), "`[1]`": [Number("1")], '`{"a":1.10}`': {"a": Number("1.10")}, "CSV `7`": Cell("7"), "CSV `True`": Cell("True"),
    "CSV `2026-03-01`": Cell("2026-03-01"), "CSV `1767225600`": Cell("1767225600"),
}  # fmt: skip


def page() -> str:
    """The page: what each type takes, and for each form what becomes of an example."""
    rules = [f"| `{kind}` | {_cell(_rule(kind))} |" for kind in (*SCALARS, *NESTED)]
    parts = [HEAD, "## What each type takes\n", "| type | takes |\n|---|---|", *rules, "", "## Examples\n", "A dash is an invalid record.\n"]
    kinds = [*SCALARS, "decimal(4,1)"]
    parts += ["| type | " + " | ".join(FORMS) + " |", "|---" * (len(FORMS) + 1) + "|"]
    parts += [f"| `{kind}` | " + " | ".join(_cell(_example(kind, value)) for value in FORMS.values()) + " |" for kind in kinds]
    parts += ["", IDS, "| type | string |", "|---|---|"]
    parts += [f"| `{kind}` | {_cell(inspect.getdoc(form) or '')} |" for kind, form in id_strings.FORMS.items()]
    return "\n".join([*parts, ""])


def _rule(kind: str) -> str:
    makes = NESTED.get(kind) or SCALARS[kind]
    found = inspect.getdoc(makes) or inspect.getdoc(conversions.whole if kind in conversions.BITS else conversions.floating)
    assert found
    return " ".join(found.split())


def _example(kind: str, value: Any) -> str:
    try:
        found = conversions.of_type(kind)(value, [])
    except Unfit:
        return "–"
    return str(found) if not isinstance(found, bytes) else repr(found)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
