"""Arrivals that a wrong clock has dated are corrected where the inbox and the data are in a store, as elsewhere."""

from __future__ import annotations

import json
from itertools import count

import pytest

from onlyonce import settings
from onlyonce.core.locations import location
from onlyonce.tables import stores
from tests.spark.sources.test_corrected_arrivals import assert_corrected
from tests.support.platform import Platform
from tests.support.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.whole]


def test_arrival_that_was_ahead_is_corrected_in_a_store(
    platform: Platform, versitygw: S3, monkeypatch: pytest.MonkeyPatch, spark_in_store: None
) -> None:
    """Files of an inbox in a store, with the manifest in the store."""
    inbox = location(f"{versitygw.bucket()}/sales")
    pipelines = str(settings.ROOT / "tests" / "support" / "stored_shop.py")
    platform.give(
        monkeypatch,
        **versitygw.environment,
        ONLYONCE_PIPELINES=pipelines,
        STORED_SHOP_INBOX=str(inbox),
        ONLYONCE_DATA=f"{versitygw.bucket()}/lake",
    )
    numbers = count()
    assert_corrected(
        platform,
        lambda sales: stores.of(inbox).put(
            inbox / f"{next(numbers)}.jsonl", "".join(f"{json.dumps(sale)}\n" for sale in sales).encode()
        ),
        monkeypatch,
        by_id=True,
    )
