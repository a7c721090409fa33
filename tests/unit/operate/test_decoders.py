"""A value is found in each format, in each spelling, and a longer word is not taken for it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import fastavro
import pyarrow as pa
import pytest
from pyarrow import parquet

from onlyonce.core import erasure
from onlyonce.core.erasure import Mentions
from onlyonce.operate import erase_search
from onlyonce.tables import checkpoint
from onlyonce.tables.checkpoint import NotDecoded

WHO = 'u17/"né"\\x'
KINDS = {"id": "string", "number": "bigint"}
ROWS = [{"id": "other", "sum": 1}, {"id": WHO, "sum": 2}, {"id": f"{WHO}yz", "sum": 3}]


def mentions(where: str) -> Mentions:
    """What is asked for."""
    return Mentions(erasure.read_conditions(where, KINDS))


def sql(value: str) -> str:
    """A value in a condition."""
    return f"id = '{value}'"


def in_parquet() -> bytes:
    """With a dictionary and Zstandard."""
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(ROWS), sink, compression="zstd")
    return sink.getvalue()


def in_footer() -> bytes:
    """The value is the largest of a column whose rows have gone from this file by a filter: here the rows have another
    name."""
    sink = io.BytesIO()
    parquet.write_table(pa.table({"shop": [WHO]}), sink)
    return sink.getvalue()


def in_avro() -> bytes:
    """A file of a FileSink."""
    sink = io.BytesIO()
    fields = [{"name": "id", "type": "string"}, {"name": "sum", "type": "long"}]
    fastavro.writer(sink, {"type": "record", "name": "row", "fields": fields}, ROWS, codec="deflate")
    return sink.getvalue()


def in_changelog(kind: str) -> bytes:
    """A changelog of Spark: blocks by lz4-java, the last of them empty."""
    row = WHO[:6].encode() + bytes(32) + WHO.encode() + bytes(32)
    block = row if kind == "stored" else bytes(pa.Codec("lz4_raw").compress(row))
    assert (WHO.encode() in block) == (kind == "stored")
    header = b"LZ4Block" + bytes([0x10 if kind == "stored" else 0x20]) + struct.pack("<iii", len(block), len(row), 0)
    return header + block + b"LZ4Block" + bytes([0x10]) + struct.pack("<iii", 0, 0, 0)


def in_snapshot() -> bytes:
    """A zip of files that are compressed themselves."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", "v1")
        archive.writestr("MANIFEST", b"\0\xff" + WHO.encode())
    return sink.getvalue()


def in_delta_log() -> bytes:
    """Statistics are JSON in a string of JSON."""
    stats = json.dumps({"numRecords": 1, "minValues": {"shop": WHO}})
    return json.dumps({"add": {"path": "a.parquet", "stats": stats}}).encode() + b"\n"


def in_invalid_row(code: str) -> bytes:
    """A row of `events` whose line is not UTF-8."""
    sink = io.BytesIO()
    rows = [{"id": None, "oo_raw": f'{{"id":"{who}"'.encode(code).hex().upper()} for who in ("other", WHO)]
    parquet.write_table(pa.Table.from_pylist(rows, pa.schema([("id", pa.string()), ("oo_raw", pa.string())])), sink)
    return sink.getvalue()


def line(string: str) -> Callable[[], bytes]:
    """A text file."""
    return lambda: f"first\n{string}\nlast".encode()


