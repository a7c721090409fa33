"""Read a sample of the input, and guess the record id, the event time and a window."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, combinations, count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from onlyonce.api.pipeline import PREFIX
from onlyonce.core import line_values, records
from onlyonce.core.encodings import UTF_8
from onlyonce.core.errors import Refused
from onlyonce.scaffold import dialect
from onlyonce.scaffold.dialect import NOT_READ
from onlyonce.scaffold.guessed_types import (
    COLUMN,
    HANDLED,
    HAPPENED,
    LOOKS_LIKE,
    PATTERNS,
    THOUSANDS,
    WITH_COMMA,
    has_time_form,
    read_time_form,
    time_form_of,
    time_form_words,
    types_of_arrow,
    types_of_csv,
    types_of_json,
)
from onlyonce.sources import avro_files, file_bytes, typed_files
from onlyonce.sources.listing import FileAt, opened

# The beginning of an input file: its columns, their types, and some rows. At most ROWS records of at most BYTES are
# read, so a file of any size takes a second.


ROWS = 1000
BYTES = 1 << 24
FORMATS = {
    ".jsonl": "json", ".json": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet", ".avro": "avro",
}  # fmt: skip
SNAKE_CASE = re.compile(r"[a-z_][a-z0-9_]*")
WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word of CamelCase begins: orderDate has two, PULocationID three."""


@dataclass(frozen=True)
class Sample:
    """The format and columns of a file, as far as it was read.

    format    as in `Files`; `header`: of CSV, whether the first line has the columns' names
    delimiter what separates the values of CSV
    encoding  of CSV
    null      of CSV, the words for null
    nulls_in  the columns of strings that have such a word
    columns   the declared type by declared name, in order
    rows      the records by declared name, values as the reader gives them: times of JSON and CSV are strings
    aliases   the name in the file of each column whose name is not in lower snake case
    formats   the form of each column of times that are not ISO 8601
    unsure    the forms of each column that has several: nothing says which of its numbers is the month
    misfits   how many records were left out: they have no time, and nearly all others have one
    days      the columns of days that are taken for times, since no column has a time of day
    """

    name: str
    format: str
    header: bool
    columns: dict[str, str]
    rows: list[dict[str, Any]]
    aliases: Mapping[str, str]
    formats: Mapping[str, str] = field(default_factory=dict)
    unsure: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    delimiter: str = ","
    encoding: str = UTF_8
    misfits: int = 0
    null: tuple[str, ...] = ()
    nulls_in: tuple[str, ...] = ()
    days: tuple[str, ...] = ()

    def once(self) -> Sample:
        """Return the sample without repeated records, unchanged: they were delivered twice."""
        return replace(self, rows=list({repr(sorted(row.items())): row for row in self.rows}.values()))

    def values(self, column: str) -> list[Any]:
        """Return the values of a column; None if a record has none."""
        return [row.get(column) for row in self.rows]

    def times(self, column: str) -> list[Any]:
        """Return the values of a column of times, read by its form if it has one."""
        form = self.formats.get(column)
        return [read_time_form(value, form) if form and value is not None else value for value in self.values(column)]


class Form(NamedTuple):
    """How a file of CSV is written: whether its first line has the columns' names, its separator and its encoding.

    `null`: its words for null. `nulls_in`: the columns of strings that have such a word.
    """

    header: bool = False
    delimiter: str = ","
    encoding: str = UTF_8
    null: tuple[str, ...] = ()
    nulls_in: tuple[str, ...] = ()


Read = tuple[Form, dict[str, str], list[dict[str, Any]]]
"""The form of a file, the types of its columns by name, and its first records."""


