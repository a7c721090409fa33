"""A Delta table with a change data feed, versions of every kind, and a pipeline over its changes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from onlyonce.api.pipeline import Delta, DeltaSource, Output
from tests.support import tables
from tests.support.shop import SHOP

FEED = {"delta.enableChangeDataFeed": "true"}
SCHEMA = f"{SHOP.schema}, _change_type string, _commit_version long, _commit_timestamp timestamp"
VALUES = ("id", "shop", "cents", "_change_type", "_commit_version")
TABLE = "raw/changed"


def change(path: Path, chance: random.Random, number: int) -> None:
    """One version of any kind; the first makes the table."""
    what = chance.choice(["append", "delete", "update", "compact", "overwrite", "truncate"]) if number else "append"
    if what in ("append", "overwrite"):
        records = tables.sales([f"r{number}-{one}" for one in range(chance.randint(1, 8))])
        write_deltalake(
            str(path),
            pa.Table.from_pylist(records, tables.SCHEMA),
            mode=what,
            partition_by=["shop"],
            configuration=FEED,
        )  # type: ignore[call-overload]
    elif what == "delete":
        DeltaTable(str(path)).delete(f"cents % 3 = {chance.randrange(3)}")
    elif what == "update":
        DeltaTable(str(path)).update(updates={"cents": "cents + 10"}, predicate=f"cents % 2 = {chance.randrange(2)}")
    elif what == "truncate":
        DeltaTable(str(path)).delete()
    else:
        tables.compact(path)


PIPELINES = [
    replace(
        SHOP, source=DeltaSource(path=TABLE, changes=True, max_files_a_batch=2), record_id=(), schema=SCHEMA,
        outputs=[Output(name="each", transform="tests.support.table_transforms:changes", sink=Delta())],
    )
]  # fmt: skip