FORMATS: dict[str, Callable[[], bytes]] = {
    "parquet": in_parquet, "footer": in_footer, "avro": in_avro, "stored changelog": lambda: in_changelog("stored"), "changelog": lambda: in_changelog("lz4"),
    "snapshot": in_snapshot, "delta log": in_delta_log, "zstd": lambda: bytes(pa.Codec("zstd").compress(in_delta_log())),
    "gzip": lambda: gzip.compress(in_delta_log()), "bzip2": lambda: bz2.compress(in_delta_log()),
    "json": line(json.dumps({"user": WHO}).replace("/", "\\/")), "csv": line(f'"{WHO.replace(chr(34), chr(34) * 2)}",5'),
    "log": line(f"a row of {WHO}, which is wrong"), "access log": line(f"GET /search?q={quote(WHO, safe='')} 200"),
    "json in a url": line(f"GET /search?q={quote(json.dumps(WHO))}"), "not utf-8": lambda: b"\xff\n" + WHO.encode() + b"\n",
    "utf-16": lambda: f"first\n{WHO}\n".encode("utf-16"), "latin-1": lambda: f"first\n{WHO}\n".encode("latin-1"),
    **{f"invalid row in {code}": lambda code=code: in_invalid_row(code) for code in ("latin-1", "utf-16-le", "utf-8")},  # type: ignore[misc]
    "zip in gzip": lambda: gzip.compress(in_snapshot()),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_value_is_found_in_each_format(name: str) -> None:
    """Once; and no other value."""
    content = FORMATS[name]()

    assert erase_search.count_mentions(content, mentions(sql(WHO))) == 1
    assert erase_search.count_mentions(content, mentions(sql(WHO[:-1] + "z"))) == 0


@pytest.mark.parametrize("string, found", [
    ("id=ab", True), ("an ab here", False), ("id=abc", False), ("number=5", False), ("id=u17-secret0", False), ("(u17-secret)", True), ("xu17-secret", False),
])  # fmt: skip
def test_value_counts_as_a_whole_word(string: str, found: bool) -> None:
    """A short one only beside its column's name."""
    asked = "u17-secret" if "u17" in string else "ab"
    assert mentions(sql(asked)).in_string(string) == found


def test_all_values_of_a_condition_are_in_one_part() -> None:
    """In a row each is in its own column; a number is not looked for in others."""
    both = mentions(f"{sql('u17-secret')} AND number = 5")
    rows: list[tuple[dict[str, Any], bool]] = [
        ({"id": "u17-secret", "number": 5}, True), ({"id": "u17-secret", "number": 6}, False), ({"note": "for u17-secret", "number": 5}, True),
        ({"id": "other", "note": "u17-secret", "number": 5}, False), ({"who": {"is": ["u17-secret"]}, "number": 5}, True), ({"id": "u17-secret", "sum": 5}, False),
    ]  # fmt: skip
    assert [both.in_row(row) for row, _ in rows] == [found for _, found in rows]
    assert both.in_bytes(b"\x00u17-secret" + struct.pack("<q", 5))
    assert not both.in_bytes(b"\x00u17-secret")


def test_value_is_found_by_the_name_that_a_source_has_for_the_column() -> None:
    """A short value or a number counts only beside a name, in a string as in a row."""
    called = Mentions(erasure.read_conditions("number = 17", KINDS), {"number": ("number", "Nummer")})
    assert [called.in_string(f'{{"{name}":17}}') for name in ("number", "Nummer", "other")] == [True, True, False]
    assert [called.in_row({name: 17}) for name in ("number", "Nummer", "other")] == [True, True, False]


def test_message_in_hexadecimal_is_searched_by_the_lengths_of_its_strings() -> None:
    """Avro and Protobuf have no names and no space between values. The beginning of a longer value is another value."""
    asked = mentions("id = 'u17-secret' AND number = -300")
    schema = fastavro.parse_schema(
        {
            "type": "record",
            "name": "row",
            "fields": [
                {"name": "id", "type": "string"},
                {"name": "note", "type": "string"},
                {"name": "number", "type": "long"},
            ],
        }
    )
    found = []
    for who, number in (("u17-secret", -300), ("u17-secret0", -300), ("u17-secret", 300)):
        sink = io.BytesIO(b"\0\0\0\0\1")
        sink.seek(5)
        fastavro.schemaless_writer(
            sink, schema, {"id": who, "note": "n" * 49, "number": number}
        )  # the length of the note is a letter
        found.append(asked.in_message(sink.getvalue().hex().upper()))
    of_protobuf = b"\x0a\x0au17-secret\x10".hex() + "d4fd" + 7 * "ff" + "01"
    assert found == [True, False, False]
    assert [asked.in_message(of_protobuf), asked.in_row({"note": None, "oo_raw": of_protobuf, "number": -300})] == [
        True,
        True,
    ]


def test_value_over_two_lines_of_csv_is_found() -> None:
    """A record of CSV is searched as a whole, and others stay apart."""
    content = b'1,"u17-secret\nis ""here""",number 5\n2,x,number 6\n'

    assert erase_search.count_mentions(content, mentions("id = 'u17-secret\nis \"here\"'")) == 1
    assert erase_search.count_mentions(content, mentions("id = 'u17-secret' AND number = 5")) == 1
    assert erase_search.count_mentions(content, mentions("id = 'u17-secret' AND number = 6")) == 0


def test_format_without_decoder_is_named() -> None:
    """It is not taken for a file without the value."""
    with pytest.raises(NotDecoded, match="Snappy"):
        erase_search.count_mentions(b"\x82SNAPPY\0...", mentions(sql(WHO)))


def test_bound_has_the_beginning_of_a_long_value() -> None:
    """Delta's log keeps 32 characters of a column's least and largest value, a manifest of Iceberg 16, the last of them
    raised."""
    long = mentions(sql("a.person.with.a.long.name@example.org"))
    stats = json.dumps({"minValues": {"shop": "a.person.with.a.long.name@exampl"}})
    assert erase_search.count_mentions(json.dumps({"add": {"stats": stats}}).encode(), long) == 1
    assert long.in_row({"upper": [{"key": 1, "value": b"a.person.with.b"}, {"key": 2, "value": b"a.person.with.a/"}]})
    assert not long.in_row({"upper": [{"key": 1, "value": b"a.person"}], "note": "a.person.with.a.long.name@exampl"})


def test_damaged_file_is_searched_as_bytes() -> None:
    """A file that a killed process has left."""
    assert erase_search.count_mentions(b"PAR1" + WHO.encode() + b"cut", mentions(sql(WHO))) == 1


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress], ids=["gzip", "bzip2"])
def test_damage_of_a_compressed_file_is_named(compress: Callable[[bytes], bytes]) -> None:
    """Its bytes do not show a value."""
    with pytest.raises(NotDecoded, match="damaged"):
        erase_search.count_mentions(compress(WHO.encode())[:-9], mentions(sql(WHO)))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress], ids=["gzip", "bzip2"])
def test_damage_of_a_second_stream_is_named(compress: Callable[[bytes], bytes]) -> None:
    """The first stream does not show what the second one holds."""
    second = bytearray(compress(WHO.encode()))
    second[10] ^= 0xFF
    with pytest.raises(NotDecoded, match="damaged"):
        erase_search.count_mentions(compress(b"first\n") + bytes(second), mentions(sql(WHO)))


def test_damage_of_a_state_table_is_named() -> None:
    """Its blocks are compressed, so its bytes do not show a value."""
    footer = bytes([0, 0xFF, 0xFF, 0x7F]) + bytes(checkpoint.FOOTER - 16) + (5).to_bytes(4, "little") + checkpoint.MAGIC
    with pytest.raises(NotDecoded, match="damaged table of RocksDB"):
        erase_search.count_mentions(b"\xff" * 64 + footer, mentions(sql(WHO)))
