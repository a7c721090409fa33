"""A pipeline lives with its inbox and all of its data in S3, Spark's jobs too: killed, collected, maintained,
finalized, filled back, parts of it forgotten and reprocessed, reborn.

After each of it the results are those of the plain batch computation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from onlyonce import settings
from onlyonce.core.locations import Location, location
from onlyonce.tables import attempt_files, opening, stores
from tests.support import shop_oracle
from tests.support.platform import JOB_TIMEOUT, ROOT, Platform, multiset
from tests.support.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = ("window_start", "shop", "sales", "cents")
WHO = "shop-3"
PATIENCE = 3 * JOB_TIMEOUT


@pytest.fixture
def root(platform: Platform, versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A platform whose inbox, data, and files of an output are below prefixes of a bucket."""
    bucket = versitygw.bucket()
    platform.give(
        monkeypatch, **versitygw.environment, ONLYONCE_DATA=f"{bucket}/lake", STORED_FILES=f"{bucket}/files/filed",
        STORED_INBOX=f"{bucket}/landing", ONLYONCE_PIPELINES=str(ROOT / "tests" / "support" / "operated_shop.py"), ONLYONCE_KEEP_TEMPORARIES_HOURS="0",
    )  # fmt: skip
    return settings.data_root()


def onlyonce(*words: str) -> str:
    """A command in a process of its own, as a person starts it."""
    command = [sys.executable, "-c", "from onlyonce.cli import app; app()", *words]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def filed() -> Counter[Any]:
    """The rows of the files that the newest manifest of each window names: what a reader takes."""
    at = location(os.environ["STORED_FILES"])
    store = stores.of(at)
    newest: dict[str, Any] = {}
    for entry in store.entries(at / "_manifests"):
        told = json.loads(store.read(entry.at))
        known = newest.get(told["window_start"])
        if known is None or known["pane"] < told["pane"]:
            newest[told["window_start"]] = told
    objects = [file["object"] for told in newest.values() for file in told["files"]]
    lines = [json.loads(line) for name in objects for line in store.read(at.joinpath(*name.split("/"))).splitlines()]
    rows = pd.DataFrame(lines)
    return multiset(rows.assign(window_start=pd.to_datetime(rows.window_start, utc=True)), *COLUMNS)


def wanted(records: pd.DataFrame) -> Counter[Any]:
    """The plain batch computation."""
    return multiset(shop_oracle.per_shop(records), *COLUMNS)


def each() -> Counter[Any]:
    """The rows of the other output."""
    return multiset(opening.table(settings.table_location("shop/each")).to_pandas(), "id", "shop", "cents")


def put(name: str, records: list[dict[str, Any]], *more: str) -> None:
    """An object in the inbox, of records and other lines."""
    at = location(os.environ["STORED_INBOX"]) / name
    stores.of(at).put(at, "".join(f"{line}\n" for line in [*map(json.dumps, records), *more]).encode())


def test_a_pipeline_lives_in_a_store(platform: Platform, root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    files, events = shop_oracle.sales(240, 3), settings.data_location("shop") / "events"
    day = (datetime.now(UTC) + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    ahead: dict[str, Any] = {"id": "ahead", "shop": "shop-1", "at": day, "cents": 7, "weight": 1.0}
    for number, records in enumerate(files):
        put(f"sales-{number:04}.jsonl", records, "{no JSON", *([json.dumps(ahead)] if number == 1 else []))
    code, output = platform.run_killed("table-before-commit", "shop", "--close", nth=3, timeout=PATIENCE)
    assert code < 0, output
    code, output = platform.run_whole("shop", "--close", timeout=PATIENCE)
    assert code == 0, output
    records = shop_oracle.distinct(files)
    assert records["late"].any()
    onlyonce("finalize", "shop")
    assert filed() == wanted(records[~records["late"]])

    left = unnamed(events)
    onlyonce("gc", "shop")
    onlyonce("maintain", "shop")
    onlyonce("gc", "shop")
    assert left
    assert unnamed(events) == set()
    assert len(opening.table(events).file_uris()) <= 4

    onlyonce("backfill", "shop", "--from", "2025-12-31T00:00Z", "--to", "2026-01-02T00:00Z")
    onlyonce("finalize", "shop")
    assert filed() == wanted(records)

    monkeypatch.setenv("STORED_DAYS_AHEAD", "9")
    onlyonce("reprocess", "shop", "--invalid", "--reason", "ahead", "--yes")
    code, output = platform.run_whole("shop", "--close", timeout=PATIENCE)
    assert code == 0, output
    records = pd.concat([records, shop_oracle.distinct([[ahead]])[[*records.columns.drop("max_event_time")]]])
    assert each() == multiset(records, "id", "shop", "cents")

    told = onlyonce("forget", "shop", "--where", f"shop = '{WHO}'", "--yes")
    assert all(f"{os.environ['STORED_INBOX']}/sales-{number:04}.jsonl" in told for number in range(3))
    onlyonce("finalize", "shop")
    stay = records[records["shop"] != WHO]
    assert filed() == wanted(stay)
    assert each() == multiset(records, "id", "shop", "cents")  # it has no windows: told, and left to a person

    last: dict[str, Any] = {"id": "last", "shop": "shop-1", "at": day, "cents": 1, "weight": 1.0}
    checkpoint = settings.data_location("shop") / "checkpoints" / "each" / "1"
    stores.of(checkpoint).clear(checkpoint)
    onlyonce("incarnation", "new", "shop/each", "--yes")
    put("last.jsonl", [last])
    code, output = platform.run_whole("shop", "--close", timeout=PATIENCE)
    assert code == 0, output
    more = pd.DataFrame([last])
    assert each() == multiset(pd.concat([records, more]), "id", "shop", "cents")
    kept = opening.table(events).to_pandas(filters=[("oo_kind", "=", "kept")])
    assert multiset(kept, "id") == multiset(pd.concat([stay, more]), "id")

    onlyonce("audit", "--data")
    assert '"findings": []' in onlyonce("doctor", "--json")
    assert json.loads(onlyonce("trace", "shop", "ahead", "--json"))


def unnamed(table: Location) -> set[str]:
    """Data files that the table does not have."""
    named = {str(table / name) for name in attempt_files._named(opening.table(table))}
    return {
        str(entry.at)
        for entry in stores.of(table).entries(table)
        if entry.at.name.endswith(".parquet") and "_delta_log" not in str(entry.at)
    } - named
