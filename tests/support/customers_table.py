"""The table of customers by the changes of a Delta table: its change data feed, in the order of its versions."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from onlyonce import Delta, DeltaSource, Output, Pipeline, Postgres

TABLE = "raw/customers"
ME = "tests.support.customers_table:changes"


def changes(records: DataFrame) -> DataFrame:
    """The rows after each change, and which of them are deleted."""
    after = records.where(F.col("_change_type") != "update_preimage")
    return after.select(
        "key", "value", F.col("_commit_version").alias("position"), (F.col("_change_type") == "delete").alias("gone")
    )


CUSTOMERS = Pipeline(
    name="customers",
    source=DeltaSource(path=TABLE, changes=True),
    schema="key string, value long, _change_type string, _commit_version long, _commit_timestamp timestamp",
    record_id=(),
    event_time="_commit_timestamp",
    outputs=(
        Output(
            name="newest", transform=ME,
            sink=Postgres(table="results.customers", write="upsert", keys="key", sequence_by="position", delete_when="gone"),
        ),
        Output(
            name="lake", transform=ME,
            sink=Delta(path="customers", write="upsert", keys="key", sequence_by="position", delete_when="gone"),
        ),
    ),
)  # fmt: skip
PIPELINES = [CUSTOMERS]
