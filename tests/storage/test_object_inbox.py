"""An inbox in an object store: the same lines at the same places as in a folder, an object that is replaced is told,
and a million are listed in little memory."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.api.pipeline import Files, Pipeline
from onlyonce.core.locations import Location, Url, location
from onlyonce.sources import file_bytes, line_reader, listing, record_id, typed_files
from onlyonce.sources.folders import Folders
from onlyonce.sources.line_reader import Range
from onlyonce.sources.listing import Csv, InputFile, Known, Layout
from onlyonce.tables import stores
from onlyonce.tables.stores import Changed, Entry
from tests.support import csv_oracle
from tests.support.s3 import S3
from tests.support.shop import SHOP
from tests.unit.sources.test_typed_files import PUT, sales

CONTENT = (
    b"".join(b'{"id": %d, "what": "%s"}\n' % (number, b"x" * (number % 90)) for number in range(3000)) + b"the last one"
)
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": lambda plain: gzip.compress(plain[:9000]) + gzip.compress(plain[9000:]), ".bz2": bz2.compress,
    ".zst": lambda plain: pa.compress(plain, "zstd", asbytes=True),
}  # fmt: skip
STORES = ["versitygw", *(pytest.param(name, marks=pytest.mark.whole) for name in ("moto", "azurite", "fake_gcs"))]
FOUND = tuple[list[tuple[int, str]], ...]


def put(at: Location, content: bytes) -> Entry:
    """An object, or a file."""
    stores.of(at).put(at, content)
    entry = stores.of(at).look(at)
    assert entry
    return entry


def new(
    prefix: Location, there: Known | None = None, layout: Layout = None, most: int = 100, folders: Folders | None = None
) -> list[list[InputFile]]:
    """What is new below a prefix."""
    assert isinstance(prefix, Url)
    return list(listing.new_objects(prefix, str(prefix), there or Known(), layout, most, folders or Folders()))


def known(files: list[InputFile], batch_no: int = 0) -> Known:
    """What the manifest knows once these are in it."""
    return listing.known_objects(
        [pa.RecordBatch.from_pylist([{"batch_no": batch_no, "path": one.path, "mark": one.mark} for one in files])]
    )


def lines(ranges: list[Range]) -> list[tuple[int, str]]:
    """The lines with their places."""
    batches = [batch for part in ranges for batch in line_reader.lines(part)]
    return [
        one
        for batch in batches
        for one in zip(batch["oo_position"].to_pylist(), batch["oo_line"].to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("place", STORES, indirect=True)
@pytest.mark.parametrize("ending", PACKED)
def test_an_object_has_the_lines_of_a_file_at_their_places(
    place: Location, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted alike, and read alike, in however many ranges and requests."""
    content, name = PACKED[ending](CONTENT), f"a b{ending}"
    (tmp_path / name).write_bytes(content)
    put(place / name, content)
    monkeypatch.setattr(file_bytes, "PIECE", 5000)
    monkeypatch.setattr(line_reader, "PIECE", 7000)

    [[found]] = new(place)
    [of_file] = listing.new_files(tmp_path, {})

    assert (found.lines, found.size, found.path) == (of_file.lines, of_file.size, f"{place}/{name}")
    there: dict[str, Any] = {"etag": found.mark, "bytes": found.size}
    if ending:
        mine, theirs = (
            [line_reader.compressed(found.path, 1, ending, **there)],
            [line_reader.compressed(of_file.path, 1, ending)],
        )
    else:
        cuts = list(pairwise([0, 1, 4000, 4001, 30_000, len(content)]))
        mine = [Range(found.path, 1, begin, end, len(content), **there) for begin, end in cuts]
        theirs = [Range(of_file.path, 1, begin, end, len(content)) for begin, end in cuts]
    assert lines(mine) == lines(theirs)
    assert len(lines(mine)) == found.lines == 3001


