"""The name that a sink's Delta table has in a catalog of Spark's, beside its path.

The path is what the platform works with, and what its log names. The name is for readers: each run looks that the
catalog has this table under it, and enters it where it has none. A catalog knows a name and a location; no commit of
the table comes of it.

Who calls it: `sink_delta`, once the table is there. Errors: Refused for a name that is another table's, and for a
catalog or schema that is not there.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from onlyonce.declare.declaration import declared_at
from onlyonce.declare.pipeline import Output
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location
from onlyonce.session import catalog_tables


def enter(spark: SparkSession, output: Output, name: str, path: Location) -> None:
    """Have the table under its name."""
    whose = f"{declared_at(output)}output {output.name}: "
    there = _there(spark, name, whose)
    if there is None:
        try:
            spark.catalog.createTable(catalog_tables.full(name), path=str(path), source="delta")
        except AnalysisException as error:
            raise Refused(
                f"{whose}Spark's catalog does not take the table {name!r} ({str(error).splitlines()[0][:200]})",
                data="nothing was written; the table is at its path",
                hint="make the schema, or correct the name; spark.sql.catalog.… in spark-defaults.conf, or the "
                "conf of the task, configures a catalog",
            ) from error
    elif there != path:
        raise Refused(
            f"{whose}{name!r} is a table at {there} in Spark's catalog, and the output's is at {path}",
            data="nothing was written",
            hint=f"if it is the one that is meant: Delta(path={str(there)!r}, table={name!r}); else give the "
            "output another name there",
        )


def _there(spark: SparkSession, name: str, whose: str) -> Location | None:
    """Where the table of that name is."""
    try:
        kind, where = catalog_tables.described(spark, name)
    except AnalysisException as error:
        if error.getCondition() in (
            "TABLE_OR_VIEW_NOT_FOUND",
            "DELTA_TABLE_NOT_FOUND",
            "SCHEMA_NOT_FOUND",
            "DELTA_MISSING_DELTA_TABLE",
        ):
            return None
        raise
    if kind != "delta":
        raise Refused(
            f"{whose}{name!r} is a table of {kind} in Spark's catalog",
            data="nothing was written",
            hint="give the output another name there",
        )
    return catalog_tables.place(where, f"{whose}the table {name!r}")
