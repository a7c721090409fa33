"""Where the table is that a source reads by the name that a catalog of Spark's has for it.

Who calls it: `source_files`, at each look. Errors: Refused for a name that the catalog does not have, and for what is
no Delta table.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from onlyonce.declare.declaration import declared_at
from onlyonce.declare.sources.tables import DeltaSource
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location
from onlyonce.session import catalog_tables


def location(spark: SparkSession, source: DeltaSource) -> Location:
    """The folder, or prefix, of the table. Raises Refused."""
    try:
        kind, where = catalog_tables.described(spark, str(source.table))
    except AnalysisException as error:
        raise Refused(
            f"{declared_at(source)}DeltaSource: Spark finds no Delta table {source.table!r} "
            f"({str(error).splitlines()[0][:200]})",
            data="nothing was read or written",
            hint="spark.sql.catalog.… in spark-defaults.conf, or the conf of the task, configures a catalog; SHOW "
            "TABLES lists what it has",
        ) from error
    if kind != "delta":
        raise Refused(
            f"{declared_at(source)}DeltaSource: {source.table!r} is a table of {kind}, and no Delta table",
            data="nothing was read or written",
            hint="read it with a source of your own (docs/how-to/own-source.md)",
        )
    return catalog_tables.place(where, f"{declared_at(source)}DeltaSource: the table {source.table!r}")
