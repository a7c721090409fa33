"""Holds the pipeline of `placed_shop` against its oracle: each line kept or invalid once, known by the byte where it
begins."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.sources.record_id import RecordId, of_file, of_place
from tests.support import shop_oracle
from tests.support.check_shop import check_outputs
from tests.support.platform import Platform, multiset


def ids(paths: list[Path]) -> Counter[str]:
    """The id of each line of some files, by the plainest way there is."""
    found: Counter[str] = Counter()
    for path in paths:
        at = 0
        for line in path.read_bytes().split(b"\n")[:-1]:
            found[str(of_place(of_file(str(path)), at))] += 1
            at += len(line) + 1
    return found


def check(platform: Platform, files: list[list[dict[str, Any]]], paths: list[Path], suffix: str = "") -> None:
    """All of it: ids and content of what is kept, each output the batch computation, the log conserved, no catalog."""
    records = shop_oracle.every(files)
    events = platform.events("shop" + suffix)
    judged = events[events["oo_kind"].isin(["kept", "invalid"])]
    # Not by pandas: control rows have no id, and with a null among them it makes floats of 64 bits.
    table = DeltaTable(str(settings.data_dir("shop" + suffix) / "events"))
    halves = table.to_pyarrow_table(columns=["oo_high", "oo_low"], filters=[("oo_kind", "in", ["kept", "invalid"])])
    there = Counter(str(RecordId(row["oo_high"], row["oo_low"])) for row in halves.to_pylist())

    assert there == ids(paths), f"lost {ids(paths) - there}, more {there - ids(paths)}"
    kept = events[events["oo_kind"] == "kept"]
    assert multiset(records, "id", "shop", "cents") == multiset(kept, "id", "shop", "cents")
    check_outputs(platform, records if suffix else records[~records["late"]], suffix)
    log = platform.sql(f"SELECT * FROM onlyonce.conservation WHERE instance = 'shop{suffix}'")
    assert log["conserved"].all(), log[~log["conserved"].astype(bool)]
    assert log[log["query"] == "receive"]["records_in"].sum() == len(judged)
    assert platform.sql("SELECT 1 FROM onlyonce_private.catalog_chunks").empty
