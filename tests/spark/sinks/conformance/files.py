"""Files of each format: JSON lines read by json, CSV and Parquet by DuckDB, Avro by fastavro."""

from __future__ import annotations

import base64
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Literal

import duckdb
import fastavro
import pyarrow as pa

from onlyonce import settings
from onlyonce.api.pipeline import FileSink, Sink
from onlyonce.core.shards import EXTENSIONS
from onlyonce.sinks.files import finalize
from onlyonce.sinks.files.file_stores import PENDING
from tests.spark.sinks.conformance import values
from tests.spark.sinks.conformance.stage import OF_FILES, Kept

THEIRS = b"a file of another writer"


class JsonLines(Kept):
    """JSON lines."""

    point = "files-after-units"
    kills = OF_FILES
    ways = ("tasks",)
    theirs = 0
    format: ClassVar[Literal["jsonl", "csv", "parquet", "avro"]] = "jsonl"

    @property
    def sink(self) -> Sink:
        return FileSink(format=self.format, shards=2)

    @property
    def folder(self) -> Path:
        """Return the folder of the output."""
        return settings.files_dir() / self.stage.name / self.stage.name

    def files(self) -> list[Path]:
        """Return the files that readers see by their names. A file of another writer is as that has left it."""
        finalize.main([])
        found = [file for file in self.folder.rglob(f"*.{EXTENSIONS[self.format]}") if PENDING not in file.parts]
        foreign = [file for file in found if file.name.startswith("theirs")]
        assert [file.read_bytes() for file in foreign] == [THEIRS] * len(foreign)
        return [file for file in found if file not in foreign]

    def other_writer(self) -> Any:
        """Put a file of its own into the folder."""
        return lambda: (self.folder / f"theirs.{EXTENSIONS[self.format]}").write_bytes(THEIRS)

    def read(self) -> list[dict[str, Any]]:
        return [values.parsed(line) for file in self.files() for line in file.read_bytes().decode().split("\n")[:-1]]

    def wanted(self, kind: pa.DataType, value: Any) -> Any:
        return values.as_json(kind, value)


class Csv(JsonLines):
    """CSV: null is an empty value without quotes."""

    format = "csv"

    def read(self) -> list[dict[str, Any]]:
        options = (
            "all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', nullstr = '', "
            "allow_quoted_nulls = false"
        )
        found = [
            row for file in self.files() for row in queried(f"read_csv('{file}', {options}, max_line_size = 10000000)")
        ]
        return [
            {name: parsed(values.KINDS.get(name, [pa.string()])[0], text) for name, text in row.items()}
            for row in found
        ]

    def wanted(self, kind: pa.DataType, value: Any) -> Any:
        return values.as_json(kind, value) if pa.types.is_nested(kind) else value


def parsed(kind: pa.DataType, text: str | None) -> Any:
    """Return the value of a string in a CSV file, by Python's own parsers."""
    if text is None or pa.types.is_string(kind):
        return text
    if pa.types.is_nested(kind):
        return values.parsed(text)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text]
    if pa.types.is_binary(kind):
        return base64.b64decode(text, validate=True)
    for has, parse in PARSERS.items():
        if has(kind):
            return parse(text)
    raise AssertionError(kind)


PARSERS: dict[Any, Any] = {
    pa.types.is_integer: int, pa.types.is_floating: float, pa.types.is_decimal: Decimal, pa.types.is_date: date.fromisoformat,
    pa.types.is_timestamp: datetime.fromisoformat,
}  # fmt: skip


class Parquet(JsonLines):
    """Parquet."""

    format = "parquet"

    def read(self) -> list[dict[str, Any]]:
        return [row for file in self.files() for row in queried(f"read_parquet('{file}')")]

    def wanted(self, kind: pa.DataType, value: Any) -> Any:
        return value


class Avro(JsonLines):
    """Avro, which has no nested values here."""

    format = "avro"
    no_columns = ("array", "doubles", "struct", "map", "structs")

    def read(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for file in self.files():
            with file.open("rb") as opened:
                found += fastavro.reader(opened)  # type: ignore[arg-type]
        return found

    def wanted(self, kind: pa.DataType, value: Any) -> Any:
        return value


def queried(table: str) -> list[dict[str, Any]]:
    """Return DuckDB's rows of a table."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(f"SELECT * FROM {table}")
        names = [one[0] for one in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
