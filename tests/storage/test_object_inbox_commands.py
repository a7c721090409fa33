"""What commands do to an inbox in a store: a reprocessing puts one object there, an erasure names the objects that hold such
lines and writes none.

Without Spark.
"""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from onlyonce import settings
from onlyonce.commitlog import reprocessings
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.locations import Location
from onlyonce.core.runs import Report
from onlyonce.failpoints import FailPoint
from onlyonce.local import feed
from onlyonce.operate import forget
from onlyonce.outputs import reprocess
from onlyonce.tables import stores
from tests.contract.conftest import log, new_log
from tests.contract.outputs import test_reprocess as of_a_folder
from tests.contract.shop import Shop, at, shop
from tests.storage.test_commands import killed_at, rows
from tests.support.erasure_places import plants
from tests.support.s3 import S3

__all__ = ["log", "new_log", "shop"]
WHO = "u17-secret"
DECLARED = """
from dataclasses import replace
from onlyonce.api.pipeline import Files
from tests.support.shop import SHOP
PIPELINES = [replace(SHOP, source=Files(inbox={inbox!r}))]
"""


@pytest.fixture
def inbox(shop: Shop, versitygw: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Location:
    """The inbox of `shop`, in a store; its data is on the disk."""
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    declared = tmp_path / "declared.py"
    declared.write_text(DECLARED.format(inbox=f"{versitygw.bucket()}/landing/shop"))
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(declared))
    monkeypatch.setattr(reprocess, "_lines", of_a_folder._lines)
    monkeypatch.setattr(forget, "_compute_again", lambda *_: [])
    from onlyonce.api import load, pipeline

    shop.pipeline = load.load()["shop"]
    folder = pipeline.folder(shop.pipeline)
    assert folder is not None
    return folder


def lines(inbox: Location) -> Counter[bytes]:
    """All lines that are there, of all objects."""
    store = stores.of(inbox)
    return Counter(line for entry in store.entries(inbox) for line in store.read(entry.at).splitlines())


def reprocessed() -> Report:
    """`onlyonce reprocess shop --invalid --yes`."""
    return reprocess.main(["shop", "--invalid", "--yes"])


@pytest.mark.parametrize("point", [None, "reprocess-before-put", "reprocess-after-put"])
def test_a_reprocessing_puts_its_lines_there_once(
    shop: Shop, inbox: Location, monkeypatch: pytest.MonkeyPatch, point: str | None
) -> None:
    """Killed before and after its object is there; a repeat finds nothing to do."""
    shop.receive(("a", at(0)), ("wrong", "no JSON"), ("worse", "no id"))
    shop.receive(("twice", "no JSON"), ("twice", "no JSON"))
    if point:
        with monkeypatch.context() as armed:
            for module in (reprocess, reprocessings):
                killed_at(armed, module, point)
            with pytest.raises(FailPoint):
                reprocessed()
    reprocessed()
    wanted = Counter({b"wrong": 1, b"worse": 1, b"twice": 2})
    assert lines(inbox) == wanted
    assert [entry.at.name for entry in stores.of(inbox).entries(inbox)] == ["reprocessed-invalid-000001.jsonl"]
    assert "nothing to reprocess" in reprocessed().title
    assert lines(inbox) == wanted


def test_an_object_of_another_that_has_the_name_of_a_reprocessing_stays(shop: Shop, inbox: Location) -> None:
    """As a file would: whoever put it there has taken the name."""
    shop.receive(("wrong", "no JSON"))
    stores.of(inbox).put(inbox / "reprocessed-invalid-000001.jsonl", b"of somebody\n")
    reprocessed()
    assert lines(inbox) == Counter({b"of somebody": 1})


@plants("object of an inbox")
def test_an_erasure_names_the_objects_that_hold_the_records_and_writes_none(
    shop: Shop, inbox: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed and damaged ones too; while one of them is not taken in, nothing is erased."""
    shop.receive((WHO, at(0)), ("other", at(0)))
    shop.receive(("last", at(60)))
    for query in ("per_shop", "balance"):
        shop.output(query, closes=(at(0),))
        shop.output(query)
    shop.die()
    before, mine = rows(shop.events), f'{{"id":"{WHO}"}}\n'.encode()
    objects = {
        "1.jsonl": mine,
        "2.jsonl": b'{"id":"other"}\n',
        "3.jsonl.gz": gzip.compress(mine),
        "4.jsonl.gz": gzip.compress(mine)[:-9],
        "5.jsonl": b"\n" + mine,
    }
    for name, content in objects.items():
        stores.of(inbox).put(inbox / name, content)

    with pytest.raises(Retryable, match=r"1\.jsonl is not taken in yet"):
        erase()
    assert rows(shop.events) == before
    taken = [str(inbox / name) for name in objects]
    entry = {"path": taken, "batch_no": [0] * len(taken), "size": [1] * len(taken), "modified_ns": [1] * len(taken)}
    write_deltalake(
        str(settings.data_dir("shop") / "files"), pa.table(entry | {"refusal": pa.nulls(len(taken), pa.string())})
    )
    report = erase()

    assert rows(shop.events) == Counter({row: n for row, n in before.items() if WHO not in row})
    assert {entry.at.name: stores.of(inbox).read(entry.at) for entry in stores.of(inbox).entries(inbox)} == objects
    left = {row["place"]: row["found"] for row in report.tables[forget.LEFT] if row["place"].startswith(f"{inbox}/")}
    assert f"objects that were deleted from {inbox.root} or replaced, and uploads that were not ended" in {
        row["place"] for row in report.tables[forget.LEFT]
    }  # type: ignore[union-attr]
    names = ("1.jsonl", "3.jsonl.gz", "4.jsonl.gz", "5.jsonl")
    assert left == {
        str(inbox / name): "damaged gzip, which is not decoded"
        if name == "4.jsonl.gz"
        else "1 part(s) with these values"
        for name in names
    }


def erase() -> Report:
    """`onlyonce forget shop --where … --yes`."""
    return forget.main(["shop", "--where", f"id = '{WHO}'", "--by", "privacy desk", "--yes"])


def test_a_feed_puts_its_objects_once_and_replaces_none(inbox: Location) -> None:
    first = feed.feed_files("flights", inbox, files=3, records=20)
    before = lines(inbox)
    assert (first.files, sum(before.values())) == (3, first.lines)
    assert feed.feed_files("flights", inbox, files=3, records=20).written == 0
    with pytest.raises(Refused, match="with different content"):
        feed.feed_files("flights", inbox, files=3, records=30)
    assert lines(inbox) == before
