"""Lines with their places: whatever the ranges and the pieces, a file has the same ones, and each of them once."""

from __future__ import annotations

import bz2
import gzip
import itertools
import random
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from onlyonce.core import records
from onlyonce.sources import line_reader
from onlyonce.sources.line_reader import Range, lines

Lines = list[tuple[int, bytes]]
CONTENTS = {
    "empty": b"", "a line feed": b"\n", "no last line feed": b"a\nbc", "blank lines": b"\n\na\n\n\n", "carriage returns": b"a\r\nb\r\n",
    "a mark": b"\xef\xbb\xbfa\nb\n", "no UTF-8": b"\xff\xfe\n\x00\n", "a long line": b"a\n" + b"x" * 100 + b"\nb\n",
    "one long line": b"y" * 50, "emoji": "🛒\nü\n".encode() * 5,
}  # fmt: skip


def wanted(content: bytes) -> Lines:
    """(place, line) by the plainest way there is."""
    found, at = [], 0
    for line in (
        content.splitlines(keepends=True)
        if b"\r" not in content
        else content.replace(b"\r", b"\x01").splitlines(keepends=True)
    ):
        found.append((at, line.removesuffix(b"\n").replace(b"\x01", b"\r")))
        at += len(line)
    return found


def read(ranges: Iterable[Range]) -> Lines:
    """What the reader gives, as bytes."""
    found: Lines = []
    for part in ranges:
        for batch in lines(part):
            values = batch.column("oo_line").cast("binary").to_pylist()
            found += zip(batch.column("oo_position").to_pylist(), values, strict=True)
            assert set(batch.column("oo_file").to_pylist()) <= {part.key}
    return found


def cut(path: Path, *at: int) -> list[Range]:
    """The file in ranges that begin there."""
    size = path.stat().st_size
    bounds = [0, *at, size]
    return [Range(str(path), 7, start, end, size) for start, end in itertools.pairwise(bounds)]