@pytest.mark.parametrize("place", STORES, indirect=True)
def test_parts_of_an_object_have_the_records_of_csv(place: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted and read by whole records, in several parts and requests, behind a header with a line feed."""
    content = (
        b'id,"a\nt"\n' + b"".join(b'%d,"x\n%d"\r\n' % (number, number) for number in range(500)) + b'stray,"\nlast,1'
    )
    put(place / "a.csv", content)
    for module, size in ((file_bytes, 700), (line_reader, 300)):
        monkeypatch.setattr(module, "PIECE", size)
    monkeypatch.setattr(listing, "RANGE", 1000)

    [[found]] = new(place, layout=Csv(100, ["id", "a\nt"]))
    there: dict[str, Any] = {
        "etag": found.mark,
        "bytes": found.size,
        "quoted_within": found.quoted_within,
        "cuts": found.cuts,
    }
    parts = [*line_reader._cut(Range(found.path, 1, 0, found.size, found.size, skipped=1, **there))]

    assert len(parts) > 5
    assert found.lines == 502
    assert lines(parts) == [(at, record.decode()) for at, record in csv_oracle.records(content, 100)[1:]]


@pytest.mark.parametrize("place", STORES, indirect=True)
def test_an_object_is_known_by_its_key_and_its_etag(place: Location) -> None:
    """What is there is not new; other content under its name is refused, once; the same content is the same object.

    Deeper, or hidden, is none of it.
    """
    put(place / "one", b"{}\n{}\n")
    for name in (".hidden", "_temporary", "deeper/two"):
        put(place / name, b"{}\n")
    [[one]] = new(place)
    assert (one.lines, one.refusal) == (2, None)
    put(place / "one", b"{}\n{}\n")
    again = [file for part in new(place, known([one])) for file in part]
    assert [file.refusal is not None for file in again] == (
        [True] if str(place).startswith("abfss:") else []
    )  # there an ETag is of the write

    put(place / "one", b"{}\n")
    put(place / "two", b"{}\n")
    [[replaced, two]] = new(place, known([one]))
    assert "replaced under its old name" in str(replaced.refusal)
    assert (two.path, two.lines, two.refusal) == (f"{place}/two", 1, None)
    entries = listing.known_objects(
        pa.RecordBatch.from_pylist([{"batch_no": number, "path": file.path, "mark": file.mark}])
        for number, file in ((1, replaced), (0, one), (1, two))
    )
    assert new(place, entries) == []
    assert {one.root for one in (one, replaced, two)} == {str(place)}


@pytest.mark.parametrize("place", STORES, indirect=True)
def test_objects_in_folders_below_the_prefix_are_read_or_their_folders_reported(place: Location) -> None:
    """At any depth, each known by its whole key; hidden ones are temporary."""
    for name in ("top", "dt=1/a", "dt=1/hour=2/a", "dt=2/a", "_temporary/a", "dt=1/_SUCCESS", "dt=1/.a"):
        put(place / name, b"{}\n")
    above = Folders()
    [[top]] = new(place, folders=above)
    assert (top.path, above.skipped) == (f"{place}/top", {f"{place}/dt=1", f"{place}/dt=2"})

    deep = Folders(recursive=True)
    [files] = new(place, folders=deep)

    assert [one.path.removeprefix(f"{place}/") for one in files] == ["dt=1/a", "dt=1/hour=2/a", "dt=2/a", "top"]
    assert ({one.root for one in files}, deep.skipped) == ({str(place)}, set())
    assert new(place, known(files), folders=deep) == []


@pytest.mark.parametrize("place", STORES, indirect=True)
def test_what_changed_since_it_was_listed_is_told_and_never_read(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its batch begins, and by a reader between two requests; gone is told as gone."""
    monkeypatch.setattr(file_bytes, "PIECE", 5000)
    monkeypatch.setattr(line_reader, "PIECE", 5000)
    for name in ("changed", "gone", "same"):
        put(place / name, CONTENT)
    [files] = new(place)
    assert listing.changed_objects(files) == {}
    readers = {
        file.path.rpartition("/")[2]: line_reader.lines(
            Range(file.path, 1, 0, file.size, file.size, etag=file.mark, bytes=file.size)
        )
        for file in files
    }
    for reader in readers.values():
        next(reader)

    put(place / "changed", CONTENT.upper())
    stores.of(place).delete(place / "gone")

    told = listing.changed_objects(files)
    assert {path.rpartition("/")[2] for path in told} == {"changed", "gone"}
    assert "its ETag was" in told[f"{place}/changed"]
    with pytest.raises(Changed):
        list(readers["changed"])
    with pytest.raises(Exception, match="vanished while its batch was read"):
        list(readers["gone"])
    list(readers["same"])


def typed(prefix: Location, form: str) -> Pipeline:
    """The test pipeline over Parquet or Avro there."""
    return replace(SHOP, source=Files(inbox=str(prefix), format=form))  # type: ignore[arg-type]


def columns(pipeline: Pipeline, file: InputFile) -> list[dict[str, Any]]:
    """The rows of a file as its tasks read them, with the key that stands for it."""
    read = typed_files._reader(pipeline)
    return [row for part in typed_files._parts(file, pipeline) for batch in read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("place", STORES, indirect=True)
@pytest.mark.parametrize("form", PUT)
def test_an_object_has_the_rows_of_a_file_at_their_places(
    place: Location, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet and Avro: counted alike, read alike in however many requests and tasks; one that is damaged is refused as
    a file is."""
    PUT[form](tmp_path / "rows", sales(220))
    content = (tmp_path / "rows").read_bytes()
    (tmp_path / "torn").write_bytes(content[: len(content) // 2])
    for name in ("rows", "torn"):
        put(place / name, (tmp_path / name).read_bytes())
    monkeypatch.setattr(file_bytes, "PIECE", 700)
    monkeypatch.setattr(typed_files, "PART", 1)
    of_objects, of_files = typed(place, form), typed(tmp_path, form)

    [[found, torn]] = new(place, layout=typed_files.counter(of_objects))
    [file, torn_file] = listing.new_files(tmp_path, {}, typed_files.counter(of_files))

    assert (found.lines, found.refusal, found.path) == (220, None, f"{place}/rows")
    assert torn.refusal
    assert torn.refusal == torn_file.refusal
    mine, theirs = columns(of_objects, found), columns(of_files, file)
    assert {row.pop("oo_file") for row in mine} == {record_id.of_file(found.path)}
    assert {row.pop("oo_file") for row in theirs} == {record_id.of_file(file.path)}
    assert mine == theirs
    assert [row["oo_position"] for row in mine] == list(range(220))


@pytest.mark.parametrize("place", STORES, indirect=True)
@pytest.mark.parametrize("form", PUT)
def test_rows_of_an_object_that_changed_are_told_and_never_read(
    place: Location, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two requests of one reader, and before the first; while it is counted it is left to the next look, and is
    never called damaged."""
    monkeypatch.setattr(file_bytes, "PIECE", 700)
    monkeypatch.setattr(typed_files, "ROWS_AT_ONCE", 7)
    PUT[form](tmp_path / "rows", sales(5000))
    PUT[form](tmp_path / "others", sales(5000)[::-1])
    pipeline = typed(place, form)
    put(place / "rows", (tmp_path / "rows").read_bytes())
    count = typed_files.counter(pipeline)
    [[found]] = new(place, layout=count)
    [part] = typed_files._parts(found, pipeline)
    reader = typed_files._reader(pipeline)(part)
    next(reader)

    put(place / "rows", (tmp_path / "others").read_bytes())

    with pytest.raises(Changed):
        list(reader)
    with pytest.raises(Changed):
        list(typed_files._reader(pipeline)(part))
    with pytest.raises(Changed):
        count(part.at)
    stores.of(place).delete(place / "rows")
    with pytest.raises(FileNotFoundError):
        count(part.at)


@pytest.mark.parametrize("place", ["versitygw"], indirect=True)
def test_what_is_new_comes_some_at_a_time_by_name(place: Location) -> None:
    """With a header, and one that has another; a name that says it is packed otherwise."""
    for number in range(7):
        put(place / f"{number}", b"a,b\n1,2\n" if number != 3 else b"b,a\n1,2\n")
    put(place / "8.lz4", b"a,b\n")
    parts = new(place, layout=Csv(100, ["a", "b"]), most=3)
    assert sorted(len(part) for part in parts) == [2, 3, 3]
    files = [file for part in parts for file in part]
    assert {file.path.rpartition("/")[2]: file.lines for file in files if not file.refusal} == dict.fromkeys(
        "012456", 1
    )
    assert all([*part] == sorted(part, key=lambda file: file.path) for part in parts)


@pytest.mark.parametrize("store", ["versitygw"], indirect=True)
def test_very_many_objects_are_listed_in_little_memory(store: S3) -> None:
    """All of them are known but the last: a request for each thousand and one for that, and a page in memory beside the
    manifest's hashes."""
    objects = 100_000
    prefix = location(store.made(objects))
    entries = (
        {"batch_no": 0, "path": f"{prefix}/part-{number:09}.json", "mark": f'"{number:032x}"'}
        for number in range(objects - 1)
    )
    there = listing.known_objects(pa.RecordBatch.from_pylist(list(part)) for part in listing._parts(entries, 10_000))
    assert there.names.nbytes + there.marks.nbytes == 16 * (objects - 1)
    tracemalloc.start()
    try:
        [[last]] = new(prefix, there)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert (last.path, last.lines) == (f"{prefix}/part-{objects - 1:09}.json", 1)
    assert store.counts == {"LIST": objects // listing.PAGE, "GET": 1}
