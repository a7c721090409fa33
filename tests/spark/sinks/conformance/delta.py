"""Delta, read by DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from onlyonce import settings
from onlyonce.api.pipeline import Delta, Sink
from tests.spark.sinks.conformance.stage import LONGER, OF_DELTA, TOO_LONG, Kept, Team, as_versions, held_now
from tests.support.duckdb_reader import EXTENSION

GIVEN = "id STRING NOT NULL, n BIGINT"
TEAMS = {
    "its own values": Team(
        f"CREATE TABLE theirs_table ({GIVEN}, twice BIGINT GENERATED ALWAYS AS (n * 2), theirs STRING) USING delta " "PARTITIONED BY (n); "
        "ALTER TABLE theirs_table ADD CONSTRAINT few CHECK (n > 0); ALTER TABLE theirs_table ADD CONSTRAINT " "not_given CHECK (theirs IS NULL)",
        {"theirs": None, "twice": lambda row: 2 * row["n"]}, has=("generated", "NOT NULL", "CHECK", "partition"),
    ),
    "NOT NULL": Team(f"CREATE TABLE theirs_table ({GIVEN}, theirs STRING NOT NULL) USING delta", refused="column theirs is NOT NULL"),
    "CHECK": Team(f"CREATE TABLE theirs_table ({GIVEN}) USING delta; ALTER TABLE theirs_table ADD CONSTRAINT few CHECK (n < " "2)", refused="constraint few"),
    "CHECK of a column that is not given": Team(
        f"CREATE TABLE theirs_table ({GIVEN}, theirs STRING) USING delta; ALTER TABLE theirs_table ADD CONSTRAINT " "given CHECK (theirs IS NOT NULL)",
        refused="constraint given", has=("CHECK",),
    ),
    "narrower type": Team("CREATE TABLE theirs_table (id STRING, n INT) USING delta", refused="column n is bigint, but in .* it is int"),
    "shorter strings": Team("CREATE TABLE theirs_table (id VARCHAR(3), n BIGINT) USING delta", refused=TOO_LONG, rows=LONGER, has=("narrower type",)),
    "default": Team(
        f"CREATE TABLE theirs_table ({GIVEN}, theirs STRING DEFAULT 'them') USING delta TBLPROPERTIES " "('delta.feature.allowColumnDefaults' = 'supported')",
        refused="default",
    ),
    "identity": Team(f"CREATE TABLE theirs_table (number BIGINT GENERATED ALWAYS AS IDENTITY, {GIVEN}) USING delta", refused="identity"),
}  # fmt: skip


class DeltaAppend(Kept):
    """Appends."""

    point = "delta-after-write"
    kills = OF_DELTA
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

    keys: ClassVar[dict[str, Any]] = {"write": "upsert", "keys": "id"}
    ways = ("tasks",)


class DeltaHistory(DeltaAppend):
    """Keeps the versions of each id."""

    keys: ClassVar[dict[str, Any]] = {"write": "history", "keys": "id", "sequence_by": "valid_from"}
    ways = ("tasks",)
    slow_refusals = True

    def write(
        self, batch: int, rows: pa.Table, way: str = "tasks", point: str | None = None, kills: Sequence[str] = ()
    ) -> None:
        super().write(batch, as_versions(rows), way, point, kills)

    def read(self) -> list[dict[str, Any]]:
        return held_now(super().read())
