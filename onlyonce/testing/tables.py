"""The tables of a pipeline's lookups, as a test gives them.

Who calls it: `running`. Errors: Refused for a table that is not given, or that no output looks up; for a key that is no
column, or is there twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from onlyonce.declare import loading, parameters
from onlyonce.declare.declaration import unknown
from onlyonce.declare.pipeline import Pipeline
from onlyonce.lookups import tables
from onlyonce.lookups.seen import Seen
from onlyonce.model.errors import Refused

Table: TypeAlias = Sequence[Mapping[str, Any]] | DataFrame
"""Rows as dicts, or a DataFrame where the types must be said."""


def given(spark: SparkSession, pipeline: Pipeline, of_test: Mapping[str, Table]) -> dict[str, DataFrame]:
    """The tables by name, for the functions of all outputs."""
    lookups = {lookup.name: lookup for output in pipeline.outputs for lookup in output.lookups}
    for output in loading.with_function(pipeline.outputs):
        for function in loading.functions(output):
            parameters.check(output, function)
    for name in of_test:
        if name not in lookups:
            raise unknown("lookup", name, sorted(lookups))
    for name in lookups:
        if name not in of_test:
            raise Refused(
                f"pipeline {pipeline.name} looks up {name}, and the test gives no such table",
                data="only this test has read the rows",
                hint=f"run(PIPELINE, rows, lookups={{{name!r}: [{{…}}, …]}})",
            )
    frames = {
        name: table if isinstance(table, DataFrame) else spark.createDataFrame([dict(row) for row in table])
        for name, table in of_test.items()
    }
    for name, lookup in lookups.items():
        tables.check_columns(lookup, frames[name])
    tables.check_keys(lookups, Seen({name: {"version": "of the test"} for name in frames}, frames))
    return frames
