"""Growing files: what is new of each, in whole lines; who a file is, whatever it is named; what was cut is told."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onlyonce.api.sources import EARLIEST, LATEST
from onlyonce.core.errors import Retryable
from onlyonce.sources import growing, line_reader, listing
from onlyonce.sources.folders import Folders
from onlyonce.sources.growing import Known, batched, located, new_ranges
from onlyonce.sources.listing import Csv, InputFile
from onlyonce.sources.record_id import inode
from tests.support import csv_oracle

MUCH = 1 << 40


class Reader:
    """What a manifest would remember, and all lines that were read: (identity, byte, line)."""

    def __init__(self, inbox: Path, most: int = MUCH, *, compressed: bool = False, csv: Csv | None = None) -> None:
        self.inbox, self.most, self.compressed, self.csv = inbox, most, compressed, csv
        self.known: dict[str, Known] = {}
        self.read: list[tuple[str, int, bytes]] = []
        self.refused: list[str] = []

    def turn(self) -> list[InputFile]:
        """List once, and read what is listed."""
        found = new_ranges(self.inbox, self.known, self.most, with_compressed=self.compressed, csv=self.csv)
        for one in found:
            if one.refusal:
                self.refused.append(one.refusal)
            else:
                lines = read(one, self.csv.delimiter if self.csv else ",")
                assert len(lines) == one.lines
                self.read += lines
            last = self.known.get(one.identity, Known(0, ""))
            self.known[one.identity] = Known(max(one.ends, last.ends), one.mark, bool(one.refusal))
        return found

    def lines(self) -> list[bytes]:
        """What was read so far, in order."""
        return [line for _, _, line in self.read]


def read(one: InputFile, delimiter: str = ",") -> list[tuple[str, int, bytes]]:
    """The lines of a range as a task reads them, where the file is now."""
    path, reason = located(one)
    assert reason is None
    csv = {"quoted_within": one.quoted_within, "cuts": one.cuts, "delimiter": delimiter}
    whole = line_reader.Range(path, 7, one.begins, one.ends, one.ends, inode=inode(one.identity), **csv)  # type: ignore[arg-type]
    part = line_reader.compressed(path, 7, ".gz") if path.endswith(".gz") else whole
    found = []
    for batch in (batch for each in line_reader._cut(part) for batch in line_reader.lines(each)):
        values = batch.column("oo_line").cast("binary").to_pylist()
        found += [
            (one.identity, at, line) for at, line in zip(batch.column("oo_position").to_pylist(), values, strict=True)
        ]
    return found


def append(path: Path, data: bytes) -> None:
    """As a logger does."""
    with path.open("ab") as file:
        file.write(data)


def test_only_whole_lines_are_read_and_a_half_one_waits(tmp_path: Path) -> None:
    """A line is read when its line feed is there, once, with the byte at which it begins; an empty file has nothing."""
    log, reader = tmp_path / "app.log", Reader(tmp_path)
    for data, lines in (
        (b"", 0), (b"a", 0), (b"b\n", 1), (b"c\nhal", 1), (b"", 0), (b"f", 0), (b"\n\n", 2), (b"\xff\r\n", 1)
    ):  # fmt: skip
        append(log, data)
        found = reader.turn()
        assert sum(one.lines for one in found) == lines, data

    assert [(at, line) for _, at, line in reader.read] == [
        (0, b"ab"),
        (3, b"c"),
        (5, b"half"),
        (10, b""),
        (11, b"\xff\r"),
    ]
    assert reader.turn() == []


def test_every_way_to_append_and_to_cut_into_ranges_reads_each_line_once(tmp_path: Path) -> None:
    """Random pieces and range sizes: the same lines with the same bytes as of the whole file; bytes a range are
    bounded."""
    chance = random.Random(5)
    content = b"".join(b"%d,%s\n" % (n, b"x" * chance.randrange(30)) for n in range(200))
    wanted, at = [], 0
    for line in content.splitlines(keepends=True):
        wanted.append((at, line[:-1]))
        at += len(line)
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        reader, most = Reader(folder, chance.choice([1, 10, 100, 1000, MUCH])), 0
        cuts = sorted(chance.sample(range(len(content)), 10))
        for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
            append(folder / "app.log", content[begin:end])
            most = max([most, *(one.ends - one.begins for one in reader.turn())])
        assert sorted((at, line) for _, at, line in reader.read) == wanted
        assert most < reader.most + 40


def test_a_record_with_an_open_quote_waits(tmp_path: Path) -> None:
    """It is read once it is whole.

    If its quote is malformed, or its record would be too large, its first line is read, and those behind it.
    """
    log, reader = tmp_path / "app.csv", Reader(tmp_path, csv=Csv(16))
    for data, records in (
        (b'1,"a\n', []), (b'2,b\n"', []), (b'"c"', []), (b",x\n3,", [b'1,"a\n2,b\n""c",x']), (b'"d\n4\n', []),
        (b'5,"e"\n', [b'3,"d', b"4", b'5,"e"']), (b"67890\nabc\n", [b"67890", b"abc"]), (b'6,"\n7\n8\n', []), (b"90123456\n", [b'6,"', b"7", b"8", b"90123456"]),
    ):  # fmt: skip
        append(log, data)
        before = len(reader.read)
        reader.turn()
        assert reader.lines()[before:] == records, data


@pytest.mark.parametrize(("most", "delimiter"), [(1, ","), (20, ";"), (MUCH, ",")])
def test_every_way_to_append_gives_the_records_of_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, delimiter: str
) -> None:
    """And every size of a range and of its parts, and every place at which the producer pauses."""
    monkeypatch.setattr(listing, "RANGE", 10)
    chance = random.Random(most)
    for number in range(30):
        content = b"".join(chance.choices(csv_oracle.TOKENS, k=40)) + b'x\n"' + b"\n" * 25
        folder = tmp_path / str(number)
        folder.mkdir()
        reader = Reader(folder, most, csv=Csv(20, delimiter=delimiter))
        cuts = sorted(chance.sample(range(len(content)), 6))
        for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
            append(folder / "app.csv", content[begin:end])
            reader.turn()
        assert sorted((at, line) for _, at, line in reader.read) == csv_oracle.records(content, 20, delimiter)


def test_a_renamed_file_is_the_same_and_a_new_one_under_its_name_another(tmp_path: Path) -> None:
    """Rotated while lines wait, also twice: nothing is lost and nothing read again; where it is now is found."""
    log, reader = tmp_path / "app.log", Reader(tmp_path)
    append(log, b"1\n2\n")
    reader.turn()
    append(log, b"3\n4")
    waiting = new_ranges(tmp_path, reader.known, MUCH)
    log.rename(tmp_path / "app.log.1")
    append(log, b"1\nnew\n")

    assert [line for _, _, line in read(waiting[0])] == [b"3"]
    reader.turn()
    append(tmp_path / "app.log.1", b"!\n")
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    log.rename(tmp_path / "app.log.1")
    append(log, b"newest\n")
    reader.turn()

    assert sorted(reader.lines()) == sorted([b"1", b"2", b"3", b"1", b"new", b"4!", b"newest"])
    assert len({who for who, _, _ in reader.read}) == 3
    assert reader.refused == []


@pytest.mark.parametrize(
    "rewrite",
    [b"", b"1\n", b"1\nx\n", b"1\nxx\n", b"1\nxx\n3\n4\n"],
    ids=["empty", "cut", "short", "same size", "longer"],
)
def test_a_file_that_is_cut_or_rewritten_in_place_is_refused_once(tmp_path: Path, rewrite: bytes) -> None:
    """As long as it begins as it did: one refusal that says how far it was read, and nothing of it after that."""
    log, reader = tmp_path / "app.log", Reader(tmp_path)
    append(log, b"1\n22\n")
    reader.turn()
    with log.open("r+b") as file:
        file.truncate(0)
        file.write(rewrite)
    if not rewrite:
        assert reader.turn() == []  # nobody knows who it is until its first line is there
        append(log, b"1\n")

    for data in (b"", b"more\n", b"and more\n"):
        append(log, data)
        reader.turn()

    assert reader.lines() == [b"1", b"22"]
    [reason] = reader.refused
    assert "cut short or rewritten" in reason
    assert "byte 5" in reason


def test_a_file_with_two_names_that_grows_between_its_looks_is_read_once_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever name is looked at last; and its unread bytes count once."""
    for late in ("a.log", "b.log"):
        folder = tmp_path / late
        folder.mkdir()
        append(folder / "a.log", b"0123456789\n" * 5)
        (folder / "b.log").hardlink_to(folder / "a.log")
        look, looked = growing._new, threading.Event()

        def slowly(one: Any, *given: Any, late: str = late, look: Any = look, looked: Any = looked) -> list[InputFile]:
            if one.path.endswith(late):
                assert looked.wait(10)
                append(Path(one.path), b"abcdefghij\n" * 10)
            found = list(look(one, *given))
            looked.set()
            return found

        with monkeypatch.context() as patched:
            patched.setattr(growing, "_new", slowly)
            ranges = new_ranges(folder, {}, 88)

        assert [(one.begins, one.ends) for one in ranges] == [(0, 88), (88, 165)]
        unread = growing.unread(folder, {}, with_compressed=False, links=False, folders=Folders())
        assert [size for size, _ in unread] == [165]


