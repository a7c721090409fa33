"""Reads the beginning of an input file: its columns, their types, and some rows. Decides nothing.

At most ROWS records of at most BYTES, so a file of any size is looked at in a second. Who calls it: `onlyonce init
--from`. Errors: Refused for what can't be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from onlyonce.declare.pipeline import PREFIX
from onlyonce.model import record_size
from onlyonce.model.errors import Refused
from onlyonce.model.values import line_values
from onlyonce.scaffold import column_types, time_forms
from onlyonce.sources.files import avro_files, packing, parquet_files, record_ends
from onlyonce.sources.files.listing import FileAt, opened

ROWS = 1000
BYTES = 1 << 24
FORMATS = {
    ".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet", ".avro": "avro",
}  # fmt: skip
NOT_READ = "nothing was written"
OTHER_DELIMITERS = (";", "\t", "|")
"""What stands between the values in files that are called CSV as well."""


@dataclass(frozen=True)
class Sample:
    """What a file holds, as far as it was read.

    format    as `Files` has it; `header`: of CSV, whether the first line has the columns' names
    columns   the declared type by declared name, in order
    rows      the records by declared name, values as the reader gives them: of JSON and CSV times are texts
    aliases   the name in the file of each column that can't be declared by it
    formats   the form of each column of times that are not ISO 8601
    unsure    the forms of each column that has several: nothing says which of its numbers is the month
    """

    name: str
    format: str
    header: bool
    columns: dict[str, str]
    rows: list[dict[str, Any]]
    aliases: Mapping[str, str]
    formats: Mapping[str, str] = field(default_factory=dict)
    unsure: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def values(self, column: str) -> list[Any]:
        """The values of a column; None where a record has none."""
        return [row.get(column) for row in self.rows]

    def times(self, column: str) -> list[Any]:
        """The values of a column of times, read by its form if it has one."""
        form = self.formats.get(column)
        return [time_forms.read(value, form) if form and value is not None else value for value in self.values(column)]


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
        header, columns, rows = READERS[kind](path.resolve())  # a sample may be a link
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
    found = Sample(
        path.name, kind, header, of_name, [{names[name]: value for name, value in row.items()} for row in rows], aliases
    )
    return _with_forms(found) if kind in ("json", "csv") else found


def _with_forms(sample: Sample) -> Sample:
    forms = {name: time_forms.of(name, kind, sample.values(name)) for name, kind in sample.columns.items()}
    certain = {name: form for name, (_, form) in forms.items() if len(form) == 1}
    columns = {name: forms[name][0] if name in certain else kind for name, kind in sample.columns.items()}
    unsure = {name: form for name, (_, form) in forms.items() if len(form) > 1}
    return replace(sample, columns=columns, formats={name: form for name, (form,) in certain.items()}, unsure=unsure)


def _json(path: Path) -> tuple[bool, dict[str, str], list[dict[str, Any]]]:
    rows, bad = [], 0
    for line in _records(path, None):
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
    lines, bad = list[list[str]](), 0
    for record in _records(path, record_size.DEFAULT):
        try:
            lines.append([cell or "" for cell in line_values.csv_cells(record)])
        except line_values.Invalid:
            bad += 1
    if bad > len(lines):
        raise _unreadable(path, "its lines are no CSV with commas and double quotes (RFC 4180)")
    if not lines:
        return False, {}, []
    if other := _other_delimiter(lines):
        raise Refused(
            f"{path} can't be read: its values are separated by {other!r}, and CSV is read with commas (RFC 4180)",
            data=NOT_READ,
            hint="export it with commas (Excel: 'CSV UTF-8 (comma delimited)' under a locale with a decimal "
            "point); its times as 2026-03-01T12:00:00Z",
        )
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


def _records(path: Path, quoted_within: int | None) -> Iterator[str]:
    """The first records, without what is cut off at the end of the sample."""
    found, begin = record_ends.reader(quoted_within), 0
    with opened(FileAt(str(path)), packing.of(path.name)) as file:
        content = file.read(BYTES)
        ends = found.add(content).tolist() + ([] if file.read(1) else found.finish().tolist())
    for end in ends[:ROWS]:
        if content[begin:end].strip():
            yield content[begin:end].decode("utf-8-sig")
        begin = end


def _other_delimiter(lines: list[list[str]]) -> str | None:
    """Return what separates the values if it is no comma: the first line has none, and each line has the same number of
    the other one."""
    counts = {one: {sum(cell.count(one) for cell in line) for line in lines} for one in OTHER_DELIMITERS}
    return next((one for one, found in counts.items() if len(lines[0]) == 1 and len(found) == 1 and found != {0}), None)


def _is_header(first: list[str], others: list[list[str]]) -> bool:
    """Return whether a line of CSV has names: plain ones, or any that are no values if other lines have some in the
    same columns."""
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
            plain = next(
                one for number in count(1) if (one := words if number == 1 else f"{words}_{number}") not in taken
            )
            taken.add(plain)
        found[name] = plain
    return found


def _unreadable(path: Path, why: str) -> Refused:
    return Refused(f"{path} can't be read: {why}", data=NOT_READ, hint="name a file as the source will deliver it")
