"""The columns of a MySQL sink: their types there, and the one text in which a row travels.

Pure, but for Spark's expressions.

A row is a JSON array of texts, made by Spark, so that JSON_TABLE loads many rows by one statement with one parameter.
Each text is what MySQL reads as a value of the column's type, exactly: a number in full, a time in UTC, bytes in
hexadecimal.

Who calls it: `sink_mysql`, `mysql_table`, `mysql_rows`.
"""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql.types import BinaryType, DecimalType, StringType, StructField, StructType

from onlyonce.model.errors import Refused
from onlyonce.session import encoding

TYPES = {
    "string": "longtext",
    "bigint": "bigint",
    "int": "int",
    "smallint": "smallint",
    "tinyint": "tinyint",
    "boolean": "tinyint",
    "double": "double",
    "float": "float",
    "date": "date",
    "binary": "longblob",
    "timestamp": "datetime(6)",
    "timestamp_ntz": "datetime(6)",
    "variant": "longtext",
}
STRINGS, BYTES = (
    re.compile(rf"(long|medium|tiny)?{kind}|var{short}\(\d+\)")
    for kind, short in (("text", "char"), ("blob", "binary"))
)
"""What may hold a string, or bytes, as they are: a CHAR would cut the spaces at its end, and a BINARY adds zeros."""
KEY_BYTES = 2800
"""Of the 3,072 that an index of InnoDB takes, for texts and bytes; the rest is for keys of other types."""
MOST_SCALE = 30


def type_of(field: StructField, keys: tuple[str, ...], schema: StructType) -> str:
    """The type of a column there.

    A text among the keys is a VARCHAR, since an index takes no longer ones. Raises Refused.
    """
    kind = field.dataType
    if isinstance(kind, DecimalType):
        if kind.scale > MOST_SCALE:
            raise Refused(
                f"column {field.name} is {kind.simpleString()}; MySQL's DECIMAL has at most {MOST_SCALE} digits "
                "after the point",
                hint="cast it in the transform",
            )
        return f"decimal({kind.precision},{kind.scale})"
    found = TYPES.get(kind.simpleString(), "longtext")
    if field.name in keys and found in ("longtext", "longblob"):
        indexed = [
            f
            for f in schema.fields
            if f.name in keys and TYPES.get(f.dataType.simpleString(), "longtext")[:4] == "long"
        ]
        most = min(255, KEY_BYTES // (4 * len(indexed)))
        return f"varchar({most})" if found == "longtext" else f"varbinary({most})"
    return found


def same(wanted: str, found: str) -> bool:
    """Return whether a column of a table holds the values that are wanted, up to its length.

    Servers write the same type in several ways.
    """
    there = plain(found)
    for kinds in (STRINGS, BYTES):
        if kinds.fullmatch(wanted):  # a key is of a type that an index takes
            return kinds.fullmatch(there) is not None and (wanted.startswith("long") or there.startswith("var"))
    return there == wanted


def plain(found: str) -> str:
    """A type as the server tells it, without the width of display that some servers tell."""
    return re.sub(r"^(tiny|small|medium|big)?int\(\d+\)", r"\1int", found.lower())


def row(schema: StructType) -> Column:
    """A row as a JSON array of texts, in the order of its columns. What `JSON_TABLE` gives back is `loaded`."""
    return encoding.strings(encoding.in_mysql(field) for field in schema.fields)


def binary(schema: StructType) -> tuple[bool, ...]:
    """Which columns travel in hexadecimal."""
    return tuple(isinstance(field.dataType, BinaryType) for field in schema.fields)


def texts(schema: StructType) -> tuple[str, ...]:
    """The columns of texts, which are put in order by their bytes."""
    return tuple(field.name for field in schema.fields if isinstance(field.dataType, StringType))
