"""Iceberg, read by pyiceberg."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg import types
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from onlyonce import settings
from onlyonce.declare.pipeline import Iceberg, Sink
from tests.contract.conformance_iceberg import CATALOG, configured
from tests.spark.sinks.conformance.stage import Kept, Stage, Team

THEIRS = Schema(types.NestedField(1, "id", types.StringType(), required=False), types.NestedField(2, "n", types.LongType(), required=False))


class IcebergAppend(Kept):
    """Appends."""

    point = "iceberg-after-commit"
    ways = ("tasks",)
    no_columns = ("structs",)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._given = configured(stage.log, settings.home())
        self._given.start()

    def close(self) -> None:
        self._given.stop()

    def _catalog(self) -> Catalog:
        return load_catalog(CATALOG, type="sql", uri=self.stage.log.url, warehouse=f"file://{settings.home()}/warehouse")

    @property
    def sink(self) -> Sink:
        return Iceberg(table=f"results.{self.stage.name}", catalog=CATALOG)

    teams: ClassVar[dict[str, Team]] = {
        "partition": Team("identity", {}), "a partition that is computed": Team("bucket[2]", refused="bucket"),
        "NOT NULL": Team("required", refused="requires the column theirs"),
    }  # fmt: skip

    def make(self, statements: str) -> None:
        fields = [*THEIRS.fields, *([types.NestedField(3, "theirs", types.StringType(), required=True)] if statements == "required" else [])]
        parts = [] if statements == "required" else [PartitionField(1, 1000, parse_transform(statements), "part")]
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists("results")
        catalog.create_table(f"results.{self.stage.name}", Schema(*fields), partition_spec=PartitionSpec(*parts))

    def read(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._catalog().load_table(f"results.{self.stage.name}").scan().to_arrow().to_pylist()
        return rows

    def other_writer(self) -> Any:
        def write() -> None:
            table = self._catalog().load_table(f"results.{self.stage.name}")
            table.append(pa.table({"id": ["theirs"]}, schema=pa.schema([pa.field("id", pa.large_string())])))

        return write