def read_sample(path: Path) -> Sample:
    """Return the beginning of a file, whose name says its format. Raise Refused if it can't be read."""
    compressed = file_bytes.compression_of(path.name)
    kind = FORMATS.get((path.with_suffix("") if compressed else path).suffix.lower())
    if kind is None or (compressed and kind in ("parquet", "avro")):
        if path.is_file():
            with path.open("rb") as file:
                dialect.refuse_workbook(path, file.read(8))
        raise Refused(
            f"{path} has a name that tells no known format",
            data=NOT_READ,
            hint="name it .jsonl, .csv (both also with .gz, .bz2 or .zst behind), .parquet or .avro",
        )
    if not path.is_file():
        raise Refused(f"{path} is not a file", data=NOT_READ, hint="name a file with a sample of the input")
    try:
        form, columns, rows = READERS[kind](path.resolve())  # a sample may be a link
    except Refused:
        raise
    except Exception as error:  # the readers raise many kinds of errors for a damaged byte
        told = " ".join(str(error).split())[:200] or type(error).__name__
        raise _unreadable(path, f"it is cut short or damaged as {kind} ({told})") from error
    if not rows:
        raise _unreadable(path, "it has no records")
    names = _declared(list(columns))
    aliases = {declared: name for name, declared in names.items() if declared != name}
    of_name = {names[name]: declared for name, declared in columns.items()}
    own = [{names[name]: value for name, value in row.items()} for row in rows]
    found = Sample(
        path.name,
        kind,
        form.header,
        of_name,
        own,
        aliases,
        delimiter=form.delimiter,
        encoding=form.encoding,
        null=form.null,
        nulls_in=tuple(names[name] for name in form.nulls_in),
    )
    if kind not in ("json", "csv"):
        return found
    timed = _with_forms(found)
    return _with_days(timed if _times(timed) else _without_misfits(found) or timed)


def _with_days(sample: Sample) -> Sample:
    """Return the sample with its days as times, if no column has a time of day: each is its midnight in UTC."""
    if _times(sample):
        return sample
    days = [name for name, kind in sample.columns.items() if kind == "date" and None not in sample.values(name)]
    columns = {name: "timestamp" if name in days else kind for name, kind in sample.columns.items()}
    return replace(sample, columns=columns, days=tuple(days))


def _times(sample: Sample) -> list[str]:
    """Return the columns with a time in every record."""
    return [name for name, kind in sample.columns.items() if kind == "timestamp" and None not in sample.values(name)]


MOST_MISFITS = 0.05
"""The largest share of a sample's records that may have no time: a last line with a sum, a day that is none."""


def _without_misfits(sample: Sample) -> Sample | None:
    """Return the sample without the few records that have no time, if one column has a time in all others."""
    least = len(sample.rows) * (1 - MOST_MISFITS)
    types_of = types_of_json if sample.format == "json" else types_of_csv
    for name in sample.columns:
        for form in _forms_of_most(sample.values(name)):
            rows = [row for row in sample.rows if has_time_form(row.get(name), form)]
            if len(rows) >= least:
                columns = {column: types_of([row.get(column) for row in rows]) for column in sample.columns}
                left = replace(sample, columns=columns, rows=rows, misfits=len(sample.rows) - len(rows))
                return _with_forms(left)
    return None


def _forms_of_most(values: Sequence[Any]) -> list[str | None]:
    """Return the forms that read most of the first values; None stands for ISO 8601."""
    first = [value for value in values if isinstance(value, str)][:20]
    like = [value for value in first if LOOKS_LIKE.match(value)]
    forms: list[str | None] = [None, *PATTERNS] if len(like) * 2 > len(first) else []
    return [form for form in forms if sum(has_time_form(value, form) for value in like) * 2 > len(first)]


def _with_forms(sample: Sample) -> Sample:
    forms = {name: time_form_of(name, kind, sample.values(name)) for name, kind in sample.columns.items()}
    forms = {name: (kind, _day_first(found)) for name, (kind, found) in forms.items()}
    certain = {name: form for name, (_, form) in forms.items() if len(form) == 1}
    columns = {name: forms[name][0] if name in certain else kind for name, kind in sample.columns.items()}
    unsure = {name: form for name, (_, form) in forms.items() if len(form) > 1}
    return replace(sample, columns=columns, formats={name: form for name, (form,) in certain.items()}, unsure=unsure)


def _day_first(forms: tuple[str, ...]) -> tuple[str, ...]:
    """Return the forms in which the day comes first, if all have dots; else the forms as they are."""
    first = tuple(form for form in forms if form.startswith("%d."))
    return first if first and all(form[2:3] == "." for form in forms) else forms


def _json(path: Path) -> Read:
    rows, bad = [], 0
    for line in _records(path, None)[1]:
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
    return Form(), {name: types_of_json([row.get(name) for row in rows]) for name in names}, rows


