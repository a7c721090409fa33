"""Iceberg, read by pyiceberg."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg import types
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform

from onlyonce import settings
from onlyonce.api.pipeline import Iceberg, Sink
from tests.contract.conformance_iceberg import CATALOG, configured
from tests.spark.sinks.conformance.stage import OF_ICEBERG, Kept, Stage, Team

THEIRS = {"id": types.StringType(), "n": types.LongType(), "theirs": types.StringType()}


class IcebergAppend(Kept):
    """Appends."""

    point = "iceberg-after-commit"
    kills = OF_ICEBERG
    ways = ("tasks",)
    no_columns = ("structs",)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._given = configured(stage.log, settings.home())
        self._given.start()

    def close(self) -> None:
        self._given.stop()

    def _catalog(self) -> Catalog:
        return load_catalog(
            CATALOG, type="sql", uri=self.stage.log.url, warehouse=f"file://{settings.home()}/warehouse"
        )

    @property
    def sink(self) -> Sink:
        return Iceberg(table=f"results.{self.stage.name}", catalog=CATALOG)

    teams: ClassVar[dict[str, Team]] = {
        "its own values": Team("identity(n) required n", {}, has=("NOT NULL", "partition")),
        "a partition that is computed": Team("bucket[2](n)", refused="bucket", has=("partition",)),
        "narrower type": Team("int identity(n)", refused="column n is long, but in .* it is int"),
        "NOT NULL": Team("identity(n) required theirs", refused="requires the column theirs"),
    }

    def make(self, statements: str) -> None:
        transform, required = re.match(r"(.*)\(n\)(?: required (.*))?", statements).groups()  # type: ignore[union-attr]
        kinds = THEIRS | ({"n": types.IntegerType()} if transform.startswith("int ") else {})
        fields = [
            types.NestedField(at, name, kind, required=name == required)
            for at, (name, kind) in enumerate(kinds.items(), 1)
        ]
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists("results")
        spec = PartitionSpec(PartitionField(2, 1000, parse_transform(transform.removeprefix("int ")), "part"))
        catalog.create_table(f"results.{self.stage.name}", Schema(*fields), partition_spec=spec)

    def read(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (
            self._catalog().load_table(f"results.{self.stage.name}").scan().to_arrow().to_pylist()
        )
        return rows

    def other_writer(self) -> Any:
        def write() -> None:
            table = self._catalog().load_table(f"results.{self.stage.name}")
            table.append(pa.table({"id": ["theirs"]}, schema=pa.schema([pa.field("id", pa.large_string())])))

        return write