def test_a_file_that_begins_otherwise_is_a_new_one(tmp_path: Path) -> None:
    """Also in an inode that was used before, as file systems do: it is read from its begin."""
    log, reader = tmp_path / "app.log", Reader(tmp_path)
    append(log, b"day 1\na\nb\n")
    reader.turn()
    with log.open("r+b") as file:
        file.truncate(0)
        file.write(b"day 2\nc\n")
    reader.turn()

    assert reader.lines() == [b"day 1", b"a", b"b", b"day 2", b"c"]
    assert reader.refused == []


def test_a_new_log_in_a_deleted_logs_inode_is_read_from_its_begin(tmp_path: Path) -> None:
    """With the same header, whether it is shorter or longer than the deleted log; and no task takes one for the
    other."""
    log, reader = tmp_path / "app.log", Reader(tmp_path)
    append(log, b"id,at\n1,a\n")
    [deleted] = reader.turn()
    for content in (b"id,at\n", b"id,at\n1,a\n", b"id,at\n2,b\n3,c\n"):
        _put_into_inode(log, content)
        reader.turn()
        append(log, b"more\n")
        reader.turn()

    assert reader.refused == []
    assert b" ".join(reader.lines()) == b"id,at 1,a id,at more id,at 1,a more id,at 2,b 3,c more"
    assert "vanished" in str(located(deleted)[1])
    stale = line_reader.Range(str(log), 7, 0, deleted.ends, deleted.ends, inode=inode(deleted.identity))
    with pytest.raises(Retryable, match="while it was read"):
        list(line_reader.lines(stale))