def _csv(path: Path) -> Read:
    lines, bad = list[list[str]](), 0
    written, found = _records(path, records.DEFAULT)
    for record in found:
        try:
            lines.append([cell or "" for cell in line_values.csv_cells(record, written.separator)])
        except line_values.Invalid:
            bad += 1
    if bad > len(lines):
        raise _unreadable(path, "its lines are no CSV with double quotes (RFC 4180)")
    if not lines:
        return Form(), {}, []
    first = lines[0]
    null = _null_words(lines[1:], len(first))
    header = _is_header(path, first, [["" if cell in null else cell for cell in line] for line in lines[1:]])
    null = null if header else _null_words(lines, len(first))
    names = [name.strip() for name in first] if header else [f"column_{number}" for number in range(1, len(first) + 1)]
    whole = [dict(zip(names, line, strict=True)) for line in lines[int(header) :] if len(line) == len(names)]
    rows = [{name: None if cell in null else cell or None for name, cell in row.items()} for row in whole]
    kinds = {name: types_of_csv([row[name] for row in rows]) for name in names}
    nulls_in = (name for name in names if kinds[name] == "string" and any(row[name] in null for row in whole))
    return Form(header, *written, null, tuple(nulls_in)), kinds, rows


def _null_words(lines: list[list[str]], width: int) -> tuple[str, ...]:
    columns = zip(*[line for line in lines if len(line) == width], strict=True)
    return dialect.null_words(columns, lambda cells: _values(cells)[0] is not None)


def _parquet(path: Path) -> Read:
    with typed_files.opened_parquet(FileAt(str(path))) as file:
        columns = {field.name: types_of_arrow(field.type) for field in file.schema_arrow}
        batch = next(file.iter_batches(batch_size=ROWS), None)
    return Form(), columns, batch.to_pylist() if batch is not None else []


def _avro(path: Path) -> Read:
    at = FileAt(str(path))
    avro_files.columns(at)  # raises Damaged
    batch = next(avro_files.records(at, None, ROWS), None)
    if batch is None:
        return Form(), {}, []
    return Form(), {field.name: types_of_arrow(field.type) for field in batch.schema}, batch.to_pylist()


READERS = {"json": _json, "csv": _csv, "parquet": _parquet, "avro": _avro}


def _records(path: Path, quoted_within: int | None) -> tuple[dialect.Written, list[str]]:
    """Return how a file is written, and its first records, without one that the end of the sample cuts off.

    Raise Refused for a file in a form that a source can't read.
    """
    compressed = file_bytes.compression_of(path.name)
    with opened(FileAt(str(path)), compressed) as file:
        content = file.read(BYTES)
        written = dialect.check(path, content, is_csv=quoted_within is not None, compressed=compressed is not None)
        found = file_bytes.record_end_reader(quoted_within, 0, written.separator)
        ends = found.add(content).tolist() + ([] if file.read(1) else found.finish().tolist())
    each = (content[begin:end] for begin, end in pairwise([0, *ends[:ROWS]]))
    code = "utf-8-sig" if written.encoding == UTF_8 else written.encoding
    return written, [one.decode(code) for one in each if one.strip()]


def _is_header(path: Path, first: list[str], others: list[list[str]]) -> bool:
    """Return whether a line of CSV has names. Raise Refused if nothing says so, or if the names can't be declared.

    They are plain names, or strings that are not values if other lines have values in the same columns.
    """
    names = [name.strip() for name in first]
    if not (all(map(COLUMN.fullmatch, names)) and len({*names}) == len(names)):
        columns = [list(column) for column in zip(*[line for line in others if len(line) == len(first)], strict=True)]
        kinds = [_values(column) for column in columns]
        # A name is not a time, so columns of times decide first, then columns of numbers.
        for some in ({"time"}, {"number"}):
            says = {fits(name) for name, (kind, fits) in zip(names, kinds, strict=False) if kind in some and name}
            if len(says) == 2:
                raise _unreadable(
                    path,
                    "nothing says whether its first line has the columns' names: it has values and strings",
                    "give each column a name that is not a value, or delete the first line",
                )
            if True in says:
                return False
            if says:
                break
        else:
            if any(_values([name])[0] for name in names):
                return False
    for at, name in enumerate(names, 1):
        if not name or name in names[: at - 1]:
            why = f"two columns of its first line are named {name!r}" if name else f"column {at} has no name"
            raise _unreadable(path, why, "give each column a name of its own, in this file and in each later one")
    return True


def _values(column: list[str]) -> tuple[str | None, Callable[[str], bool]]:
    """Return whether a column of CSV has times or numbers, and whether another value is one of them."""
    kind = types_of_csv(column)
    if kind == "string":
        forms = time_form_of("", kind, [value for value in column if value])[1]
        return ("time" if forms else None), lambda name: any(has_time_form(name, form) for form in forms)
    return (
        "time" if kind in ("timestamp", "date") else "number",
        lambda name: types_of_csv([*column, name]) != "string",
    )


