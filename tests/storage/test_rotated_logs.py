"""A log is read while it grows, and its rotated files are shipped into a store: each record is there once, whatever
came by which way."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.core.locations import location
from onlyonce.tables import stores
from tests.support import shop_oracle
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform, multiset
from tests.support.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.whole]


def test_each_record_of_live_and_shipped_files_is_there_once(
    platform: Platform, versitygw: S3, monkeypatch: pytest.MonkeyPatch, spark_in_store: None
) -> None:
    """One file is shipped and gone before its rest was read, one is shipped and stays, one was never seen where it
    grew; and the driver is killed in between."""
    shipped = location(f"{versitygw.bucket()}/logs")
    pipelines = str(settings.ROOT / "tests" / "support" / "rotated_shop.py")
    platform.give(monkeypatch, **versitygw.environment, ONLYONCE_PIPELINES=pipelines, ROTATED_SHOP_INBOX=str(shipped))
    first, second, third = shop_oracle.sales(90, 3, duplicates=0)
    live = platform.home / "inbox" / "shop" / "live"
    live.mkdir(parents=True)
    text = lines(first)
    (live / "log").write_bytes(text[: len(text) // 2])  # within a line
    platform.run("shop", "--close")

    stores.of(shipped).put(shipped / "1.gz", gzip.compress(text))
    (live / "log").unlink()
    (live / "log").write_bytes(lines(second))
    assert ended_at(platform, monkeypatch, "receive-after-delta", 1, "--close")
    stores.of(shipped).put(shipped / "2", lines(second))
    stores.of(shipped).put(shipped / "3", lines(third))
    platform.run("shop", "--close")

    wanted = multiset(shop_oracle.distinct([first, second, third]), "id", "shop", "cents")
    assert multiset(platform.sql("SELECT id, shop, cents FROM results.each"), "id", "shop", "cents") == wanted


def lines(records: list[dict[str, Any]]) -> bytes:
    """As a log has them."""
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()
