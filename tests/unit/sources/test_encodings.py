"""Files of CSV in a code page of Windows: their lines as Python's codecs decode them, their places those of bytes."""

from __future__ import annotations

import gzip
import random
import subprocess
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from onlyonce.core import encodings
from onlyonce.core.line_values import DELIMITERS
from onlyonce.sources import growing, line_reader
from onlyonce.sources.listing import Csv, accept

WINDOWS_1252 = "windows-1252"
PARTS = [b"a", b",", b'"', b'""', b"\n", b"\r\n", b"\x80", b"\xe9\xe9", b"\xdf", b"\x81", b"\xc3\xa9", b" "]


def codec(encoding: str) -> str:
    """Return Python's name of a code page."""
    return f"cp{encoding.removeprefix('windows-')}"


def read(parts: list[line_reader.Range]) -> list[tuple[int, str, str | None]]:
    """Return (place, line, reason) of each record that a task reads."""
    batches = [batch for part in parts for batch in line_reader.lines(part)]
    return [
        (row["oo_position"], row["oo_line"].encode().decode(), row["oo_refused"])
        for row in (pa.Table.from_batches(batches).to_pylist() if batches else [])
    ]


@pytest.mark.parametrize("encoding", encodings.WINDOWS)
def test_each_byte_is_the_character_of_pythons_codec(encoding: str, tmp_path: Path) -> None:
    """A line with an undefined byte is refused by it, and keeps all its other characters."""
    octets = [byte for byte in range(256) if byte not in b"\n\r"]
    path = tmp_path / "a.csv"
    path.write_bytes(b"".join(b"x%cy\n" % byte for byte in octets))

    found = read([line_reader.Range(str(path), 7, 0, 4 * len(octets), 4 * len(octets), encoding=encoding)])

    for number, (byte, (at, line, reason)) in enumerate(zip(octets, found, strict=True)):
        wanted = bytes([byte]).decode(codec(encoding), "ignore")
        assert at == 4 * number
        assert (line[0], line[-1], len(line)) == ("x", "y", 3)
        if wanted:
            assert (line[1], reason) == (wanted, None)
        else:
            assert reason == f"the line is not {encoding}: it has the byte 0x{byte:02X}, which is no character there"
    for one in DELIMITERS:
        assert encodings.characters(encoding)[ord(one)] == one


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_lines_are_the_same_however_a_file_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    """The oracle cuts the bytes of records as UTF-8's source has them, and decodes each by itself."""
    monkeypatch.setattr(line_reader, "PIECE", piece)
    chance = random.Random(piece)
    for number in range(60):
        content = b"".join(chance.choices(PARTS, k=30))
        path = tmp_path / f"{number}.csv"
        path.write_bytes(content)
        whole = line_reader.Range(str(path), 7, 0, len(content), len(content), quoted_within=20)
        octets = [
            (at, line)
            for batch in line_reader.lines(whole)
            for at, line in zip(
                batch["oo_position"].to_pylist(), batch["oo_line"].cast(pa.binary()).to_pylist(), strict=True
            )
        ]
        cuts = sorted({0, len(content), *(at for at, _ in octets if chance.random() < 0.3)})
        parts = [
            line_reader.Range(str(path), 7, begin, end, end, quoted_within=20, encoding=WINDOWS_1252, most=1 << 20)
            for begin, end in pairwise(cuts)
        ]
        packed = tmp_path / f"{number}.csv.gz"
        packed.write_bytes(gzip.compress(content))
        compressed = line_reader.compressed(str(packed), 7, ".gz", quoted_within=20, encoding=WINDOWS_1252)

        for found in (read(parts), read([compressed])):
            assert [(at, bool(reason)) for at, _, reason in found] == [(at, b"\x81" in line) for at, line in octets]
            assert [line for _, line, reason in found if not reason] == [
                line.decode("cp1252") for _, line in octets if b"\x81" not in line
            ]


@pytest.mark.parametrize(("encoding", "declared", "taken"), [
    ("utf-8", "utf-8", True), ("utf-8-sig", "utf-8", True), ("utf-16", "utf-8", False), ("cp1252", WINDOWS_1252, True),
    ("utf-8-sig", WINDOWS_1252, False), ("utf-16", WINDOWS_1252, False), ("utf-16-be", WINDOWS_1252, False),
])  # fmt: skip
@pytest.mark.parametrize("header", [None, ["id", "Straße"]])
def test_a_byte_order_mark_of_another_encoding_refuses_the_file(
    tmp_path: Path, encoding: str, declared: str, taken: bool, header: list[str] | None
) -> None:
    """In both kinds of sources of files; the command of the refusal makes a file that is taken."""
    text = "id,Straße\n1,Große €\n"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "OLD").write_bytes(f"{mark}{text}".encode(encoding))
    layout = Csv(1000, header, encoding=declared)
    size = (tmp_path / "OLD").stat().st_size

    found = accept(str(tmp_path / "OLD"), "OLD", size, 0, layout)
    growing_file = growing.new_ranges(tmp_path, {}, 1 << 20, csv=Csv(1000, encoding=declared))

    if header is None and declared == "utf-8":
        return  # its lines are decided one by one
    assert (found.refusal is None) == taken
    if declared != "utf-8":
        assert ([one.refusal for one in growing_file] == [None]) == taken
    if found.refusal:
        command = found.refusal.partition("converted by: ")[2]
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        again = accept(str(tmp_path / "NEW"), "NEW", (tmp_path / "NEW").stat().st_size, 0, layout)
        assert again.refusal is None
        assert (tmp_path / "NEW").read_bytes() == text.encode("cp1252" if declared == WINDOWS_1252 else "utf-8")