def _declared(names: list[str]) -> dict[str, str]:
    """Return the name by which each column is declared: in lower snake case, which SQL takes without quotes."""
    taken = {name for name in names if SNAKE_CASE.fullmatch(name)}
    found = dict[str, str]()
    for name in names:
        if name in taken:
            found[name] = name
            continue
        # casefold makes ss of the German sharp s; the marks above letters are characters of their own in NFKD.
        words = unicodedata.normalize("NFKD", WORD_BEGINS.sub("_", name).casefold()).encode("ascii", "ignore").decode()
        plain = re.sub(r"[^a-z0-9]+", "_", words).strip("_")
        plain = plain if plain[:1].isalpha() and not plain.startswith(PREFIX) else f"column_{plain}".rstrip("_")
        found[name] = next(
            one for number in count(1) if (one := plain if number == 1 else f"{plain}_{number}") not in taken
        )
        taken.add(found[name])
    return found


def _unreadable(path: Path, why: str, hint: str = "name a file as the source will deliver it") -> Refused:
    return Refused(f"{path} can't be read: {why}", data=NOT_READ, hint=hint)


# Guesses: which columns identify a record, which one says when it happened, and which window is good to begin with. The
# reason of a guess becomes a comment of the declaration. A person decides: a column that is unique in a sample may not
# be unique in the whole input. Pure.


KEYS = ("string", "tinyint", "smallint", "int", "long")
"""The types of columns that identify things."""
MOST_COLUMNS = 12
"""How many columns are tried in pairs."""
DATE = re.compile(r"[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}(?:[ T].*)?")
"""A date that people write, in any order of its parts, and a time behind it."""
WINDOWS = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1))


@dataclass(frozen=True)
class Guess:
    """One or more columns, and why."""

    columns: tuple[str, ...]
    reason: str


def event_time(sample: Sample) -> Guess:
    """Return the column that says when a record happened. Raise Refused if no column has times in every record."""
    times = _times(sample)
    if not times:
        raise Refused(
            f"{sample.name} has no column that holds a time in every record; its columns are "
            + ", ".join(f"{name} {kind}" for name, kind in sample.columns.items()),
            data=NOT_READ,
            hint=_hint(sample),
        )
    midnight = "; it has days only: each is its midnight in UTC" if sample.days else ""
    if len(times) == 1:
        return Guess((times[0],), f"the only column that is read as a time in every record{midnight}")
    best = min(times, key=lambda name: (_rank(name), times.index(name)))
    others = ", ".join(name for name in times if name != best)
    if _rank(best) < len(HAPPENED):
        return Guess((best,), f"its name says when it happened; {others}: times too{midnight}")
    return Guess((best,), f"the first column of times, and no name says more; or is it {others}?{midnight}")


def _hint(sample: Sample) -> str:
    """Return what to do about a file without a time.

    A date such as 3/1/2026 is named, since nothing says which of its numbers is the month.
    """
    found = next(
        (
            (name, str(value))
            for name, kind in sample.columns.items()
            if kind == "string"
            for value in sample.values(name)
            if DATE.fullmatch(str(value))
        ),
        None,
    )
    needed = "a record needs the time at which it happened, as 2026-03-01T12:00:00Z; of columns, a timestamp"
    if found and found[0] in sample.unsure:
        forms = " or ".join(sample.unsure[found[0]])
        return (
            f"{needed}; column {found[0]} has {found[1][:40]!r}, which is {forms}: name a sample that has a day "
            "beyond 12, or have it exported as 2026-03-01"
        )
    return (
        f"{needed}; column {found[0]} has {found[1][:40]!r}, which no rule reads: have it exported as 2026-03-01"
        if found
        else needed
    )


