"""Input files that are committed go to an archive in a store: whole, once, over nobody's object, at any kill."""

from __future__ import annotations

import pytest

from onlyonce import settings
from onlyonce.core.locations import location
from onlyonce.failpoints import FailPoint
from onlyonce.operate import gc
from onlyonce.tables import stores
from tests.contract.conftest import log, new_log
from tests.contract.operate.test_archive import Shop, shop
from tests.support.s3 import S3

__all__ = ["log", "new_log", "shop"]


@pytest.fixture
def stored(shop: Shop, versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """An inbox of three files, all of them committed; the archive is a prefix of a bucket."""
    for name, value in {**versitygw.environment, "ONLYONCE_ARCHIVE": f"{versitygw.bucket()}/archive"}.items():
        monkeypatch.setenv(name, value)
    shop.commit(0, 1, 2)
    return shop


def archived() -> dict[str, bytes]:
    """What is in the archive."""
    at = location(str(settings.archive())) / "shop"
    return {entry.at.name: stores.of(at).read(entry.at) for entry in stores.of(at).entries(at)}


def test_files_move_to_the_store_and_a_kill_between_is_finished(stored: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in stored.inbox.iterdir()}

    def passing(name: str) -> None:
        if name == "archive-after-second-name":
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        armed.setattr(gc, "passing", passing)
        with pytest.raises(FailPoint):
            gc.main(["shop"])
    assert len(archived()) == 1

    report = gc.main(["shop"])

    assert (report.warnings, report.facts["files archived"]) == ([], 3)
    assert archived() == before
    assert [*stored.inbox.iterdir()] == []


def test_another_object_of_that_name_stays_and_so_does_the_file(stored: Shop) -> None:
    theirs = location(str(settings.archive())) / "shop" / "b"
    stores.of(theirs).put(theirs, b"somebody else's")

    [warning] = gc.main(["shop"]).warnings

    assert "b is another file" in warning
    assert [path.name for path in stored.inbox.iterdir()] == ["b"]
    assert archived()["b"] == b"somebody else's"
