"""As `test_forget_everywhere`, with all data of a pipeline in S3: its inbox, `events`, state, tables and files.

The search reads the server's own files.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import obstore
import pytest

from onlyonce import settings
from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.core.locations import Url, location
from onlyonce.local.processes import wait_until
from onlyonce.operate import forget
from onlyonce.tables import stores
from onlyonce.tables.stores import Objects
from tests.support import value_finder
from tests.support.erasure_places import plants
from tests.support.platform import Platform, Server
from tests.support.s3 import S3

pytestmark = pytest.mark.spark

WHO = 'o/né "il\\17'
WHERE = f"shop = '{WHO}'"
MENTIONS = Mentions(erasure.read_conditions(WHERE, {"shop": "string"}))
SEARCHED = "part(s) with these values"
PART = 5 << 20
UPLOADS = ".sgwtmp"
"""Where the server has the parts of uploads that were not ended."""


def put(name: str, *records: tuple[str, str, int, int]) -> None:
    """An object in the inbox."""
    inbox = settings.inbox_location("shop", f"{settings.data_root().parent}/in")
    lines = [
        json.dumps(
            {"id": record, "shop": shop, "at": f"2026-01-01T{hour:02}:00:00Z", "cents": cents, "weight": 1.0}
        ).replace("/", "\\/")
        for record, shop, hour, cents in records
    ]
    content = "".join(f"{line}\n" for line in lines).encode()
    stores.of(inbox).put(inbox / name, gzip.compress(content) if name.endswith(".gz") else content)


@plants("object of an inbox", "object of a table", "object of a file sink", "upload that was not ended")
def test_in_a_store_the_receipt_names_what_a_search_finds(
    platform: Platform, server: Server, versitygw: S3, monkeypatch: pytest.MonkeyPatch, spark_in_store: None
) -> None:
    """Old versions of tables and state are gone. Named are input, files, rows without windows, the state of a join, the
    copies of a lookup, and the bucket for what no listing shows."""
    bucket = versitygw.bucket()
    assert versitygw.buckets
    on_disk = versitygw.buckets / bucket.removeprefix("s3://")
    platform.give(
        monkeypatch, **versitygw.environment, ONLYONCE_PIPELINES=str(settings.ROOT / "tests" / "support" / "stored_shop.py"), ONLYONCE_DATA=f"{bucket}/lake",
        STORED_SHOP_INBOX=f"{bucket}/in", STORED_SHOP_FILES=f"{bucket}/files", STORED_SHOP_OWNERS="yes",
    )  # fmt: skip

    def everywhere() -> set[str]:
        in_bucket = {
            f"{bucket}/{Path(one).relative_to(on_disk)}" for one in value_finder.in_files(str(on_disk), MENTIONS)
        }
        in_database = {
            *value_finder.in_database(server, platform.database, (WHO, json.dumps(WHO, ensure_ascii=False)))
        } - {value_finder.WAL}
        return {*in_bucket, *in_database, *value_finder.in_files(str(platform.home), MENTIONS)}

    platform.sql(f"CREATE TABLE public.owners AS SELECT $${WHO}$$ AS shop, 'one' AS owner")
    put("0.jsonl", ("a", WHO, 0, 7), ("b", "other", 0, 7), ("d", WHO, 0, -1))
    put("1.jsonl.gz", ("c", WHO, 0, 7))
    platform.run("shop", "--close")
    put("last.jsonl", ("z", "last", 1, 7))
    platform.run("shop", "--close")
    platform.end_sessions()
    at = location(f"{bucket}/lake/tables/shop/per_shop/never-ended")
    assert isinstance(at, Url)
    upload = obstore.open_writer(Objects().bucket(at), at.key, buffer_size=PART)
    upload.write(f"{WHO} ".encode() + b"x" * 2 * PART)
    wait_until(lambda: any(UPLOADS in one for one in everywhere()), 60, "the part of the upload")
    before = everywhere()

    report = forget.main(["shop", "--where", WHERE, "--yes", "--master", "local[2]"])

    after, left = everywhere(), report.tables[forget.LEFT]
    kinds = {
        name: f"{bucket}/{name}/"
        for name in (
            "in",
            "files",
            "lake/data/shop/events",
            "lake/data/shop/checkpoints",
            "lake/tables/shop/per_shop",
            "lake/tables/shop/each",
            "lake/data/shop/checkpoints/pairs",
            "lake/tables/shop/pairs",
            "lake/data/@lookups",
            "lake/tables/shop/owned",
        )
    }
    assert [name for name, start in kinds.items() if not any(place.startswith(start) for place in before)] == []
    named = {row["place"] for row in left if row["found"].endswith(SEARCHED)}
    assert "table public.owners" in named
    assert {place for place in after if UPLOADS not in place} == named
    assert {name for name, start in kinds.items() if any(place.startswith(start) for place in after)} == {
        "in",
        "files",
        "lake/tables/shop/each",
        "lake/data/shop/checkpoints",
        "lake/data/shop/checkpoints/pairs",
        "lake/data/@lookups",
        "lake/tables/shop/owned",
    }
    others = {row["place"]: row["goes"] for row in left if not row["found"].endswith(SEARCHED)}
    of_bucket = f"objects that were deleted from {bucket} or replaced, and uploads that were not ended"
    assert {*others} - {one.place for one in forget.UNKNOWN} == {
        of_bucket,
        "output each (delta:shop/each)",
        "output owned (delta:shop/owned)",
        "write-ahead log of PostgreSQL",
    }
    assert "AbortIncompleteMultipartUpload" in others[of_bucket]
    del upload
