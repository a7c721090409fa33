"""What is in an inbox: every kind of file has its outcome, one odd file never stops the others, and it is quick."""

from __future__ import annotations

import bz2
import gzip
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from onlyonce.core import records
from onlyonce.core.errors import Retryable
from onlyonce.sources import avro_files, file_bytes, growing, line_reader, listing, record_id, typed_files
from onlyonce.sources.listing import Csv, FileAt, InputFile, changed, new_files

Known = dict[str, tuple[int, int]]


@pytest.fixture
def inbox() -> Iterator[Path]:
    """A folder that another account may enter too."""
    folder = Path(tempfile.mkdtemp(prefix="onlyonce-inbox-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def found(inbox: Path, known: Known | None = None) -> dict[str, InputFile]:
    """What is new, by name."""
    return {file.path.removeprefix(f"{inbox}/"): file for file in new_files(inbox, known or {})}


def known_of(files: dict[str, InputFile]) -> Known:
    """What the manifest remembers of them."""
    return {file.path: (file.size, file.modified_ns) for file in files.values()}


CONTENTS = {
    b"": 0, b"\n": 1, b"a": 1, b"a\n": 1, b"a\nb": 2, b"a\n\n": 2, b"\r\n": 1, b"\r": 1, b"\xff\n\x00": 2,
    b"x" * (listing.PIECE * 2): 1, b"x" * (listing.PIECE - 1) + b"\n" + b"y": 2, b"\n" * (listing.PIECE + 1): listing.PIECE + 1,
}  # fmt: skip


def test_lines_are_counted_as_spark_cuts_them(inbox: Path) -> None:
    """By line feeds alone; a last line without one counts; an empty file has none; large and small files alike."""
    for number, content in enumerate(CONTENTS):
        (inbox / f"{number:03}").write_bytes(content)

    files = found(inbox)

    assert [file.lines for file in files.values()] == list(CONTENTS.values())
    assert list(files) == sorted(files)


ODD = [
    "a b",
    "line\nfeed",
    "ü🛒",
    "%20",
    "*[1]{a}",
    '\'"quotes"',
    "back\\slash",
    "colon:",
    "-",
    "x" * 255,
    "tab\t",
    "$HOME",
    "~",
]


def test_odd_names_are_names_and_what_is_no_file_is_left_alone(inbox: Path) -> None:
    """Each odd name is found as it is; folders and hidden files are not input."""
    for name in [*ODD, ".hidden", "_temporary", ".a.jsonl.crc"]:
        (inbox / name).write_text("{}\n")
    (inbox / "folder").mkdir()

    files = found(inbox)

    assert sorted(files) == sorted(ODD)
    assert {(file.lines, file.refusal) for file in files.values()} == {(1, None)}
    assert found(inbox, known_of(files)) == {}


def put_what_is_no_file(inbox: Path, outside: Path) -> dict[str, str]:
    """One of each; gives how each is told."""
    os.mkfifo(inbox / "pipe")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(inbox / "socket"))
    (inbox / "nowhere").symlink_to(inbox / "missing")
    (inbox / "loop").symlink_to(inbox / "loop")
    (inbox / "link").symlink_to(outside)
    (inbox / "link.gz").symlink_to(outside)
    told = {
        "pipe": "a pipe",
        "socket": "a socket",
        **dict.fromkeys(("nowhere", "loop", "link", "link.gz"), "a symbolic link"),
    }
    if os.geteuid() == 0:
        os.mknod(inbox / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        told["device"] = "a device file"
    return told


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file that is not for the inbox."""
    path = tmp_path / "secret"
    path.write_text("root\n")
    return path


def test_what_is_no_file_is_refused_once_by_name_and_nothing_waits_for_it(inbox: Path, outside: Path) -> None:
    """Links, pipes, sockets and devices: an entry each, of which nothing was read; known the next time, whatever is
    written."""
    told = put_what_is_no_file(inbox, outside)
    (inbox / "good").write_text("{}\n")

    files = found(inbox)
    os.utime(inbox / "pipe", ns=(5, 5))

    assert files.pop("good").refusal is None
    assert {name: (file.lines, file.size) for name, file in files.items()} == dict.fromkeys(told, (0, 0))
    assert all(told[name] in str(file.refusal) for name, file in files.items())
    assert list(found(inbox, known_of(files))) == ["good"]


def test_links_are_followed_where_the_source_allows_them(inbox: Path, outside: Path) -> None:
    """Under their own names; those that lead nowhere are left alone."""
    put_what_is_no_file(inbox, outside)
    (inbox / "link.gz").unlink()

    files = {Path(file.path).name: file for file in new_files(inbox, {}, links=True)}

    assert (files["link"].lines, files["link"].refusal, changed(files["link"], links=True)) == (1, None, None)
    assert files["link"].path == str(inbox / "link")


def test_a_link_that_an_earlier_reprocessing_has_read_is_known(inbox: Path, outside: Path) -> None:
    """It was registered with the size and time of what it names; it is neither read again nor refused."""
    (inbox / "link").symlink_to(outside)
    now = outside.stat()

    assert found(inbox, {str(inbox / "link"): (now.st_size, now.st_mtime_ns)}) == {}


@pytest.mark.parametrize("made", [os.mkfifo, lambda path: path.symlink_to("/etc/hostname")], ids=["pipe", "link"])
def test_what_takes_the_place_of_a_file_after_it_was_listed_is_neither_followed_nor_waited_for(
    inbox: Path, made: Callable[[Path], None]
) -> None:
    """Whoever opens it is told, at any time."""
    made(inbox / "a")

    with pytest.raises(file_bytes.NoFile), listing.opened(FileAt(str(inbox / "a")), None):
        pass
    for read in (typed_files.parquet_footer, avro_files.columns):
        with pytest.raises(file_bytes.NoFile):
            read(FileAt(str(inbox / "a")))
    with pytest.raises(Retryable, match="vanished while its batch was read"):
        next(line_reader.lines(line_reader.Range(str(inbox / "a"), 7, 0, 5, 5)))
    assert record_id.identity(inbox / "a") is None


def test_a_name_that_is_not_utf8_is_refused_once(inbox: Path) -> None:
    """Neither Delta nor Java could hold it: one entry with its reason, under a printable name; known the next time."""
    (inbox / os.fsdecode(b"bad\xff.jsonl")).write_text("{}\n")
    (inbox / "good.jsonl").write_text("{}\n")

    files = found(inbox)

    assert files["bad\\xff.jsonl"].refusal == "the file's name is not UTF-8; give it another name"
    assert files["good.jsonl"].refusal is None
    assert all(file.path.encode() for file in files.values())
    assert found(inbox, known_of(files)) == {}


GZIP = gzip.compress(b"a\nb\n" * 1000, mtime=0)


@pytest.mark.parametrize(
    ("content", "lines", "refusal"),
    [
        (gzip.compress(b"", mtime=0), 0, None), (gzip.compress(b"a\nb", mtime=0), 2, None), (gzip.compress(b"a\n", mtime=0) + gzip.compress(b"b", mtime=0), 2, None),
        (GZIP, 2000, None), (GZIP[:-1], 0, "damaged"), (GZIP[:20], 0, "damaged"), (b"a\nb\n", 0, "damaged"),
        (GZIP[:-6] + b"\0" + GZIP[-5:], 0, "damaged"), (GZIP + b"rubbish", 0, "damaged"), (b"", 0, "it is empty"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a.gz", "A.JSONL.GZ"])
def test_a_gzip_file_is_counted_unpacked_and_refused_when_any_of_it_is_damaged(
    inbox: Path, content: bytes, lines: int, refusal: str | None, name: str
) -> None:
    """A file that is cut short gives none of its records, not the first ones."""
    (inbox / name).write_bytes(content)

    [file] = found(inbox).values()

    assert file.lines == lines
    assert (refusal in str(file.refusal)) if refusal else file.refusal is None


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "bz2": bz2.compress, "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}  # fmt: skip


@pytest.mark.parametrize(("ending", "compress"), PACKED.items())
def test_bzip2_and_zstandard_are_unpacked_and_refused_likewise(
    inbox: Path, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    """Whole, of two streams, empty inside; cut short, no such format, without a byte."""
    whole = compress(b"a\nb\n" * 1000)
    contents = {
        "whole": (whole, 2000), "two": (compress(b"a\n") + compress(b"b"), 2), "nothing": (compress(b""), 0),
        "cut": (whole[:-1], None), "begun": (whole[:20], None), "other": (b"a\nb\n", None), "empty": (b"", None),
    }  # fmt: skip
    for name, (content, _) in contents.items():
        (inbox / f"{name}.{ending}").write_bytes(content)

    files = {Path(path).stem: file for path, file in found(inbox).items()}

    assert {name: file.lines for name, file in files.items()} == {n: lines or 0 for n, (_, lines) in contents.items()}
    refused = {
        name for name, file in files.items() if f"the .{ending} file is cut short or damaged" in str(file.refusal)
    }
    assert refused == {name for name, (_, lines) in contents.items() if lines is None}


@pytest.mark.parametrize(("ending", "compress"), {"gz": gzip.compress, **PACKED}.items())
@pytest.mark.parametrize("at", [0, 10], ids=["first byte", "later byte"])
def test_damaged_second_stream_refuses_the_file(
    inbox: Path, ending: str, compress: Callable[[bytes], bytes], at: int
) -> None:
    """None of its records is read, also not the ones of the first stream."""
    first, second = compress(b"a\n"), bytearray(compress(b"b\n" * 1000))
    second[at] ^= 0xFF
    (inbox / f"a.{ending}").write_bytes(first + bytes(second))

    [file] = found(inbox).values()

    assert file.lines == 0
    assert f"the .{ending} file is cut short or damaged" in str(file.refusal)


@pytest.mark.parametrize(
    ("content", "lines", "refusal"),
    [
        (b"id,at\na,b\n", 1, None), (b"id,at", 0, None), (b"\xef\xbb\xbfid,at\r\na,b\r\nc,d", 2, None), (b'"id", at\n', 0, None),
        (b"at,id\na,b\n", 0, "'at,id'"), (b"", 0, "the file is empty: it lacks the header 'id,at'"), (b"a,b\n", 0, "'a,b'"), (b"\xff\n", 0, "xff"),
    ],
)  # fmt: skip
def test_a_header_is_no_record_and_must_name_the_declared_columns(
    inbox: Path, content: bytes, lines: int, refusal: str | None
) -> None:
    """Other names, another order or none: the file is refused as a whole, and says what it has."""
    (inbox / "a.csv").write_bytes(content)

    [file] = new_files(inbox, {}, Csv(records.DEFAULT, ["id", "at"]))

    assert file.lines == lines
    assert (refusal in str(file.refusal)) if refusal else file.refusal is None


@pytest.mark.parametrize(
    ("content", "difference"),
    [
        ("id,shop,time", "it has 'time' and lacks 'At'; if this is the same column, declare aliases={'at': 'time'}"),
        ("shop,id,At", "the order differs; declare the columns in the order of the file"),
        ("id,At", "it lacks shop"), ("id,shop,At,more", "it has more, which the declaration has not"),
        ("id,a,b", "it lacks shop, At; it has a, b, which the declaration has not"),
        ("7,north,2026-01-01", "no column has a declared name; has the file a header, and this delimiter?"),
        ("id;shop;At", "no column has a declared name; has the file a header, and this delimiter?"),
        ("\n7,north,x", "no column has a declared name; has the file a header, and this delimiter?"),
        (f"id,shop,{'x' * 99}", f"it lacks At; it has {'x' * 40}…, which the declaration has not"),
    ],
)  # fmt: skip
def test_refused_header_names_the_columns_that_differ(inbox: Path, content: str, difference: str) -> None:
    """A single other name has the alias to declare, of the declared column and not of its name in the source."""
    (inbox / "a.csv").write_text(content)

    [file] = new_files(inbox, {}, Csv(records.DEFAULT, ["id", "shop", "At"], columns=["id", "shop", "at"]))

    assert str(file.refusal).endswith(f"and not the header 'id,shop,At': {difference}")


@pytest.mark.parametrize(
    ("content", "next_step"),
    [
        (b"PAR1\x15\x04\n{}\n", "a Parquet file: declare a pipeline or input with Files(format='parquet')"),
        (b"Obj\x01\x04\n{}\n", "an Avro file: declare a pipeline or input with Files(format='avro')"),
        (gzip.compress(b"{}\n"), "put it in under a new name that ends in .gz"),
        (bz2.compress(b"{}\n"), "put it in under a new name that ends in .bz2"),
        (b"\x28\xb5\x2f\xfd\n", "put it in under a new name that ends in .zst"),
        (b"PK\x03\x04\n{}\n", "save it as CSV"),
        ('{"id":"x"}\n{}\n'.encode("utf-16"), "iconv -f UTF-16 -t UTF-8 OLD > NEW"),
    ],
    ids=["Parquet", "Avro", "gzip", "bzip2", "Zstandard", "zip", "UTF-16"],
)  # fmt: skip
def test_file_of_another_format_is_one_invalid_record(inbox: Path, content: bytes, next_step: str) -> None:
    """Also a growing file, and CSV with a header. A line that only looks like one, and an empty file, are no such file."""
    (inbox / "a.jsonl").write_bytes(content + b"\n")
    (inbox / "text.jsonl").write_bytes(b"PAR1 is the best\n{}\n")
    (inbox / "empty.jsonl").touch()
    (inbox / "csv").mkdir()
    (inbox / "csv" / "a.csv").write_bytes(content)
    (inbox / "packed.jsonl.gz").write_bytes(gzip.compress(content))

    files = found(inbox)
    growing_file = next(one for one in growing.new_ranges(inbox, {}, 1 << 20) if one.path.endswith("a.jsonl"))

    [with_header] = new_files(inbox / "csv", {}, Csv(records.DEFAULT, ["id", "at"]))
    for refused in (files["a.jsonl"], files["packed.jsonl.gz"], growing_file, with_header):
        assert refused.lines == 0
        assert next_step in str(refused.refusal)
    assert (files["text.jsonl"].lines, files["text.jsonl"].refusal) == (2, None)
    assert (files["empty.jsonl"].lines, files["empty.jsonl"].refusal) == (0, None)


@pytest.mark.parametrize("field", [140_000, 2_000_000])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_first_line_of_any_length_is_a_header_or_refused(inbox: Path, field: int, quote: str) -> None:
    """The library's limit for a field is 131,072 characters; the files next to it are found."""
    (inbox / "a.csv").write_text(f"{quote}{'x' * field}{quote},at\n1,2\n")
    (inbox / "b.csv").write_text("id,at\n1,2\n")

    long, good = new_files(inbox, {}, Csv(records.DEFAULT, ["id", "at"]))

    assert "and not the header 'id,at'" in str(long.refusal)
    assert (good.lines, good.refusal) == (1, None)


@pytest.mark.parametrize("ending", ["deflate", "lz4", "snappy", "LZ4"])
def test_a_compressed_file_is_refused(inbox: Path, ending: str) -> None:
    """Spark would unpack it by its name and find other lines than were counted."""
    (inbox / f"a.{ending}").write_bytes(b"x\n")

    assert "compressed" in str(found(inbox)[f"a.{ending}"].refusal)


def test_an_unreadable_file_is_refused_and_the_others_are_found(inbox: Path) -> None:
    """One that may not be read, and one whose reading fails: each an entry with the system's reason."""
    for name in ("closed", "open"):
        (inbox / name).write_text("{}\n")
    (inbox / "closed").chmod(0)
    # No process may read its own memory at address 0: an input error, also for root.
    (inbox / "failing").symlink_to("/proc/self/mem")
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        files = {Path(file.path).name: file for file in new_files(inbox, {}, links=True)}
    finally:
        if root:
            os.seteuid(0)

    assert "Permission denied; when it can, give it a new name" in str(files["closed"].refusal)
    assert "the file can't be read" in str(files["failing"].refusal)
    assert files["open"].refusal is None


def test_files_that_vanish_while_we_look_stop_nothing(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gone between listing and look: never there. Gone before it is counted: an entry that says so."""
    for name in ("a", "b", "c"):
        (inbox / name).write_text("{}\n")
    count = listing._count_lines

    def count_late(content: listing.Content) -> int:
        (inbox / "b").unlink(missing_ok=True)
        return count(content)

    monkeypatch.setattr(listing, "_count_lines", count_late)

    files = found(inbox)

    assert [name for name, file in files.items() if file.refusal is None] == ["a", "c"]
    assert "No such file" in str(files["b"].refusal)
    assert found(inbox / "nothing here") == {}
    assert found(inbox / "a") == {}


def test_a_file_that_is_no_longer_what_was_listed_is_told(inbox: Path) -> None:
    """Grown, cut, touched, replaced by a folder or gone: each is said before its batch is read; untouched: nothing."""
    for name in ("same", "grown", "cut", "touched", "gone"):
        (inbox / name).write_text("{}\n")
    files = found(inbox)
    with (inbox / "grown").open("a") as file:
        file.write("{}\n")
    (inbox / "cut").write_text("")
    os.utime(inbox / "touched", ns=(1, 1))
    (inbox / "gone").unlink()

    told = {name: changed(file) for name, file in files.items()}

    assert told["same"] is None
    assert told["gone"] == "the file vanished before it was read"
    assert told["grown"] == "the file changed after it was listed: it had 3 bytes, it has 6"
    assert told["cut"] == "the file changed after it was listed: it had 3 bytes, it has 0"
    assert "changed after it was listed" in str(told["touched"])


def test_listed_file_that_cannot_be_looked_up_is_tried_again(inbox: Path) -> None:
    """It may be there at the next attempt, so its records are not lost."""
    below = inbox / "below"
    below.mkdir()
    (below / "a").write_text("{}\n")
    [file] = new_files(below, {})
    below.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(Retryable, match="a can't be read: Permission denied"):
            changed(file)
    finally:
        if root:
            os.seteuid(0)
        below.chmod(0o755)


def test_a_replaced_file_is_an_entry_with_its_reason(inbox: Path) -> None:
    """Under its old name with other content it is refused and not read; after that it is known."""
    (inbox / "a").write_text("{}\n")
    before = known_of(found(inbox))
    (inbox / "a").write_text("{}\n{}\n")

    files = found(inbox, before)

    assert "replaced under its old name" in str(files["a"].refusal)
    assert found(inbox, known_of(files)) == {}


def test_very_many_tiny_files_are_one_pass(inbox: Path) -> None:
    """Each is opened once when it is new and never again: linear, whatever the number (measured with 100,000)."""
    for number in range(2000):
        (inbox / f"{number:06}").write_bytes(b"{}\n")

    files = found(inbox)

    assert sum(file.lines for file in files.values()) == 2000
    assert found(inbox, known_of(files)) == {}
