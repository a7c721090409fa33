"""Where records of CSV end: as Python's csv module says with strict rules, however the file is cut."""

from __future__ import annotations

import gzip
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onlyonce.api.pipeline import Files
from onlyonce.core.bisect import Place
from onlyonce.core.line_values import DELIMITERS, Invalid, csv_cells
from onlyonce.sinks.files import sink_files
from onlyonce.sources import file_bytes, line_reader, listing, source_files
from onlyonce.sources.lines import Chosen
from onlyonce.sources.listing import Csv, InputFile, accept
from tests.support import csv_oracle
from tests.support.shop import SHOP

STRAY = b'1,"a\n2,b\n3,"c"\n4,d"\n5,"e\n6,f\n'
MARKED = b'\xef\xbb\xbf"i\nd",at\n"a\nb",c'
READING = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def found(
    content: bytes, most: int, piece: int, begin: int = 0, end: int | None = None, delimiter: str = ","
) -> list[int]:
    """Return the ends of records in a part of the content, read in pieces."""
    reader, ends = file_bytes.record_end_reader(most, begin, delimiter), []
    part = content[begin:end]
    for at in range(0, len(part), piece):
        ends += reader.add(part[at : at + piece]).tolist()
    return ends + reader.finish().tolist()


@given(csv_oracle.contents, st.integers(1, 30), st.integers(1, 50))
@example(STRAY, 30, 3)
@example(MARKED, 30, 1)
@example(b'"\r\n",a\r\n"\n', 30, 2)
@settings(max_examples=400, deadline=None)
def test_records_are_those_of_a_strict_csv_module(content: bytes, most: int, piece: int) -> None:
    """In any pieces, and from any record on to any other."""
    records = csv_oracle.records(content, most)
    places = [at for at, _ in records]
    ends = [*places[1:], len(content)] if places else []

    assert found(content, most, piece) == ends
    for begin, end in pairwise(places[:: 1 + len(places) // 3]):
        assert found(content, most, piece, begin, end) == [one for one in ends if begin < one <= end]


@given(csv_oracle.contents)
@settings(max_examples=300, deadline=None)
def test_only_a_record_of_several_lines_needs_them_all(content: bytes) -> None:
    """Its values are those of the module; the first line of what is no record is invalid by itself."""
    for _, record in csv_oracle.records(content, 1 << 20):
        text, fields = record.removeprefix(csv_oracle.MARK).decode("latin-1"), csv_oracle.fields(record)
        if fields is None or not text.strip(" \r"):
            with pytest.raises(Invalid):
                csv_cells(text)
        else:
            assert [str(cell or "") for cell in csv_cells(text)] == fields


@given(csv_oracle.contents, st.sampled_from(DELIMITERS), st.integers(1, 30), st.integers(1, 50))
@settings(max_examples=400, deadline=None)
def test_records_and_values_by_each_delimiter(content: bytes, delimiter: str, most: int, piece: int) -> None:
    """As the module has them with that delimiter; another one is a character of a value."""
    content = content.replace(b";", delimiter.encode())
    records = csv_oracle.records(content, most, delimiter)
    places = [at for at, _ in records]

    assert found(content, most, piece, delimiter=delimiter) == ([*places[1:], len(content)] if places else [])
    for _, record in records:
        text, fields = record.removeprefix(csv_oracle.MARK).decode("latin-1"), csv_oracle.fields(record, delimiter)
        if fields is None or not text.strip(" \r"):
            with pytest.raises(Invalid):
                csv_cells(text, delimiter)
        else:
            assert [str(cell or "") for cell in csv_cells(text, delimiter)] == fields


def test_an_open_quote_waits_until_its_record_is_too_large() -> None:
    """What is behind it is decided then, and not before."""
    reader = file_bytes.record_end_reader(9)

    assert reader.add(b'a\nb,"c\n').tolist() == [2]
    assert reader.add(b"d\ne").tolist() == []
    assert reader.add(b"\nfg").tolist() == [7, 9, 11]
    assert reader.add(b'\n"\n"').tolist() == [14]
    assert reader.add(b"\n").tolist() == [18]


@given(csv_oracle.contents, st.integers(1, 30), st.integers(1, 40), st.integers(1, 20))
@example(STRAY, 30, 5, 3)
@READING
def test_parts_of_a_file_have_its_records(tmp_path: Path, content: bytes, most: int, size: int, piece: int) -> None:
    """Whatever the size of a part, and also compressed: each record is read once, at its place, and as often as the
    listing counts."""
    path, compressed = tmp_path / "a.csv", tmp_path / "a.csv.gz"
    path.write_bytes(content)
    compressed.write_bytes(gzip.compress(content))
    with pytest.MonkeyPatch.context() as patch:
        for module in (listing, file_bytes, line_reader):
            patch.setattr(module, "PIECE", piece)
        patch.setattr(listing, "RANGE", size)
        patch.setattr(line_reader, "RANGE", size)
        plain, packed = (accept(str(one), str(one), one.stat().st_size, 0, Csv(most)) for one in (path, compressed))
        of_plain = line_reader.Range(
            str(path), 7, 0, plain.size, plain.size, most=most, quoted_within=plain.quoted_within, cuts=plain.cuts
        )
        parts = list(line_reader._cut(of_plain))
        of_packed = line_reader.compressed(str(compressed), 7, ".gz", most=most, quoted_within=packed.quoted_within)

        wanted = csv_oracle.records(content, most)
        assert read(parts, most) == wanted
        assert read([of_packed], most) == wanted
        assert plain.lines == packed.lines == len(wanted)
        assert all(
            part.end - part.start < size + max(len(record) for _, record in wanted) + 2 for part in parts if wanted
        )


def read(parts: list[line_reader.Range], most: int) -> list[tuple[int, bytes]]:
    """Return (place, record) of all records. One that is too large is invalid, and has its beginning."""
    records: list[tuple[int, bytes]] = []
    for batch in (batch for part in parts for batch in line_reader.lines(part)):
        values = batch.column("oo_line").cast("binary").to_pylist()
        for value, reason in zip(values, batch.column("oo_refused").to_pylist(), strict=True):
            assert (len(value) > most) == (reason is not None)
        records += zip(batch.column("oo_position").to_pylist(), values, strict=True)
    return records


def test_a_changed_limit_changes_no_record_of_a_listed_file(tmp_path: Path) -> None:
    """A file has the records that were counted. One that is too large by now is invalid, as one."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'1,"aa\nbb\ncc"\n2,b\n')
    listed = accept(str(path), str(path), path.stat().st_size, 0, Csv(30))
    of_less = replace(SHOP, source=Files(format="csv", max_record_bytes=8))

    part = source_files._range(of_less, listed)

    [batch] = line_reader.lines(part)
    assert len(batch) == listed.lines == 2
    assert [reason is None for reason in batch.column("oo_refused").to_pylist()] == [False, True]


def test_a_refused_record_is_one_over_all_its_lines(tmp_path: Path) -> None:
    """As the search for poison refuses one: by its place, and no line of it is left."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'1,a\n2,"b\nc"\n3,d\n')
    whole = line_reader.Range(str(path), 7, 0, 17, 17, quoted_within=100)
    chosen = Chosen(refused={Place(7, 4): "poison"})

    [batch] = chosen.of_batches(line_reader.lines(whole))

    assert batch.column("oo_line").to_pylist() == ["1,a", '2,"b\nc"', "3,d"]
    assert batch.column("oo_refused").to_pylist() == [None, "poison", None]


def test_files_that_we_write_are_read_as_they_were_written(tmp_path: Path) -> None:
    """A FileSink's CSV: strings with quotes and line feeds, the empty string, and null."""
    values = ["a\nb", '"', "", None, "\r\n", 'x","y\n', "\n\n", " ", "ü"]
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        schema = pa.schema([("id", pa.int64()), ("note\n1", pa.string())])
        sink_files.format_of("csv")(file, schema, iter([pa.record_batch([range(len(values)), values], schema)]))

    listed = accept(str(path), "a.csv", path.stat().st_size, 0, Csv(100, schema.names))
    whole = line_reader.Range(str(path), 7, 0, listed.size, listed.size, skipped=1, quoted_within=100)

    assert (listed.lines, listed.refusal) == (len(values), None)
    assert [csv_cells(record.decode()) for _, record in read([whole], 100)] == [
        [str(number), value] for number, value in enumerate(values)
    ]


def test_a_header_may_have_quotes_and_line_feeds(tmp_path: Path) -> None:
    """It is the first record; the records behind it have their places in the file."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbf"i""d","at\n(UTC)"\r\na,b\n')
    asked = accept(str(path), "a.csv", path.stat().st_size, 0, Csv(100, ['i"d', "at\n(UTC)"]))
    other = accept(str(path), "a.csv", path.stat().st_size, 0, Csv(100, ["id", "at"]))
    whole = line_reader.Range(str(path), 7, 0, asked.size, asked.size, skipped=1, quoted_within=100)

    assert asked == InputFile("a.csv", asked.size, 0, 1, None, quoted_within=100)
    assert other.refusal is not None
    assert read([whole], 100) == [(22, b"a,b")]