@pytest.mark.parametrize("name", ["[a]", "{a,b}", "*", "?", "a\\b"])
def test_a_name_with_signs_of_patterns_is_one_file(name: str, tmp_path: Path) -> None:
    """Files that the pattern would match are read under their own names alone."""
    for other in ("a", "b", "ab", name):
        (tmp_path / other).write_text(f"{other}\n")

    assert read(cut(tmp_path / name)) == [(0, name.encode())]


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("piece", [1, 2, 7, 1 << 20])
def test_every_cut_of_a_file_gives_the_same_lines_and_places(
    content: bytes, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One range, each cut in two, and many random cuts: all lines once, each with the byte at which it begins."""
    monkeypatch.setattr(line_reader, "PIECE", piece)
    path = tmp_path / "file"
    path.write_bytes(content)
    chance = random.Random(len(content))
    cuts: list[list[int]] = [[], *[[at] for at in range(len(content))]]
    cuts += [sorted(chance.sample(range(len(content)), min(4, len(content)))) for _ in range(10)]

    for one in cuts:
        assert read(cut(path, *one)) == wanted(content), one


def test_nothing_past_the_known_size_is_read(tmp_path: Path) -> None:
    """A file that has grown since it was looked at gives what it had, also in its last line."""
    path = tmp_path / "file"
    path.write_bytes(b"a\nbc")
    before = cut(path)
    path.write_bytes(b"a\nbcdef\ng\n")

    assert read(before) == [(0, b"a"), (2, b"bc")]


@pytest.mark.parametrize(
    ("ending", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".zst", lambda data: pa.compress(data, codec="zstd", asbytes=True)),
    ],
)
def test_a_packed_file_has_the_places_of_its_content(
    tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    """And so has one of several members, also behind a header."""
    path = tmp_path / "file"
    path.write_bytes(compress(b"a\nbc\n") + compress(b"d"))

    assert read([line_reader.compressed(str(path), 7, ending)]) == [(0, b"a"), (2, b"bc"), (5, b"d")]
    assert read([line_reader.compressed(str(path), 7, ending, skipped=1)]) == [(2, b"bc"), (5, b"d")]


def test_a_header_is_skipped_and_counts_in_the_places(tmp_path: Path) -> None:
    """The first record begins where the header ends; a file of a header alone has none."""
    path = tmp_path / "file.csv"
    for content, rest in ((b"id,at\na,b\nc,d", [(6, b"a,b"), (10, b"c,d")]), (b"id,at\n", []), (b"id,at", [])):
        path.write_bytes(content)
        assert read([Range(str(path), 7, 0, len(content), len(content), skipped=1)]) == rest


def test_only_the_first_part_of_a_file_has_its_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the parts are, each record is read once and the header by none."""
    content = b"id,at\n" + b"".join(b"%d,x\n" % number for number in range(50))
    path = tmp_path / "file.csv"
    path.write_bytes(content)
    for size in (1, 5, 6, 7, 100, 1000):
        monkeypatch.setattr(line_reader, "RANGE", size)
        parts = line_reader._cut(Range(str(path), 7, 0, len(content), len(content), skipped=1))
        assert read(parts) == wanted(content)[1:], size


def test_small_files_are_read_together_and_large_ones_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No task reads more than a range's worth, no byte is read by two, and the parts of a file are alike."""
    monkeypatch.setattr(line_reader, "RANGE", 10)
    whole = [Range(str(tmp_path), n, 0, size, size) for n, size in enumerate((3, 4, 3, 25, 1, 0, 12))]

    tasks = list(line_reader._together(part for one in whole for part in line_reader._cut(one)))

    assert all(sum(part.end - part.start for part in task) <= 10 for task in tasks)
    found = [(part.key, part.start, part.end) for task in tasks for part in task]
    assert found == [
        (0, 0, 3), (1, 0, 4), (2, 0, 3), (3, 0, 8), (3, 8, 16), (3, 16, 25), (4, 0, 1), (6, 0, 6), (6, 6, 12),
    ]  # fmt: skip
    assert len(tasks) == 6


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_line_that_is_too_long_is_told_with_its_place_and_size_however_its_file_is_cut(
    content: bytes, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there once, as it begins, with the reason; the others are as they are."""
    monkeypatch.setattr(line_reader, "PIECE", piece)
    monkeypatch.setattr(records, "BEGINNING", 3)
    path = tmp_path / "file"
    path.write_bytes(content)
    for most in (1, 4, 50):
        for at in range(len(content)):
            found = [row for part in cut(path, at) for batch in lines(replace(part, most=most)) for row in rows(batch)]
            assert [row[:2] for row in found] == [
                (place, line if len(line) <= most else records.beginning_of_record(line))
                for place, line in wanted(content)
            ]
            told = [reason for _, _, reason in found]
            assert told == [
                None if len(line) <= most else
                f"the line at byte {place} of {path} has {len(line)} bytes, and max_record_bytes is {most}; kept " "is how it begins"
                for place, line in wanted(content)
            ]  # fmt: skip


@pytest.mark.parametrize("piece", [5, 1 << 22])
def test_lowered_max_record_bytes_keeps_the_listed_records(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends of records follow the bound as of the listing: lines after a stray quote wait for more than `most`."""
    monkeypatch.setattr(line_reader, "PIECE", piece)
    monkeypatch.setattr(records, "BEGINNING", 3)
    content = b'"stray,1\n' + b"ab,2\n" * 10 + b"a line of more bytes,3\n" + b"cd,4\n" * 10
    path = tmp_path / "file.csv"
    path.write_bytes(content)
    [part] = cut(path)

    found = [row for batch in lines(replace(part, most=10, quoted_within=40)) for row in rows(batch)]

    assert [row[:2] for row in found] == [
        (at, line if len(line) <= 10 else records.beginning_of_record(line)) for at, line in wanted(content)
    ]
    assert [at for at, _, reason in found if reason] == [content.index(b"a line")]


def rows(batch: pa.RecordBatch) -> list[tuple[int, bytes, str | None]]:
    """(place, line, reason)."""
    columns = (batch.column("oo_position"), batch.column("oo_line").cast("binary"), batch.column("oo_refused"))
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def test_memory_does_not_grow_with_a_line(tmp_path: Path) -> None:
    """A packed line of 48 MB takes what is read at once, and the bound."""
    path = tmp_path / "file.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a\n")
        for _ in range(48):
            file.write(bytes(1 << 20))
        file.write(b"\nb\n")
    tracemalloc.start()

    found = [row for batch in lines(line_reader.compressed(str(path), 7, ".gz", most=1 << 20)) for row in rows(batch)]

    assert tracemalloc.get_traced_memory()[1] < 6 * line_reader.PIECE
    tracemalloc.stop()
    assert [(place, len(line), reason is None) for place, line, reason in found] == [
        (0, 1, True), (2, records.BEGINNING, False), ((48 << 20) + 3, 1, True),
    ]  # fmt: skip


def test_a_range_looks_for_its_first_line_no_further_than_its_end(tmp_path: Path) -> None:
    """Else each of a thousand ranges of one long line would read it to its end."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * (1 << 20) + b"\n")
    part = Range(str(path), 7, 1000, 2000, 1 << 20)

    with path.open("rb", buffering=0) as file:
        assert line_reader._begin(file, part) >= part.end
        assert file.tell() <= 1 << 17
