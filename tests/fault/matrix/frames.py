"""What stands in for Spark's frames where no JVM is: as much of them as the product's drivers touch.

Rows are dictionaries, made lazily, so that a plan runs when it is collected or written, as Spark's does. Writes go to
real Delta tables by delta-rs, with Spark's options and its silence: a transaction at or below the highest version of
its app id is skipped without running the plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import parquet
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from onlyonce.api.pipeline import split_ddl
from onlyonce.sinks.base.content import HASH, Key, Tally
from onlyonce.tables import commit
from onlyonce.testing.suite import hash_of

Dict = dict[str, Any]
SPARKS_CONFLICT = "ConcurrentTransactionException"


class Expression:
    """A column: what it gives for a row. As much as staging asks for."""

    def __init__(self, of: Callable[[Dict], Any]) -> None:
        self.of = of

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression(lambda row: self.of(row) == other)

    def __and__(self, other: Expression) -> Expression:
        return Expression(lambda row: self.of(row) and other.of(row))

    def cast(self, kind: object) -> Expression:
        return (
            Expression(lambda row: None if (value := self.of(row)) is None else str(value))
            if kind == "string"
            else self
        )


FUNCTIONS = SimpleNamespace(
    col=lambda name: Expression(lambda row: row[name.strip("`")]), lit=lambda value: Expression(lambda row: value),
    array=lambda *parts: Expression(lambda row: [part.of(row) for part in parts]),
    to_json=lambda value: Expression(lambda row: json.dumps(value.of(row))),
)  # fmt: skip
"""In the place of pyspark.sql.functions, which asks for a JVM."""


KINDS = {
    "string": StringType(),
    "long": LongType(),
    "int": IntegerType(),
    "timestamp": TimestampType(),
    "array<long>": ArrayType(LongType()),
}


def schema_of(ddl: str) -> StructType:
    """In the place of `StructType.fromDDL`, which asks for a JVM: the types that the platform's own tables have."""
    fields = []
    for part in split_ddl(ddl):
        name, kind = part.strip().split(" ", 1)
        nested = kind.strip().removeprefix("struct<").removesuffix(">").replace(":", " ")
        fields.append(StructField(name, schema_of(nested) if "struct<" in kind else KINDS[kind.strip()]))
    return StructType(fields)


class Frame:
    """Rows that are made when they are needed; `persist` keeps them."""

    def __init__(self, make: Callable[[], list[Dict]], schema: StructType) -> None:
        self._make, self.schema = make, schema
        self._kept: list[list[Dict]] | None = None
        self.columns = schema.names
        self.sparkSession = Session()

    def rows(self) -> list[Dict]:
        """Run the plan, or give what was kept of it."""
        if self._kept is None:
            return self._make()
        if not self._kept:
            self._kept.append(self._make())
        return self._kept[0]

    def persist(self) -> Frame:
        held = Frame(self.rows, self.schema)
        held._kept = []
        return held

    @property
    def is_cached(self) -> bool:
        return self._kept is not None

    def unpersist(self) -> None:
        self._kept = None

    def count(self) -> int:
        return len(self.rows())

    def collect(self) -> list[Any]:
        return [SimpleNamespace(**row, asDict=lambda row=row: row) for row in self.rows()]

    def withColumn(self, name: str, value: Expression) -> Frame:
        schema = StructType([*self.schema.fields]).add(name, "long" if name in ("oo_batch", HASH) else "string")
        return Frame(lambda: [row | {name: value.of(row)} for row in self.rows()], schema)

    def filter(self, wanted: Expression) -> Frame:
        return Frame(lambda: [row for row in self.rows() if wanted.of(row)], self.schema)

    def drop(self, *names: str) -> Frame:
        kept = [n for n in self.columns if n not in names]
        schema = StructType([f for f in self.schema.fields if f.name in kept])
        return Frame(lambda: [{n: row[n] for n in kept} for row in self.rows()], schema)

    def sortWithinPartitions(self, name: str) -> Frame:
        return Frame(lambda: sorted(self.rows(), key=lambda row: row[name]), self.schema)

    def mapInArrow(self, work: Callable[[Any], Any], _: object) -> SimpleNamespace:
        """One task, which runs when its result is asked for."""
        schema = to_arrow_schema(self.schema, timezone="UTC")

        def result() -> pa.Table:
            made = list(work(iter(pa.Table.from_pylist(self.rows(), schema=schema).to_batches())))
            return pa.Table.from_batches(made) if made else pa.table({})

        return SimpleNamespace(toArrow=result)


def hashed(rows: Frame) -> Frame:
    """In the place of `content_hash.hashed`."""
    return rows.withColumn(HASH, Expression(hash_of))


def tallied(rows: Frame, schema: StructType, by: Sequence[object] = ()) -> dict[Key, Tally]:
    """In the place of `content_hash.tallied`: the one group with the content of all rows."""
    del schema
    found = Tally(HASH, {})
    found.add(pa.record_batch({HASH: pa.array([hash_of(row) for row in rows.rows()], pa.int64())}))
    return {(0,) * len(by): found}


class Session:
    """`context.spark`: settings, frames of rows, reads of Delta tables."""

    conf = SimpleNamespace(get=lambda name, default=None: "played")

    @property
    def read(self) -> Session:
        return self

    def format(self, _: str) -> Session:
        return self

    def createDataFrame(self, rows: list[Dict], schema: StructType) -> Frame:
        return Frame(lambda: rows, schema)

    def load(self, path: str) -> Frame:
        table = DeltaTable(path)
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        return Frame(lambda: DeltaTable(path).to_pyarrow_table().to_pylist(), schema)


def make(path: Path, schema: StructType, session: object, partition_by: list[str], properties: object) -> None:
    """In the place of `delta.make`: if several drivers try at once, one succeeds and the others use its table."""
    try:
        if not commit.exists(path):
            DeltaTable.create(
                str(path), to_arrow_schema(schema, timezone="UTC"), mode="ignore", partition_by=partition_by
            )
    except DeltaError:
        if not commit.exists(path):
            raise


def added(path: Path, after: int, upto: int) -> list[Dict]:
    """The rows that the versions (after, upto] of a Delta table have added, as a stream of it reads them."""
    rows: list[Dict] = []
    for version in range(after + 1, upto + 1):
        for line in (path / "_delta_log" / f"{version:020}.json").read_text().splitlines():
            if one := json.loads(line).get("add"):
                file = parquet.ParquetFile(path / unquote(one["path"])).read()
                rows += [row | one["partitionValues"] for row in file.to_pylist()]
    return rows
