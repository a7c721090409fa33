"""Reads the beginning of an input file: its columns, their types, and some rows. Decides nothing.

At most ROWS records of at most BYTES, so a file of any size is looked at in a second. Who calls it: `onlyonce init --from`.
Errors: Refused for what can't be read.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from onlyonce.declare.pipeline import PREFIX
from onlyonce.model.errors import Refused
from onlyonce.scaffold import column_types
from onlyonce.sources.files import avro_files, packing, parquet_files
from onlyonce.sources.files.listing import FileAt, opened

ROWS = 1000
BYTES = 1 << 24
FORMATS = {
    ".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet", ".avro": "avro",
}  # fmt: skip
NOT_READ = "nothing was written"


@dataclass(frozen=True)
class Sample:
    """What a file holds, as far as it was read.

    format    as `Files` has it; `header`: of CSV, whether the first line has the columns' names
    columns   the declared type by declared name, in order
    rows      the records by declared name, values as the reader gives them: of JSON and CSV times are texts
    aliases   the name in the file of each column that can't be declared by it
    """

    name: str
    format: str
    header: bool
    columns: dict[str, str]
    rows: list[dict[str, Any]]
    aliases: Mapping[str, str]

    def values(self, column: str) -> list[Any]:
        """The values of a column; None where a record has none."""
        return [row.get(column) for row in self.rows]


def read(path: Path) -> Sample:
    """The beginning of a file, whose name says its format. Raises Refused."""
    packed = packing.of(path.name)
    kind = FORMATS.get((path.with_suffix("") if packed else path).suffix.lower())
    if kind is None or (packed and kind in ("parquet", "avro")):
        raise Refused(
            f"{path} has a name that tells no known format",
            data=NOT_READ,
            hint="name it .jsonl, .csv (both also with .gz, .bz2 or .zst behind), .parquet or .avro",
        )
    if not path.is_file():
        raise Refused(f"{path} is no file", data=NOT_READ, hint="name a file with a sample of the input")
    try:
        header, columns, rows = READERS[kind](path)
    except Refused:
        raise
    except Exception as error:  # the readers raise whatever a damaged byte leads them to
        told = " ".join(str(error).split())[:200] or type(error).__name__
        raise _unreadable(path, f"it is cut short or damaged as {kind} ({told})") from error
    if not rows:
        raise _unreadable(path, "it has no records")
    names = _declared(list(columns))
    aliases = {declared: name for name, declared in names.items() if declared != name}
    of_name = {names[name]: declared for name, declared in columns.items()}
    return Sample(path.name, kind, header, of_name, [{names[name]: value for name, value in row.items()} for row in rows], aliases)


def _json(path: Path) -> tuple[bool, dict[str, str], list[dict[str, Any]]]:
    rows, bad = [], 0
    for line in _lines(path):
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if isinstance(found, dict):
            rows.append(found)
        else:
            bad += 1
    if bad > len(rows):
        raise _unreadable(
            path, "its lines are not JSON objects; one object on each line is read, and no array over lines"
        )
    names = dict.fromkeys(name for row in rows for name in row)
    return False, {name: column_types.of_json([row.get(name) for row in rows]) for name in names}, rows


def _csv(path: Path) -> tuple[bool, dict[str, str], list[dict[str, Any]]]:
    lines = list(csv.reader(_lines(path), strict=True))
    if not lines:
        return False, {}, []
    first = lines[0]
    header = _is_header(first, lines[1:])
    names = [name.strip() for name in first] if header else [f"column_{number}" for number in range(1, len(first) + 1)]
    rows = [
        {name: text or None for name, text in zip(names, line, strict=True)}
        for line in lines[int(header) :]
        if len(line) == len(names)
    ]
    return header, {name: column_types.of_csv([row[name] for row in rows]) for name in names}, rows


def _parquet(path: Path) -> tuple[bool, dict[str, str], list[dict[str, Any]]]:
    with parquet_files.opened(FileAt(str(path))) as file:
        columns = {field.name: column_types.of_arrow(field.type) for field in file.schema_arrow}
        batch = next(file.iter_batches(batch_size=ROWS), None)
    return False, columns, batch.to_pylist() if batch is not None else []


def _avro(path: Path) -> tuple[bool, dict[str, str], list[dict[str, Any]]]:
    at = FileAt(str(path))
    avro_files.columns(at)  # raises Damaged
    batch = next(avro_files.records(at, None, ROWS), None)
    if batch is None:
        return False, {}, []
    return False, {field.name: column_types.of_arrow(field.type) for field in batch.schema}, batch.to_pylist()


READERS = {"json": _json, "csv": _csv, "parquet": _parquet, "avro": _avro}


def _lines(path: Path) -> Iterator[str]:
    """The first lines, without what is cut off at the end of the sample."""
    with opened(FileAt(str(path)), packing.of(path.name)) as file:
        for line in islice(io.BytesIO(file.read(BYTES)), ROWS):
            # The last one may be cut off by the end of the sample.
            if line.strip() and (line.endswith(b"\n") or not file.read(1)):
                yield line.decode("utf-8-sig")


def _is_header(first: list[str], others: list[list[str]]) -> bool:
    """Return whether a line of CSV has names: plain ones, or any that are no values if other lines have some in the same columns."""
    if len({*first}) < len(first) or not all(name.strip() for name in first):
        return False
    if all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in first):
        return True
    whole = [line for line in others if len(line) == len(first)]
    kinds = [column_types.of_csv(list(column)) for column in zip(*whole, strict=True)]
    return any(kind != "string" for kind in kinds) and all(column_types.of_csv([name]) == "string" for name in first)


def _declared(names: list[str]) -> dict[str, str]:
    """Return the name by which each column can be declared: its own, if it has letters, digits and _ only."""
    found, taken = dict[str, str](), {name.lower() for name in names if re.fullmatch(r"\w+", name)}
    for name in names:
        plain = name
        if not re.fullmatch(r"\w+", name):
            words = re.sub(r"\W+", "_", name).strip("_").lower()
            words = words if words[:1].isalpha() and not words.startswith(PREFIX) else f"column_{words}".rstrip("_")
            plain = next(one for number in count(1) if (one := words if number == 1 else f"{words}_{number}") not in taken)
            taken.add(plain)
        found[name] = plain
    return found


def _unreadable(path: Path, why: str) -> Refused:
    return Refused(f"{path} can't be read: {why}", data=NOT_READ, hint="name a file as the source will deliver it")