def _put_into_inode(log: Path, content: bytes) -> None:
    """Delete a file and make another one in its inode. Other processes may take a free inode first, so try again."""
    for _ in range(1000):
        before = log.stat().st_ino
        log.unlink()
        append(log, content)
        if log.stat().st_ino == before:
            return
    pytest.skip("this file system gives no inode again")


def test_a_file_that_changes_between_listing_and_reading_is_told(tmp_path: Path) -> None:
    """Vanished or cut: said when its batch begins.

    Grown or renamed: read as listed. Changed under a task: the run is repeated.
    """
    names = ("gone", "cut", "rewritten", "grown", "renamed")
    for name in names:
        append(tmp_path / name, name.encode() + b"\nsecond\n")
    found = {Path(one.path).name: one for one in new_ranges(tmp_path, {}, MUCH)}
    assert sorted(found) == sorted(names)
    (tmp_path / "gone").unlink()
    os.truncate(tmp_path / "cut", 5)
    with (tmp_path / "rewritten").open("r+b") as file:
        file.write(b"rewritten\nSECOND\n")
    append(tmp_path / "grown", b"third\n")
    (tmp_path / "renamed").rename(tmp_path / "elsewhere")
    append(tmp_path / "renamed", b"another file, longer than it was\n")

    reasons = {name: located(one)[1] for name, one in found.items()}

    assert reasons["gone"] == "the file vanished before it was read"
    assert "cut short or rewritten" in str(reasons["cut"])
    assert "cut short or rewritten" in str(reasons["rewritten"])
    assert (reasons["grown"], reasons["renamed"]) == (None, None)
    assert [line for _, _, line in read(found["renamed"])] == [b"renamed", b"second"]
    for name in ("renamed", "cut"):
        one = found[name]
        stale = line_reader.Range(str(tmp_path / name), 7, 0, one.ends, one.ends, inode=inode(one.identity))
        with pytest.raises(Retryable, match="while it was read"):
            list(line_reader.lines(stale))


