"""What a run has committed to each table is read from the log and from the note of the Delta commit.

A real PostgreSQL.
"""

from __future__ import annotations

import json

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from onlyonce import settings
from onlyonce.commitlog.drivers import DriverRun, DriverRuns
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

    assert assets.committed("shop", "dag", "run") == [
        {"output": "per_shop", "run_id": "run", "batch": "shop/per_shop/1/1", "batches": 2, "rows": 2, "delta_version": version}
    ]  # fmt: skip
    assert assets.committed("shop", "dag", "another run") == []
    assert assets.committed("mill", "dag", "run") == []


def test_a_sink_without_versions_has_none(shop: Shop) -> None:
    """The rows of a PostgreSQL sink are told all the same."""
    shop.receive(("a", at(0)))
    shop.output("balance")

    [told] = assets.committed("shop", "dag", "run")

    assert (told["output"], told["rows"], told["delta_version"]) == ("balance", 1, None)


def test_what_a_failed_run_has_committed_is_told_with_the_next_good_end(shop: Shop) -> None:
    """One output fails for good in each run, and the others are written: what follows them must start once."""
    runs = DriverRuns(shop.log.database)
    shop.receive(("a", at(0)))

    def run(run_id: str, code: int, closes: int) -> list[tuple[str, int]]:
        attempt, _ = runs.begin("dag", run_id, "shop")
        shop.output(closes=(at(closes),))
        shop.log.rows(f"UPDATE onlyonce_private.batches SET run_id = '{run_id}' WHERE run_id = 'run' RETURNING 1")
        runs.end("dag", run_id, "shop", DriverRun(attempt, code, None))
        return [(told["batch"], told["batches"]) for told in assets.committed("shop", "dag", run_id)]

    assert run("r1", 0, 0) == [("shop/per_shop/1/0", 1)]
    run("r2", 64, 1)
    run("r3", 64, 2)
    assert run("r4", 0, 3) == [("shop/per_shop/1/3", 3)]
    assert run("r5", 0, 4) == [("shop/per_shop/1/4", 1)]
    assert assets.committed("shop", "another dag", "r6") == []
