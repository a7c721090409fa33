"""Where the table is that a catalog of Spark's has under a name: Hive's metastore, Unity, a REST catalog, whichever the session is configured with.

Who calls it: `source_files`, at each look. Errors: Refused for a name that the catalog does not have, and for what is no Delta table.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from onlyonce.declare.declaration import declared_at
from onlyonce.declare.sources.tables import DeltaSource
from onlyonce.model import location as locations
from onlyonce.model.errors import Refused
from onlyonce.model.location import Location
from onlyonce.session.names import quoted

LOCAL = "file:"


def location(spark: SparkSession, source: DeltaSource) -> Location:
    """The folder, or prefix, of the table. Raises Refused."""
    name = ".".join(map(quoted, str(source.table).split(".")))
    try:
        found = spark.sql(f"DESCRIBE DETAIL {name}").select("format", "location").first()
    except AnalysisException as error:
        raise Refused(
            f"{declared_at(source)}DeltaSource: Spark finds no Delta table {source.table!r} ({str(error).splitlines()[0][:200]})",
            data="nothing was read or written",
            hint="spark.sql.catalog.… in spark-defaults.conf, or the conf of the task, configures a catalog; SHOW TABLES lists what it has",
        ) from error
    if found is None or found.format != "delta":
        raise Refused(
            f"{declared_at(source)}DeltaSource: {source.table!r} is a table of {found.format if found else 'nothing'}, and no Delta table",
            data="nothing was read or written",
            hint="read it with a source of your own (docs/how-to/own-source.md)",
        )
    if not found.location.startswith(LOCAL):
        return locations.location(found.location, f"{declared_at(source)}DeltaSource: the table {source.table!r}")
    return Path("/" + found.location.removeprefix(LOCAL).lstrip("/"))
