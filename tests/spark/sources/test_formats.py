"""Files of each format become records on Spark: CSV with and without a header, gzip, by position and by columns."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onlyonce.api import load
from onlyonce.api.pipeline import Files, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.scaffold.project import make
from onlyonce.sources import discovery, source_files
from onlyonce.sources.listing import new_files
from onlyonce.sources.record_id import of_file, of_place, of_values
from tests.support.arrivals import records_of
from tests.support.shop import SHOP

pytestmark = pytest.mark.spark

NOW = datetime(2026, 1, 2, tzinfo=UTC)
HEADER = "id,shop,at,cents,weight"
CSV: dict[str, str | None] = {
    # line → what its reason holds; None: it is kept
    "a,x,2026-01-01T00:00:00Z,7,0.5": None,
    'b,"x, ""y""",2026-01-01 00:00:00,7,': None,
    "c,,2026-01-01T00:00:00Z,,": None, 'g,"",2026-01-01T00:00:00Z,"",': None,
    " d , x ,2026-01-01T00:00:00.123456Z, 7 ,1e3": None,
    "e,x,2026-01-01T00:00:00Z,7,0.5\r": None,
    'h,"x\ny,2026-01-01T00:00:00Z,8,1\r\n\n""",2026-01-01T00:00:00Z,7,"1"': None, 'h,"x\ny",2026-01-01T00:00:00Z,seven,1': "column cents is no bigint: seven",
    "": "blank", "  ": "blank", "f,x,2026-01-01T00:00:00Z,7": "5 columns", "f,x,2026-01-01T00:00:00Z,7,1,2": "5 columns",
    'f,"x,2026-01-01T00:00:00Z,7,1': "a quote is open", 'f,x,2026-01-01T00:00:00Z,7,"1': "a quote is open",
    "f,x,2026-01-01T00:00:00Z,seven,1": "column cents is no bigint: seven", "f,x,2026-01-01T00:00:00Z,7.5,1": "column cents is no bigint",
    "f,x,2026-01-01T00:00:00Z,7,much": "column weight is no double", "f,x,2026-01-01T00:00:00Z,7,3d": "column weight is no double: 3d",
    "f,x,2026-01-01T00:00:00Z,7,0x1p3": "column weight is no double: 0x1p3", 'f,x"y,2026-01-01T00:00:00Z,7,"1"1': "a quote is open",
    'f,x"y",2026-01-01T00:00:00Z,7,1': "a quote is within a value", "f,x,yesterday,7,1": "column at is no timestamp",
    "f,x,12:00,7,1": "column at is no timestamp: 12:00", "f,x,01.03.2026 10:05,7,1": "column at is no timestamp: 01.03.2026 10:05", "f,x,\t2026-01-01,7,1": "column at is no timestamp", "f,x,1767225600,7,1": "column at is no timestamp", "f,x,,7,1": "event time at is missing", "f,x,2027-01-01,7,1": "ahead of the ingestion time",
    "f,x\0,2026-01-01T00:00:00Z,7,1": "the NUL character", HEADER: "column at is no timestamp",
}  # fmt: skip


def read(spark: SparkSession, pipeline: Pipeline, inbox: Path) -> tuple[list[Any], int]:
    """The records of all that is in a folder, and how many there must be."""
    files = list(new_files(inbox, {}, discovery.layout(pipeline)))
    lines, count = source_files.lines(spark, pipeline, files, source_files.unreadable(pipeline, files))
    return records_of(spark, lines, pipeline, NOW), count


def test_csv_lines_are_kept_or_invalid_with_their_reason(spark: SparkSession, tmp_path: Path) -> None:
    """Each kind of line, plain and packed, with a header and without, with commas and semicolons; its id is its place,
    its raw content as it came."""
    for header, delimiter in ((False, ","), (True, ","), (True, ";")):
        swap = str.maketrans(",;", f"{delimiter},")
        content = "\n".join(CSV).translate(swap).encode()
        top = f"{HEADER}\n".translate(swap).encode()
        inbox = tmp_path / f"{header}{delimiter}"
        inbox.mkdir()
        whole = top + content if header else content
        (inbox / "a.csv").write_bytes(whole)
        (inbox / "b.csv.gz").write_bytes(gzip.compress(whole))
        pipeline = replace(SHOP, record_id=(), source=Files(format="csv", header=header, delimiter=delimiter))

        found, count = read(spark, pipeline, inbox)

        assert count == 2 * len(CSV)
        by_id = {(row.oo_high, row.oo_low): row for row in found}
        assert len(by_id) == len(found) == count
        for name in ("a.csv", "b.csv.gz"):
            at = len(top) if header else 0
            for line, reason in CSV.items():
                place = of_place(of_file(str(inbox / name)), at)
                row = by_id[place.high, place.low]
                assert (reason in str(row.oo_reason)) if reason else row.oo_reason is None, (line, row)
                assert row.oo_raw == (line.translate(swap) if reason else None)
                at += len(line.encode()) + 1
        values = {row.id: (row.shop, row.cents, row.weight) for row in found if row.oo_reason is None}
        assert values == {
            "a": ("x", 7, 0.5), "b": ('x, "y"'.translate(swap), 7, None), "c": (None, None, None), " d ": (" x ", 7, 1000.0), "e": ("x", 7, 0.5), "g": ("", None, None),
            "h": ('x\ny,2026-01-01T00:00:00Z,8,1\r\n\n"'.translate(swap), 7, 1.0),
        }  # fmt: skip


