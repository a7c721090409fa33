"""Delta, read by DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from onlyonce import settings
from onlyonce.declare.pipeline import Delta, Sink
from tests.spark.sinks.conformance.stage import Kept, Team
from tests.support.duckdb_reader import EXTENSION

TEAMS = {
    "its own values": Team(
        "CREATE TABLE theirs_table (id STRING NOT NULL, n BIGINT, twice BIGINT GENERATED ALWAYS AS (n * 2), theirs STRING) USING delta PARTITIONED BY (n); "
        "ALTER TABLE theirs_table ADD CONSTRAINT few CHECK (n > 0)",
        {"theirs": None, "twice": lambda row: 2 * row["n"]},
    ),
    "CHECK": Team("CREATE TABLE theirs_table (id STRING, n BIGINT) USING delta; ALTER TABLE theirs_table ADD CONSTRAINT few CHECK (n < 2)", refused="few"),
    "default": Team(
        "CREATE TABLE theirs_table (id STRING, n BIGINT, theirs STRING DEFAULT 'them') USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        refused="default",
    ),
    "identity": Team("CREATE TABLE theirs_table (number BIGINT GENERATED ALWAYS AS IDENTITY, id STRING, n BIGINT) USING delta", refused="identity"),
}  # fmt: skip


class DeltaAppend(Kept):
    """Appends."""

    point = "delta-after-write"
    keys: ClassVar[dict[str, Any]] = {}

    teams = TEAMS

    @property
    def sink(self) -> Sink:
        return Delta(**self.keys)

    @property
    def path(self) -> Path:
        return Path(str(settings.tables_location() / self.stage.name / self.stage.name))

    def make(self, statements: str) -> None:
        for statement in statements.split("; "):
            self.stage.spark.sql(statement.replace("theirs_table", f"delta.`{self.path}`"))

    def read(self) -> list[dict[str, Any]]:
        with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
            connection.execute(f"LOAD '{EXTENSION}'; SET TimeZone = 'UTC'")
            found = connection.execute(f"SELECT * FROM delta_scan('{self.path}')")
            names = [one[0] for one in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def other_writer(self) -> Any:
        return lambda: write_deltalake(str(self.path), pa.table({"id": ["theirs"]}), mode="append", schema_mode="merge")


class DeltaUpsert(DeltaAppend):
    """Upserts by the id."""

    teams: ClassVar[dict[str, Team]] = {"its own values": TEAMS["its own values"]}

    keys: ClassVar[dict[str, Any]] = {"write": "upsert", "keys": "id"}
    ways = ("tasks",)
