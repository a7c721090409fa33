"""The test pipeline with its sinks in an Iceberg catalog: windows, what is made of them, and records as they come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onlyonce import Iceberg, Output
from tests.support.shop import MINUTE, SHOP, WATERMARK_DELAY

CATALOG = "lake"

PIPELINES = [
    replace(
        SHOP,
        partitions=2,
        outputs=(
            Output(
                name="per_shop", transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY,
                sink=Iceberg(table="results.per_shop", catalog=CATALOG),
            ),
            Output(
                name="total", from_output="per_shop", transform="tests.support.shop_transforms:total",
                sink=Iceberg(table="results.total", catalog=CATALOG),
            ),
            Output(name="plain", transform="tests.support.shop_transforms:each", sink=Iceberg(table="results.plain", catalog=CATALOG)),
        ),
    )
]  # fmt: skip


def configured(url: str, folder: Path) -> dict[str, str]:
    """The variables by which pyiceberg knows the catalog: its tables in a database, its files in a folder."""
    given = {"TYPE": "sql", "URI": url, "WAREHOUSE": f"file://{folder}/warehouse"}
    return {f"PYICEBERG_CATALOG__{CATALOG.upper()}__{name}": value for name, value in given.items()}
