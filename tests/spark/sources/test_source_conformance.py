"""The conformance suite passes for each source that it can be run on, and fails for the broken ones that the tests
keep."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet
from pyspark.sql import SparkSession

from onlyonce.api.pipeline import Custom, DeltaSource, Files, Growing, Pipeline
from onlyonce.testing import conformance
from tests.support import added_package, shop_oracle
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

AVRO = {
    "type": "record", "name": "sale", "fields": [
        {"name": "id", "type": "string"}, {"name": "shop", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "cents", "type": "long"}, {"name": "weight", "type": "double"},
    ],
}  # fmt: skip


def fill(folder: Path) -> None:
    """The same records in each kind of source, in two files, and one bad file where there is a way to have one."""
    for number, records in enumerate(shop_oracle.sales(120, 2, duplicates=0)):
        typed = [record | {"at": datetime.fromisoformat(record["at"])} for record in records]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        rows = "".join(",".join(map(str, record.values())) + "\n" for record in records)
        put(folder / f"json/{number}.jsonl", lines.encode())
        put(folder / f"json/{number}.jsonl.gz", gzip.compress(lines.encode()))
        put(folder / f"csv/{number}.csv", rows.encode())
        put(folder / f"growing/{number}.log", lines.encode() + b'{"half')
        put(folder / f"growing/{number}.log.gz", gzip.compress(lines.encode()))
        put(folder / f"parquet/{number}.parquet", b"")
        parquet.write_table(pa.Table.from_pylist(typed), folder / f"parquet/{number}.parquet", row_group_size=20)
        write_deltalake(str(folder / "delta"), pa.Table.from_pylist(typed), mode="append", partition_by=["shop"])
        put(folder / f"avro/{number}.avro", b"")
        with (folder / f"avro/{number}.avro").open("wb") as file:
            fastavro.writer(file, AVRO, typed)
    for name in ("json/bad.jsonl.gz", "parquet/bad", "avro/bad"):
        put(folder / name, b"bad")


def put(path: Path, content: bytes) -> None:
    """A file, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def sources(folder: Path) -> dict[str, tuple[Pipeline, int]]:
    """Each with the number of its records: those of the data, and one for a bad file."""
    inbox = {name: str(folder / name) for name in ("json", "csv", "parquet", "avro", "growing")}
    custom = Custom(reader="tests.support.readers:Lines", options={"folder": inbox["json"]}, needs_dedup=False)
    grown = Growing(inbox=inbox["growing"], compressed=True, start="latest")
    found: dict[str, tuple[Any, int, bool]] = {
        "json": (Files(inbox=inbox["json"]), 241, True), "csv": (Files(inbox=inbox["csv"], format="csv"), 120, True),
        "parquet": (Files(inbox=inbox["parquet"], format="parquet"), 121, False),
        "parquet by columns": (Files(inbox=inbox["parquet"], format="parquet"), 121, True),
        "delta": (DeltaSource(path=str(folder / "delta")), 120, False), "delta by columns": (DeltaSource(path=str(folder / "delta")), 120, True),
        "avro": (Files(inbox=inbox["avro"], format="avro"), 121, False), "growing": (grown, 240, False),
        "growing by columns": (replace(grown, compressed=False), 120, True),
        "custom": (custom, 120, False), "custom by columns": (custom, 120, True),
    }  # fmt: skip
    return {
        name: (replace(SHOP, source=source, record_id=("id",) if by_columns else ()), number)
        for name, (source, number, by_columns) in found.items()
    }


RARELY = [
    "json",
    "csv",
    "growing",
    "parquet by columns",
    "delta by columns",
    "avro",
    "growing by columns",
    "custom by columns",
    "Short",
]
"""Those that are run in the long tests only."""


WHOLE = ["SameIds", "FewerAtOnce"]
"""And in `make test-all`."""


def some(names: Iterable[str]) -> list[Any]:
    """Each as a parameter."""
    marks = dict.fromkeys(RARELY, pytest.mark.slow) | dict.fromkeys(WHOLE, pytest.mark.whole)
    return [pytest.param(name, marks=marks.get(name, ())) for name in names]


NAMES = [
    "json",
    "csv",
    "parquet",
    "parquet by columns",
    "delta",
    "delta by columns",
    "avro",
    "growing",
    "growing by columns",
    "custom",
    "custom by columns",
]


@pytest.mark.parametrize("name", some(NAMES))
def test_our_sources_keep_the_contract(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """The same records with the same ids at once, in batches and again; a bad file is one record."""
    fill(tmp_path / "input")
    pipeline, records = sources(tmp_path / "input")[name]

    found = conformance.check(spark, pipeline, tmp_path / "scratch")

    assert found.problems == []
    assert found.records == records
    assert found.batches > 1


BROKEN = {
    "OtherIds": (("id",), "a replay of batch 0 gives other records"), "SameIds": (("id",), "ids are those of several records"),
    "FewerAtOnce": ((), "read at once and read in batches are not the same"), "Short": ((), "gave 59 rows, and not 60"),
}  # fmt: skip


@pytest.mark.parametrize("reader", some(BROKEN))
def test_broken_readers_are_found_out(reader: str, spark: SparkSession, tmp_path: Path) -> None:
    """Ids that change on a replay, ids of two records, rows missing where much is read at once, a row missing: each is
    told."""
    fill(tmp_path / "input")
    options = {"folder": str(tmp_path / "input/json")}
    by, said = BROKEN[reader]
    source = Custom(reader=f"tests.support.readers:{reader}", options=options, needs_dedup=False)

    found = conformance.check(spark, replace(SHOP, source=source, record_id=by), tmp_path / "scratch")

    assert any(said in problem for problem in found.problems), found.problems


def test_a_package_adds_a_source_by_its_entry_point_and_nothing_else(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a module and a row of this table; no file of the platform is touched."""
    added_package.install(tmp_path / "site", monkeypatch)
    fill(tmp_path / "input")
    source = Custom(reader="lines", options={"folder": str(tmp_path / "input/json")}, needs_dedup=False)

    found = conformance.check(spark, replace(SHOP, source=source, record_id=()), tmp_path / "scratch")

    assert (found.problems, found.records) == ([], 120)
