"""The formats of sharded files: what is written is read back, and a file without rows is a file."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from onlyonce.api.pipeline import Output
from onlyonce.api.sinks import FileSink
from onlyonce.core.errors import Refused
from onlyonce.sinks.base.pinned import RecordBatches
from onlyonce.sinks.files import sink_files
from onlyonce.sinks.files.file_stores import Counted

ROWS: list[dict[str, Any]] = [
    {"id": "a", "n": 1, "x": 0.5, "at": datetime(2026, 3, 1, tzinfo=UTC), "day": date(2026, 3, 1), "money": Decimal("1.50")},
    {"id": "", "n": -1, "x": None, "at": None, "day": None, "money": Decimal("-0.01")},
    {"id": None, "n": 2**62, "x": 1e300, "at": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "day": date(1, 1, 1), "money": None},
]  # fmt: skip
SCHEMA = pa.schema(
    [("id", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()),
     ("money", pa.decimal128(10, 2))]
)  # fmt: skip


def own(file: BinaryIO, schema: pa.Schema, batches: RecordBatches) -> None:
    """A writer as a user has one."""
    for batch in batches:
        file.write(f"{batch.num_rows} rows of {','.join(schema.names)}\n".encode())


def written(name: str, batches: list[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> bytes:
    """A file of these batches; what was counted is what is there."""
    buffer = io.BytesIO()
    counted = Counted(buffer)
    sink_files.format_of(name)(counted, schema, iter(batches))  # type: ignore[arg-type]
    assert counted.bytes == len(buffer.getvalue())
    return buffer.getvalue()


def cut() -> list[pa.RecordBatch]:
    """The rows in two batches."""
    return [pa.RecordBatch.from_pylist(rows, SCHEMA) for rows in (ROWS[:2], ROWS[2:])]


def test_parquet_and_avro_give_the_rows_back() -> None:
    """All types, nulls and ends of ranges."""
    assert pq.read_table(io.BytesIO(written("parquet", cut()))).to_pylist() == ROWS
    assert list(fastavro.reader(io.BytesIO(written("avro", cut())))) == ROWS


def test_csv_tells_null_from_an_empty_text() -> None:
    """A header, then all rows."""
    text = written("csv", cut()).decode()
    assert [row["n"] for row in csv.DictReader(io.StringIO(text))] == [str(row["n"]) for row in ROWS]
    assert text.splitlines()[2].startswith('"",')
    assert text.splitlines()[3].startswith(",")


@pytest.mark.parametrize("name", ["jsonl", "text"])
def test_lines_are_as_they_came_and_end(name: str) -> None:
    """Beyond ASCII too; each with its newline."""
    lines = [json.dumps({"n": n, "s": "🛒 ç"}, ensure_ascii=False) for n in range(5)]
    batches = [pa.RecordBatch.from_pydict({"oo_line": part}) for part in (lines[:2], lines[2:])]
    assert written(name, batches).decode() == "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("sign", ["\n", "\r"])
def test_a_line_that_would_be_two_is_refused(sign: str) -> None:
    """And does not become two records in silence."""
    with pytest.raises(Refused, match="line break"):
        written("text", [pa.RecordBatch.from_pydict({"oo_line": [f"a{sign}b"]})])


def test_a_file_without_rows_is_valid_in_every_format() -> None:
    """Readers find columns and no rows."""
    assert written("jsonl", []) == written("text", []) == b""
    assert pq.read_table(io.BytesIO(written("parquet", []))).schema.names == SCHEMA.names
    assert list(fastavro.reader(io.BytesIO(written("avro", [])))) == []
    assert list(csv.DictReader(io.StringIO(written("csv", []).decode()))) == []
    assert written("csv", []).decode().count("\n") == 1


def test_a_writer_of_ones_own_is_found_by_its_name_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets file, schema and batches."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert written("test_file_formats:own", cut()).decode().startswith("2 rows of id,n")
    with pytest.raises(Refused, match="does not exist"):
        sink_files.format_of("test_file_formats:other")


def test_a_column_that_avro_does_not_hold_is_refused() -> None:
    """A list, say; with the way out."""
    with pytest.raises(Refused, match="to_json"):
        written("avro", [], pa.schema([("list", pa.list_(pa.int64()))]))


@pytest.mark.parametrize("name", ["count(1)", "2nd", "größe", "n\n", ""])
def test_a_name_that_avro_does_not_allow_is_refused_by_check(name: str) -> None:
    """fastavro writes such a file, and other readers do not open it."""
    output = Output(name="sales", transform="a:b", sink=FileSink(format="avro"))
    pipeline: Any = None
    allowed = StructType().add("_n2", "long")
    assert sink_files.types_there(pipeline, output, allowed) is None

    with pytest.raises(Refused, match="Avro does not allow"):
        sink_files.types_there(pipeline, output, allowed.add(name, "long"))
    with pytest.raises(Refused, match="Avro does not allow"):
        written("avro", [], pa.schema([(name, pa.int64())]))