def record_id(sample: Sample) -> Guess:
    """Return the columns that identify a record, or no column if its position in the file identifies it."""
    rows = sample.once().rows
    told = f"unique in the {len(rows)} records of the sample"
    if nearly := _id_of_most(sample, rows):
        return nearly
    amounts = decimal_commas(sample)
    keys = [
        name
        for name, kind in sample.columns.items()
        if kind in KEYS and name not in amounts and all(row.get(name) is not None for row in rows)
    ]
    single = [name for name in keys if _unique(rows, (name,))]
    if named := [name for name in single if _says_id(name)]:
        best = next((name for name in named if name.lower() == "id"), named[0])
        return Guess((best,), f"{told}, and its name says so")
    # A number may be unique in a sample by chance; a string rarely is.
    if texts := [name for name in single if sample.columns[name] == "string"]:
        return Guess((texts[0],), f"{told}; its name does not say so, so look whether it is by chance")
    timed = [name for name, kind in sample.columns.items() if kind == "timestamp" and name not in keys]
    pairs = combinations([*keys, *timed][:MOST_COLUMNS], 2)
    if pair := next((pair for pair in pairs if _unique(rows, pair) and not set(pair) <= set(timed)), None):
        return Guess(pair, f"together {told}; no column is alone")
    return Guess(
        (),
        "no column or pair is unique in the sample: a record is its place in its file, and what is delivered "
        "again counts again",
    )


def _id_of_most(sample: Sample, rows: list[dict[str, Any]]) -> Guess | None:
    """Return the column named as an id that few records lack, and that is unique in the others; None if all have it."""
    for name, kind in sample.columns.items():
        there = [row for row in rows if row.get(name) is not None]
        lack = len(rows) - len(there)
        if kind in KEYS and _says_id(name) and 0 < lack <= len(rows) * MOST_MISFITS and _unique(there, (name,)):
            return Guess(
                (name,), f"its name says so; {lack} of {len(rows)} records of the sample have none: they are invalid"
            )
    return None


def window(times: Sequence[Any]) -> timedelta:
    """Return a window so short that the sample holds several, so that a first run shows closed ones."""
    return next((size for size in WINDOWS if span(times) >= 3 * size), WINDOWS[-1])


def span(times: Sequence[Any]) -> timedelta:
    """Return the time between the first and the last of some times."""
    found = [time for value in times if (time := _moment(value)) is not None]
    return max(found) - min(found) if found else timedelta(0)


def disorder(times: Sequence[Any]) -> timedelta:
    """Return how far a record's time is behind the largest time before it, at most."""
    found = [time for value in times if (time := _moment(value)) is not None]
    return max(
        (so_far - time for time, so_far in zip(found, accumulate(found, max), strict=True)), default=timedelta(0)
    )


def decimal_commas(sample: Sample) -> list[str]:
    """Return the columns of strings whose values are numbers with a decimal comma, like 1.234,50.

    No column whose commas may separate thousands is among them.
    """
    found = []
    for name, kind in sample.columns.items():
        values = [value for value in sample.values(name) if value] if kind == "string" else []
        if (
            any("," in str(value) for value in values)
            and sum(bool(WITH_COMMA.fullmatch(str(value))) for value in values) >= len(values) * (1 - MOST_MISFITS)
            and not all(THOUSANDS.fullmatch(str(value)) for value in values)
        ):
            found.append(name)
    return found


def nearly_numbers(sample: Sample) -> dict[str, str]:
    """Return the columns of strings in which most values are numbers, each with what is said of the others."""
    found, amounts = {}, decimal_commas(sample)
    strings = [name for name, kind in sample.columns.items() if kind == "string" and name not in amounts]
    for name in strings if sample.format in ("json", "csv") else ():
        values = [str(value) for value in sample.values(name) if value is not None]
        others = [value for value in values if types_of_csv([value]) not in ("long", "double")]
        codes = any(re.fullmatch(r"0[0-9]+", value) for value in others)  # as postcodes, which are no numbers at all
        if not codes and 0 < len(others) < len(values) / 2:
            found[name] = f"{len(others)} of {len(values)} values of the sample are no numbers, the first {others[0]!r}"
    return found


def _moment(value: Any) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:  # a day that is none, as 2026-02-31: the run finds the record invalid
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _rank(name: str) -> int:
    words = time_form_words(name)
    if any(word in HANDLED for word in words):
        return len(HAPPENED) + 1
    return next((at for at, word in enumerate(HAPPENED) if word == name.lower() or word in words), len(HAPPENED))


def _says_id(name: str) -> bool:
    return bool(re.search(r"(^|_)(id|uuid|guid|key|nr|no|number)$|[a-z]I[dD]$", name))


def _unique(rows: Sequence[dict[str, Any]], names: tuple[str, ...]) -> bool:
    of: Callable[[dict[str, Any]], str] = lambda row: repr([row.get(name) for name in names])  # noqa: E731
    return len({of(row) for row in rows}) == len(rows)
