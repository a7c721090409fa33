"""Check a team's Delta table before anything is written to it: by `onlyonce check`, and at the start of a run."""

from __future__ import annotations

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from onlyonce.declare.pipeline import Delta, Output
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location
from onlyonce.session.names import quoted
from onlyonce.sinks.delta import delta_features
from onlyonce.storage import opening

FORGETS = "delta.setTransactionRetentionDuration"
"""After this time a table forgets which batches it has; nothing tells how long a killed run waits for its next
start."""


def check(table: DeltaTable, path: Location, output: Output) -> None:
    """Raise Refused for a table that asks for what is not done here, or that forgets its transactions."""
    assert isinstance(output.sink, Delta)
    delta_features.refuse(table, path, changes=output.sink.write != "append" or output.late == "recompute")
    kept = table.metadata().configuration.get(FORGETS)
    if kept is not None:
        raise Refused(
            f"{path} forgets its transactions after {kept} ({FORGETS})",
            data="nothing was written; a batch that is tried again after that time would be in the table twice",
            hint=f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES ('{FORGETS}'), and set no default of it "
            "(spark.databricks.delta.properties.defaults.setTransactionRetentionDuration)",
        )


def check_one_row_a_key(spark: SparkSession, path: Location, output: str, keys: tuple[str, ...], date: str) -> None:
    """Raise Refused for a table by dates, as they were made once for these keys too, which has a key on two of them."""
    if date not in opening.table(path).metadata().partition_columns:
        return
    rows = spark.read.format("delta").load(str(path))
    if twice := rows.groupBy(*map(quoted, keys)).count().filter("count > 1").limit(1).collect():
        raise Refused(
            f"output {output}: {path} has {twice[0]['count']} rows with the keys "
            f"{dict(zip(keys, twice[0][: len(keys)], strict=True))}, one for each date, as an older version wrote them",
            data="nothing was written; an upsert would change all of them, and never make them one",
            hint="leave one row of each key (DELETE the others, by window_start the older ones), or name another path",
        )