@pytest.fixture
def inbox() -> Iterator[Path]:
    """A folder that every user may read: pytest's own folders are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="onlyonce-inbox-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def as_other_user() -> Iterator[None]:
    """The rest as a user whose permissions count: root may read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_file_that_cannot_be_opened_is_tried_again(inbox: Path) -> None:
    """It may be readable at the next attempt, so its range is not lost."""
    append(inbox / "app.log", b"first\n")
    [one] = new_ranges(inbox, {}, MUCH)
    (inbox / "app.log").chmod(0)

    with as_other_user(), pytest.raises(Retryable, match=r"app\.log can't be read: Permission denied") as raised:
        located(one)

    assert raised.value.data == "nothing of this batch was read; the file counts as it was listed"


def test_unreadable_file_at_the_place_of_a_renamed_one_stops_nothing(inbox: Path) -> None:
    """A rotation may make the new file for another user."""
    append(inbox / "app.log", b"first\n")
    [one] = new_ranges(inbox, {}, MUCH)
    (inbox / "app.log").rename(inbox / "app.log.1")
    append(inbox / "app.log", b"second\n")
    (inbox / "app.log").chmod(0)

    with as_other_user():
        assert located(one) == (f"{inbox}/app.log.1", None)
    (inbox / "app.log.1").unlink()
    with as_other_user():
        assert located(one)[1] == "the file vanished before it was read"


def test_packed_files_are_read_whole_where_they_are_asked_for(tmp_path: Path) -> None:
    """Else they are left alone; a damaged one is refused as a whole, once; a name that is no UTF-8 too."""
    (tmp_path / "old.log.gz").write_bytes(gzip.compress(b"a\nb"))
    (tmp_path / "bad.log.gz").write_bytes(gzip.compress(b"a\nb" * 99)[:-9])
    (tmp_path / os.fsdecode(b"bad\xff.log")).write_bytes(b"x\n")
    (tmp_path / ".hidden").write_bytes(b"x\n")
    os.mkfifo(tmp_path / "pipe")
    without, reader = Reader(tmp_path), Reader(tmp_path, compressed=True)
    without.turn()
    for _ in range(2):
        reader.turn()

    assert without.lines() == []
    assert reader.lines() == [b"a", b"b"]
    pipe, damaged, name = sorted(reader.refused)
    assert "a pipe" in pipe
    assert "not UTF-8" in name
    assert "cut short or damaged" in damaged


def test_a_file_that_may_not_be_read_is_refused_once_and_read_when_it_may(tmp_path: Path) -> None:
    """And never stops the others."""
    (tmp_path / "failing").symlink_to("/proc/self/mem")
    append(tmp_path / "app.log", b"a\n")
    reader = Reader(tmp_path)
    for _ in range(2):
        reader.turn()
    (tmp_path / "failing").unlink()
    append(tmp_path / "failing", b"b\n")
    reader.turn()

    assert reader.lines() == [b"a", b"b"]
    assert len(reader.refused) == 1


def test_batches_hold_so_many_bytes_and_each_file_once() -> None:
    """Whatever the ranges are, all of them in order; only a range that is larger by itself goes over."""
    chance = random.Random(3)
    ranges = []
    for name in range(40):
        ends = 0
        for _ in range(chance.randrange(1, 4)):
            ranges.append(InputFile(str(name), 0, 0, 0, None, str(name), ends, ends + chance.randrange(1, 150)))
            ends = ranges[-1].ends

    groups = list(batched(ranges, 100, 5))

    assert [one for group in groups for one in group] == ranges
    for group in groups:
        assert len({one.path for one in group}) == len(group) <= 5
        assert len(group) == 1 or sum(one.ends - one.begins for one in group) <= 100


def test_a_start_leaves_out_the_whole_lines_that_were_there(tmp_path: Path) -> None:
    """Latest: all of them.

    A time: those of files that were last changed before it. A half line is read when it is whole.
    """
    for number, name in enumerate(("old", "new")):
        append(tmp_path / name, name.encode() + b"\nhalf")
        os.utime(tmp_path / name, (1000 + number * 1000, 1000 + number * 1000))
    times = {
        EARLIEST: [], LATEST: ["new", "old"], datetime.fromtimestamp(1500, UTC): ["old"],
        datetime.fromtimestamp(2000, UTC): ["old"], datetime.fromtimestamp(2001, UTC): ["new", "old"],
    }  # fmt: skip
    for start, left_out in times.items():
        before = growing.at_start(tmp_path, start)  # type: ignore[arg-type]
        assert sorted(Path(one.path).name for one in before) == left_out, start
        assert [one.ends for one in before] == [4] * len(left_out)
