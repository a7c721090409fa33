"""The interface of stores, held by a local disk and by object stores alike."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyarrow import fs

from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.locations import Location, Url, location
from onlyonce.tables import stores
from tests.support.s3 import S3

ROUNDS, WRITERS = 10, 6


def test_what_was_put_is_read_and_listed_at_any_depth_and_what_was_deleted_is_gone(place: Location) -> None:
    store, names = stores.of(place), ["a", "b/c d", "b/é=1/x.json"]
    assert list(store.entries(place)) == []
    for name in names:
        store.put(place.joinpath(*name.split("/")), name.encode())
    found = {str(entry.at.relative_to(place)): entry for entry in store.entries(place)}  # type: ignore[arg-type]
    assert {*found} == {*names}
    assert all(store.read(entry.at) == name.encode() for name, entry in found.items())
    for one in found.values():
        there = store.look(one.at)
        assert there
        assert replace(there, modified=int(there.modified)) == replace(
            one, modified=int(one.modified)
        )  # some tell whole seconds only
    assert {str(entry.at) for entry in store.entries(place / "b")} == {
        str(place / "b" / "c d"),
        str(place / "b" / "é=1" / "x.json"),
    }

    store.delete(place / "a")
    store.delete(place / "a")
    assert store.look(place / "a") is None
    with pytest.raises(FileNotFoundError):
        store.read(place / "a")


def test_a_listing_has_no_end_of_page(place: Location) -> None:
    store = stores.of(place)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.put(place / f"{number:05}", b""), range(1100)))
    assert sorted(entry.at.name for entry in store.entries(place)) == [f"{number:05}" for number in range(1100)]


def test_the_marker_of_a_folder_is_no_object(store: S3) -> None:
    """Consoles, Arrow and S3A put one; an object that is empty is one nevertheless."""
    place = location(f"{store.bucket()}/some/prefix")
    for name in ("", "alone", "kept", "kept/deep"):
        mark(store, place / name)
    assert not stores.anything(place)
    stores.of(place).put(place / "kept" / "rows", b"some")
    stores.of(place).put(place / "empty", b"")

    assert {str(entry.at) for entry in stores.of(place).entries(place)} == {f"{place}/kept/rows", f"{place}/empty"}
    assert {*stores.of(place).names(place)} == {"alone", "kept", "empty"}
    assert stores.of(place).look(place / "alone") is None
    stores.of(place).clear(place)
    assert not stores.anything(place)


def mark(store: S3, at: Location) -> None:
    """Put the marker of a folder and of those above it, by the one client at hand that does so."""
    client = fs.S3FileSystem(endpoint_override=store.url, region="us-east-1")
    client.create_dir(str(at).removeprefix("s3://"))


def test_a_range_is_of_the_content_that_was_listed_or_it_is_refused(place: Location) -> None:
    store, at = stores.of(place), place / "grows"
    store.put(at, b"first,second\n")
    entry = store.look(at)
    assert entry is not None
    assert entry.bytes == 13
    assert store.read_range(at, 6, 12, entry.etag) == b"second"
    store.put(at, b"other,second\n")
    with pytest.raises(stores.Changed):
        store.read_range(at, 6, 12, entry.etag)
    store.delete(at)
    with pytest.raises(FileNotFoundError):
        store.read_range(at, 6, 12, entry.etag)


def test_one_content_has_one_etag_whoever_tells_it() -> None:
    """Azure's listings leave out the quotes that its other answers have."""
    told = {"size": 1, "version": None, "last_modified": datetime.now(UTC)}
    assert len({stores._entry(Url("abfss://c@a", "x"), told | {"e_tag": etag}) for etag in ('"0x1"', "0x1")}) == 1


def test_of_writers_at_once_that_put_if_absent_one_wins_and_its_content_stays(place: Location) -> None:
    for number in range(ROUNDS):
        won = _at_once(lambda who, at=place / f"{number}": stores.of(place).put_new(at, f"writer {who}".encode()))  # type: ignore[misc]
        assert sum(won) == 1
        assert stores.of(place).read(place / f"{number}") == f"writer {won.index(True)}".encode()


def _at_once(put: Callable[[int], bool]) -> list[bool]:
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(put, range(WRITERS)))


def test_the_same_bytes_put_again_count_as_ours(place: Location) -> None:
    assert stores.of(place).put_new(place / "once", b"ours")
    assert stores.of(place).put_new(place / "once", b"ours")
    assert not stores.of(place).put_new(place / "once", b"theirs")


@pytest.mark.parametrize(
    "place",
    ["versitygw", *(pytest.param(name, marks=pytest.mark.whole) for name in ("azurite", "fake_gcs"))],
    indirect=True,
)
def test_a_bucket_that_is_gone_is_not_an_object_that_is_not_there(place: Location) -> None:
    """Else each table in it would be a new one."""
    root = str(place).removesuffix("/some/prefix").partition("://b")
    at = location(f"{root[0]}://there-is-none{root[2][12:]}/some/object")
    for look in (stores.of(at).read, lambda at: [*stores.of(at).entries(at)], lambda at: [*stores.of(at).names(at)]):
        with pytest.raises(Refused, match="does not exist"):
            look(at)


@pytest.mark.parametrize(("kind", "method"), [("slow", ""), ("error", ""), ("before", ""), ("cut", "PUT")])
def test_what_was_put_is_there_though_the_store_was_ill(store: S3, kind: str, method: str) -> None:
    """A PUT that was carried out and whose answer was cut off is sent again: it is still ours."""
    place = location(f"{store.bucket()}/some/prefix")
    names = [f"{number:02}" for number in range(6)]
    store.ill(kind, every=2, method=method)
    assert all(stores.of(place).put_new(place / name, name.encode()) for name in names)
    assert [stores.of(place).read(place / name).decode() for name in names] == names
    assert sorted(entry.at.name for entry in stores.of(place).entries(place)) == names
    assert store.counts["PUT"] > len(names)


def test_an_answer_that_ends_half_way_is_not_taken_for_the_content(store: S3) -> None:
    at = location(f"{store.bucket()}/some/prefix") / "whole"
    stores.of(at).put(at, b"first,second\n")
    entry = stores.of(at).look(at)
    assert entry is not None
    store.ill("cut", every=1, method="GET")
    for read in (lambda: stores.of(at).read(at), lambda: stores.of(at).read_range(at, 0, 13, entry.etag)):
        with pytest.raises(Retryable, match="does not answer"):
            read()
