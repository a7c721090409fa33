"""What a run has committed to each table is read from the log and from the note of the Delta commit.

A real PostgreSQL.
"""

from __future__ import annotations

import json

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from onlyonce import settings
from onlyonce.operate import assets
from tests.contract.shop import Shop, at, shop

__all__ = ["shop"]


def land(unit: str) -> int:
    """A commit to the output's table as the Delta sink makes it; gives the table's version."""
    path = str(settings.tables_dir() / "shop" / "per_shop")
    note = CommitProperties(custom_metadata={"userMetadata": json.dumps({"unit": unit})})
    write_deltalake(path, pa.table({"n": [1]}), mode="append", schema_mode="merge", commit_properties=note)
    return DeltaTable(path).version()


def test_each_table_that_a_run_has_written_is_told_with_its_last_batch(shop: Shop) -> None:
    """Batches of other runs, begun ones, and what receive wrote are not."""
    shop.receive(("a", at(0)))
    shop.output(closes=(at(0),))
    shop.output(closes=(at(1),))
    shop.output("balance", upto="units")
    version = land("shop/per_shop/1/1/per_shop/0")
    land("shop/per_shop/1/10/per_shop/0")

    assert assets.committed("shop", "run") == [
        {"output": "per_shop", "run_id": "run", "batch": "shop/per_shop/1/1", "batches": 2, "rows": 2, "delta_version": version}
    ]  # fmt: skip
    assert assets.committed("shop", "another run") == []
    assert assets.committed("mill", "run") == []


def test_a_sink_without_versions_has_none(shop: Shop) -> None:
    """The rows of a PostgreSQL sink are told all the same."""
    shop.receive(("a", at(0)))
    shop.output("balance")

    [told] = assets.committed("shop", "run")

    assert (told["output"], told["rows"], told["delta_version"]) == ("balance", 1, None)