def test_words_for_null_of_a_file_are_null(spark: SparkSession, tmp_path: Path) -> None:
    """In each column, by both readers of lines: a quoted value takes the line to the slower one."""
    lines = [
        "a,NULL,2026-01-01T00:00:00Z,\\N,NULL",
        'b,"NULL",2026-01-01T00:00:00Z,NULL,1',
        "c,x,NULL,7,1",
        "NULL,x,2026-01-01T00:00:00Z,7,1",
    ]
    (tmp_path / "a.csv").write_text("".join(line + "\n" for line in lines))

    found, _ = read(spark, replace(SHOP, source=Files(format="csv", null=("NULL", "\\N"))), tmp_path)

    kept = {row.id: (row.shop, row.cents, row.weight) for row in found if row.oo_reason is None}
    assert kept == {"a": (None, None, None), "b": ("NULL", None, 1.0)}
    assert sorted(row.oo_reason for row in found if row.oo_reason) == [
        "the event time at is missing or null",
        "the record id column id is missing or null",
    ]


def test_damaged_files_and_other_headers_are_one_invalid_record_each(spark: SparkSession, tmp_path: Path) -> None:
    """Beside a file that is right, whose records are known by their columns."""
    right = f"{HEADER}\na,x,2026-01-01T00:00:00Z,7,0.5\n".encode()
    for name, content in {
        "right.csv": right, "other.csv": right.replace(b"id,shop", b"shop,id"), "cut.csv.gz": gzip.compress(right * 99)[:-9],
        "empty.csv": b"",
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(content)

    found, count = read(spark, replace(SHOP, source=Files(format="csv", header=True)), tmp_path)

    assert count == len(found) == 4
    reasons = {Path(row.oo_raw).name: row.oo_reason for row in found if row.oo_reason}
    assert reasons.keys() == {"other.csv", "cut.csv.gz", "empty.csv"}
    [kept] = [row for row in found if row.oo_reason is None]
    wanted = of_values(SHOP, {"id": "a"})
    assert (kept.oo_high, kept.oo_low) == (wanted.high, wanted.low)


def test_packed_json_lines_are_read_beside_plain_ones(spark: SparkSession, tmp_path: Path) -> None:
    """By columns and by position alike."""
    line = b'{"id": "%s", "shop": "x", "at": "2026-01-01T00:00:00Z", "cents": 7, "weight": 0.5}\n'
    (tmp_path / "a.jsonl").write_bytes(line % b"a" + line % b"b")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(line % b"c"))

    for pipeline in (SHOP, replace(SHOP, record_id=())):
        found, count = read(spark, pipeline, tmp_path)
        assert count == 3
        assert sorted(row.id for row in found) == ["a", "b", "c"]
        assert len({row.oo_high for row in found}) == 3


EXCEL = [
    ["Auftrag", "Straße", "Verkauft am", "Preis €"],
    *([f"A{n}", f'Große; "{n}", Zoë\n€', f"{n + 9}.12.2025 10:{n:02}", f"1.234,{n:02}"] for n in range(9)),
]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_files_of_excel_have_the_values_of_pythons_csv(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """As `init` declares them, with each delimiter and the dates and decimal commas of their country.

    A file of UTF-16 is refused by `init`, and is one invalid record of the inbox of another file.
    """
    for name, delimiter in (("comma", ","), ("semicolon", ";"), ("tab", "\t")):
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=delimiter).writerows(EXCEL)
        sample = tmp_path / f"{name}.csv"
        sample.write_bytes(text.getvalue().encode(encoding))
        wanted = [tuple(row) for row in list(csv.reader(io.StringIO(text.getvalue(), newline=""), delimiter=delimiter))]
        project = f"{name}_{encoding.replace('-', '_')}"
        if encoding == "utf-16":
            with pytest.raises(Refused, match="it is UTF-16"):
                make(project, tmp_path, sample)
            plain = tmp_path / f"plain_{name}.csv"
            plain.write_text(text.getvalue(), encoding="utf-8", newline="")
            make(project, tmp_path, plain)
            (tmp_path / project / "inbox" / "b.csv").write_bytes(sample.read_bytes())
        else:
            make(project, tmp_path, sample)
        monkeypatch.syspath_prepend(str(tmp_path / project))
        pipeline = load.one(project, [tmp_path / project / project / "pipelines.py"])

        found, count = read(spark, pipeline, tmp_path / project / "inbox")

        kept = [row for row in found if row.oo_reason is None]
        assert count == len(found) == len(EXCEL) - 1 + (encoding == "utf-16")
        assert sorted(
            (row.auftrag, row.strasse, f"{row.verkauft_am:%-d.%m.%Y %H:%M}", row.preis) for row in kept
        ) == sorted(wanted[1:])
        assert [row.oo_reason.partition(",")[0] for row in found if row.oo_reason] == (
            ["the file is UTF-16 by its first bytes"] if encoding == "utf-16" else []
        )
