"""Adds columns to a Delta table that the declaration or the function has gained since the table was made.

A new column is added before anything is written. A changed type is refused: a table has one type for a column, and the
old rows would be lost or guessed. Called by `events` and the Delta sink.
"""

from __future__ import annotations

import json

from deltalake.exceptions import DeltaError
from pyspark.sql.types import StructField, StructType

from onlyonce.model.sinks import column_types
from onlyonce.model.storage.location import Location
from onlyonce.storage import opening


def fit(path: Location, wanted: StructType, whose: str) -> None:
    """Add the columns that the table lacks, at its end.

    Raises Refused for one whose type has changed; then nothing is added.
    """
    there = _there(path)
    # By their names: whether a null may be inside a column is judged by the values (`delta_inside`).
    kinds = ({field.name: field.dataType.simpleString() for field in fields} for fields in (wanted, there.values()))
    column_types.refuse_other(whose, path, *kinds)
    missing = [field for field in wanted.fields if field.name.lower() not in there]
    if not missing:
        return
    try:
        opening.add_columns(path, StructType(missing).json())
    except DeltaError:
        # Two drivers at once: one of them adds the columns, the other is told that they are there.
        if not {field.name.lower() for field in missing} <= _there(path).keys():
            raise


def _there(path: Location) -> dict[str, StructField]:
    # Spark takes capitals and small letters for the same column.
    return {
        field.name.lower(): field for field in StructType.fromJson(json.loads(opening.table(path).schema().to_json()))
    }
